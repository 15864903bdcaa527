"""The metrics of real daemons, in Prometheus and StatsD."""

import asyncio
import re
import socket
import sys
import urllib.request
from http.client import HTTPResponse
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.statistics.stats import GroupCounter
from mq.daemons.config import ConfigError
from mq.daemons.exporters import collected, datagrams
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.operation_config import BrokerOperationConfig
from mq.daemons.service import CannotStart
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.native import native
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.own_time import settled, thread_time
from tests.daemons.peer import Peer

PATIENCE = 10.0
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def broker_on(root: Path, **settings: str) -> Broker:
    overrides = {"storePathRootDir": str(root / "store"), "listenPort": "0", **settings}
    return Broker(BrokerSettings.load(None, {"brokerName": "broker-a", **overrides}))


async def scrape(port: int) -> Samples:
    """The samples of the port, by name and labels."""

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as reply:
            return str(reply.read(), "utf-8")

    text = await asyncio.to_thread(read)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    """The only sample of that name with these labels."""
    found = [v for (n, own), v in samples.items() if n == name and labels.items() <= set(own)]
    assert len(found) == 1, (name, labels, found, sorted({n for n, _ in samples}))
    return found[0]


def test_prometheus_reads_the_metrics_of_a_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker_on(tmp_path, metricsPort="0") as broker, Peer(broker.port) as peer:
            await create_topic(peer, "Orders")
            for number in range(5):
                await send(peer, "Orders", b"x" * 100, queue_id=number % 4)
            committed = {
                **{"consumerGroup": "billing", "topic": "Orders"},
                **{"queueId": "0", "commitOffset": "1"},
            }
            reply = await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, committed)
            assert reply.code == ResponseCode.SUCCESS
            refused = await peer.ask(RequestCode.SEND_MESSAGE_V2, {"a": "g"}, b"")
            assert refused.code == ResponseCode.SYSTEM_ERROR
            absent = {
                **{"consumerGroup": "billing", "topic": "Absent", "queueId": "0"},
                **{"queueOffset": "0", "maxMsgNums": "1", "sysFlag": "0", "commitOffset": "0"},
                **{"suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*"},
            }
            assert (await peer.ask(RequestCode.PULL_MESSAGE, absent)).code != 0
            broker.stores.messages.put_times.add(1500, 1000)  # as if a disk had delayed a thousand
            samples = await scrape(broker.metrics_port)
            assert value(samples, "mq_put_seconds", quantile="0.99") == 1.5
            whose = {"cluster": "DefaultCluster", "broker": "broker-a"}
            assert value(samples, "rocketmq_producer_offset", topic="Orders", **whose) == 5
            assert value(samples, "rocketmq_producer_tps", topic="Orders", **whose) >= 0
            assert value(samples, "rocketmq_broker_tps", brokerIP="127.0.0.1", **whose) >= 0
            key = {"topic": "Orders", "group": "billing"}
            assert value(samples, "rocketmq_consumer_offset", **key, **whose) == 1
            assert value(samples, "rocketmq_group_diff", countOfOnlineConsumers="0", **key) == 1
            assert value(samples, "rocketmq_brokeruntime_putmessage_times_total") == 5
            assert value(samples, "mq_messages_put_total", topic="Orders") == 5
            assert value(samples, "mq_topic_messages", topic="Orders") == 5
            assert value(samples, "mq_connections", listener="main") == 1
            assert value(samples, "mq_bad_requests_total", listener="main") == 1
            cause = {"request": "PULL_MESSAGE", "cause": "TOPIC_NOT_EXIST"}
            assert value(samples, "mq_refused_requests_total", **cause) == 1
            assert value(samples, "mq_disk_free_bytes") > 0
            assert value(samples, "mq_held_pulls") == 0
            assert value(samples, "mq_native_path") == (native is not None)
            assert value(samples, "mq_native_pulls") == (native is not None)
            assert value(samples, "mq_flush_seconds_total") >= 0
            assert value(samples, "mq_loop_delay_seconds") >= 0
            assert value(samples, "process_open_fds") > 0
            assert await asyncio.to_thread(lint, broker.metrics_port) == []
            answer = await asyncio.to_thread(head, broker.metrics_port)
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain")

    asyncio.run(main())


def head(port: int) -> HTTPResponse:
    """The reply to HEAD /metrics."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", method="HEAD")
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        assert isinstance(reply, HTTPResponse)
        return reply


def lint(port: int) -> list[str]:
    """The findings of `promtool check metrics` that apply: its rules about types and names.

    Labels such as brokerIP have the names that the dashboards of rocketmq-exporter use.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as reply:
        families = text_string_to_metric_families(str(reply.read(), "utf-8"))
    found = []
    for family in families:
        if family.type != "counter" and family.name.endswith("_total"):
            found.append(f"{family.name}: a {family.type} must not be called _total")
        if family.type != "summary" and any("quantile" in one.labels for one in family.samples):
            found.append(f"{family.name}: a {family.type} must not have a label quantile")
        if not family.documentation:
            found.append(f"{family.name}: no help text")
    return found


