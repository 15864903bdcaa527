"""Our TubeMQ master and broker, each in its own process, as `mq tube` runs them."""

import json
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.ports import free_port
from tests.interop.process import Process

TOKEN = "secret"


class TubeMaster(Process):
    """`mq tube master`, with a balance round every half second and without waiting times."""

    def __init__(self, tmp: Path, **settings: object) -> None:
        self.port, self.web_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        own: dict[str, object] = {
            "port": self.port,
            "webPort": self.web_port,
            "metaDataPath": tmp / "meta",
            "confModAuthToken": TOKEN,
            "consumerBalancePeriodMs": 500,
            "subscribeWaitMs": 0,
            "publishWaitMs": 0,
        }
        command = _command("master", tmp / "master.ini", {**own, **settings})
        super().__init__(command, tmp / "master", "The TubeMQ master serves at")

    def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the response to an administrator."""
        given = {"confModAuthToken": TOKEN, "createUser": "me", "modifyUser": "me", **parameters}
        query = urllib.parse.urlencode({"method": method, **given})
        url = f"http://127.0.0.1:{self.web_port}/webapi.htm?{query}"
        with urllib.request.urlopen(url, timeout=30) as reply:
            answer: dict[str, Any] = json.load(reply)
        assert answer["result"], answer
        assert all(row.get("success", True) for row in answer.get("data", ())), answer
        return answer

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic on broker 1; on return messages can be sent and consumed."""
        self.ask("admin_add_new_topic_record", topicName=name, brokerId=1, numPartitions=partitions)
        end = time.monotonic() + 60
        while not self._serves(name):
            assert time.monotonic() < end, f"{name} is not served"
            time.sleep(0.05)

    def _serves(self, topic: str) -> bool:
        [row] = self.ask("admin_query_topic_info", topicName=topic)["data"]
        return bool(row["isSrvAcceptPublish"] and row["isSrvAcceptSubscribe"])


class TubeBroker(Process):
    """`mq tube broker` on a persistent folder: a restart after a kill has the same messages."""

    def __init__(self, tmp: Path, master: TubeMaster, **settings: object) -> None:
        self.port = free_port()
        own: dict[str, object] = {
            "brokerId": 1,
            "hostName": "127.0.0.1",
            "port": self.port,
            "webPort": -1,
            "masterAddressList": master.address,
            "primaryPath": tmp / "messages",
            "heartbeatPeriodMs": 200,
        }
        command = _command("broker", tmp / "broker.ini", {**own, **settings})
        super().__init__(command, tmp / "broker", "boot success")


@contextmanager
def cluster(
    tmp: Path, of_master: Mapping[str, object] | None = None, /, **settings: object
) -> Iterator[tuple[TubeMaster, TubeBroker]]:
    """A master and a broker that it has admitted, each with additional settings."""
    with TubeMaster(tmp, **(of_master or {})) as master:
        broker = TubeBroker(tmp, master, **settings)
        at = {"brokerId": 1, "brokerIp": "127.0.0.1", "brokerPort": broker.port}
        master.ask("admin_add_broker_configure", **at)
        master.ask("admin_online_broker_configure", brokerId=1)
        with broker:
            yield master, broker


def _command(daemon: str, path: Path, settings: dict[str, object]) -> list[str]:
    lines = [f"[{daemon}]", *(f"{name}={value}" for name, value in settings.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [sys.executable, "-m", "mq", "tube", daemon, "-f", str(path)]
