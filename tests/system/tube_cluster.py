"""A TubeMQ master and broker as processes of their own, for tests that kill them."""

import json
import re
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

from tests.interop.ports import free_port
from tests.system.daemon import DaemonProcess

_TOKEN = "changes"


class TubeMasterProcess(DaemonProcess):
    """`mq tube master` that shares partitions out at once, on ports that it keeps."""

    word = "tube master"
    ready = re.compile(r"The TubeMQ master serves at ([0-9.:]+)")

    def __init__(self, folder: Path) -> None:
        self.web_port = free_port()
        super().__init__(
            folder / "master.log",
            {
                "hostName": "127.0.0.1",
                "port": str(free_port()),
                "webPort": str(self.web_port),
                "metaDataPath": str(folder / "metadata"),
                "confModAuthToken": _TOKEN,
                "consumerBalancePeriodMs": "200",
                "subscribeWaitMs": "0",
                "publishWaitMs": "0",
            },
        )

    def ask(self, method: str, **parameters: str) -> dict[str, object]:
        """What the administration port answers. Raises AssertionError if that is a refusal."""
        words = {"method": method, "confModAuthToken": _TOKEN, "createUser": "test"} | parameters
        url = f"http://127.0.0.1:{self.web_port}/webapi.htm?{urlencode(words)}"
        with urllib.request.urlopen(url, timeout=10) as reply:
            answer: dict[str, object] = json.load(reply)
        assert answer["result"] is True, answer
        return answer


class TubeBrokerProcess(DaemonProcess):
    """`mq tube broker` with the id 1, on a port that it keeps."""

    word = "tube broker"
    ready = re.compile(r"The TubeMQ broker 1 boot success\. address ([0-9.:]+)")

    def __init__(self, folder: Path, master: str, settings: dict[str, str]) -> None:
        self.port = free_port()
        super().__init__(
            folder / "broker.log",
            {
                "hostName": "127.0.0.1",
                "brokerId": "1",
                "port": str(self.port),
                "webPort": "-1",
                "masterAddressList": master,
                "primaryPath": str(folder / "messages"),
                "heartbeatPeriodMs": "100",
                **settings,
            },
        )


class TubeCluster:
    """Both, with a topic. Entering returns when it can be sent to."""

    def __init__(self, folder: Path, topic: str, partitions: int, **settings: str) -> None:
        self.master = TubeMasterProcess(folder)
        self._folder = folder
        self._settings = settings
        self._topic = topic
        self._partitions = partitions

    def __enter__(self) -> "TubeCluster":
        self.master.start()
        self.broker = TubeBrokerProcess(self._folder, self.master.address, self._settings)
        where = {"brokerId": "1"}
        address = {"brokerIp": "127.0.0.1", "brokerPort": str(self.broker.port)}
        self.master.ask("admin_add_broker_configure", **where, **address)
        self.master.ask("admin_online_broker_configure", **where, modifyUser="test")
        self.broker.start()
        self.master.ask(
            "admin_add_new_topic_record",
            topicName=self._topic,
            numPartitions=str(self._partitions),
            **where,
        )
        self.master.ask("admin_reload_broker_configure", **where, modifyUser="test")
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.kill()
        self.master.kill()