def test_prometheus_reads_the_metrics_of_a_name_server(tmp_path: Path) -> None:
    async def main() -> None:
        overrides = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
        loaded = NamesrvSettings.load(None, {**overrides, "metricsPort": "0"})
        async with NameServer(loaded) as server, Peer(server.port) as peer:
            assert (await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
            samples = await scrape(server.metrics_port)
            assert value(samples, "mq_brokers") == value(samples, "mq_topics") == 0
            assert value(samples, "mq_connections", listener="main") == 1
            assert value(samples, "mq_beacons_total") == 0

    asyncio.run(main())


def test_statsd_gets_gauges_and_increments_of_counters(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
            statsd.bind(("127.0.0.1", 0))
            statsd.setblocking(False)
            address = f"127.0.0.1:{statsd.getsockname()[1]}"
            told: list[str] = []

            async def told_of(pattern: str) -> None:
                loop = asyncio.get_running_loop()
                async with asyncio.timeout(PATIENCE):
                    while not any(re.fullmatch(pattern, line) for line in told):
                        told.extend((await loop.sock_recv(statsd, 65536)).decode().split("\n"))

            broker = broker_on(tmp_path, statsdAddress=address, statsdIntervalMillis="50")
            async with broker, Peer(broker.port) as peer:
                await create_topic(peer, "Orders")
                await told_of(r"mq_topic_messages\.Orders:0\|g|mq_held_pulls:0\|g")
                await send(peer, "Orders", b"x")
                await told_of(r"mq_messages_put_total\.Orders:1\|c")
                told.clear()
                await send(peer, "Orders", b"x")
                await send(peer, "Orders", b"x")
                await told_of(r"mq_topic_messages\.Orders:3\|g")
            grown = [line for line in told if line.startswith("mq_messages_put_total.Orders:")]
            # 1 and 1, or 2 at once: never the total
            assert sum(int(re.findall(r":(\d+)\|c", line)[0]) for line in grown) == 2

    asyncio.run(main())


def test_datagrams_are_filled_up_to_the_size_of_a_packet() -> None:
    lines = [f"name{number}:1|c" for number in range(500)]
    made = list(datagrams(lines))
    assert len(made) > 1 and max(map(len, made)) <= 1400
    assert b"\n".join(made).decode().split("\n") == lines


def test_a_slow_request_is_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        broker = broker_on(tmp_path, metricsPort="0", slowRequestMillis="1")
        async with broker, Peer(broker.port) as peer:
            slow = RequestCode.GET_BROKER_CONFIG

            async def handler(command: object, channel: object) -> None:
                await asyncio.sleep(0.01)
                raise ValueError("of the test")

            broker.listener.dispatcher.serve({slow: handler})
            assert (await peer.ask(slow)).code == ResponseCode.SYSTEM_ERROR
            samples = await scrape(broker.metrics_port)
            assert value(samples, "mq_slow_requests_total", request="GET_BROKER_CONFIG") == 1

    asyncio.run(main())
    assert re.search(r"request 26 of 127\.0\.0\.1:\d+ took \d+\.\d+ s", caplog.text)


def test_a_taken_port_is_reported_in_one_line(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            with pytest.raises(CannotStart, match=f"metricsPort={port}: cannot listen on"):
                async with broker_on(tmp_path, metricsPort=port):
                    pass

    asyncio.run(main())


@pytest.mark.parametrize(
    "settings",
    [{"metricsPort": "-2"}, {"statsdAddress": "nowhere"}, {"slowRequestMillis": "-1"}],
)
def test_settings_that_cannot_work_are_refused_by_name(settings: dict[str, str]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=name):
        BrokerSettings.load(None, settings)


def test_unused_exporters_are_not_imported() -> None:
    import subprocess

    script = (
        "import sys, mq.daemons.broker.app, mq.daemons.namesrv.app\n"
        "print([m for m in ('prometheus_client', 'asyncio_dgram', 'mq.daemons.broker.metrics')"
        " if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.stdout == "[]\n", ended.stderr
    assert BrokerOperationConfig().metrics_port == -1


def test_others_are_served_while_metrics_of_very_many_groups_are_collected(
    tmp_path: Path,
) -> None:
    async def main() -> float:
        # Nothing else meanwhile takes long.
        async with broker_on(tmp_path, flushConsumerOffsetInterval="3600000") as broker:
            for number in range(10_000):
                counter = broker.stats.counters.groups[f"topic-{number}", "group", 0] = (
                    GroupCounter()
                )
                counter.pulls = counter.messages = 1
                broker.stores.offsets.table[f"topic-{number}@group"] = {0: 1}
            began = thread_time()  # CPU time of the loop's thread, because the machine may be busy
            assert len(list(broker.metrics().all())) > 20
            at_once = thread_time() - began
            putting = asyncio.ensure_future(collected(broker.metrics().with_pauses))
            longest, last = 0.0, thread_time()
            while not putting.done():
                await asyncio.sleep(0)
                now = thread_time()
                longest, last = max(longest, now - last), now
            found = {metric.name: metric.values for metric in await putting}
            assert (("topic-7", "group"), 1.0) in found["mq_messages_got_total"]
            assert len(found["rocketmq_group_diff"]) > 9_999
            broker.stores.offsets.table.clear()
            return longest / at_once

    with settled():
        assert asyncio.run(main()) < 0.5  # usually 0.05
