"""The options shared by all commands work with Java's name servers and brokers of both releases."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.producer.producer import Producer
from mq.client.transport.blocking import BlockingSession, run
from mq.protocol.message import Message
from tests.cli.support import Mq
from tests.interop.conftest import JavaCluster

pytestmark = pytest.mark.java

TOPIC = "SharedOptions"


@pytest.fixture
def mq(java_cluster: JavaCluster, tmp_path_factory: pytest.TempPathFactory) -> Mq:
    folder = tmp_path_factory.mktemp("shared-options")
    variables = {
        "NAMESRV_ADDR": java_cluster.namesrv,
        "MQ_CACHE_DIR": str(folder / "cache"),
        "MQ_STATE_DIR": str(folder / "state"),
    }
    return Mq(folder / "config", variables)


def test_names_are_completed_and_a_dry_run_changes_nothing(
    mq: Mq, java_cluster: JavaCluster
) -> None:
    shown = mq("updateTopic", "-b", java_cluster.broker, "-t", f"{TOPIC}Dry", "--dry-run")
    assert shown.out.startswith(f"UPDATE_AND_CREATE_TOPIC (17) to {java_cluster.broker}\n")
    made = mq("updateTopic", "-b", java_cluster.broker, "-t", TOPIC, "-r", "1", "-w", "1")
    assert made.status == 0, made.err
    mq("updateSubGroup", "-b", java_cluster.broker, "-g", "SharedGroup")
    sent = mq("sendMessage", "-t", TOPIC, "-p", '{"a": 1}', "-k", "shared-key")
    assert sent.status == 0, sent.err

    def names(*words: str) -> list[str]:
        _, *rows = mq("__complete", *words, MQ_COMPLETION_TIMEOUT="10").out.splitlines()
        return [row.partition("\t")[0] for row in rows]

    topics = names("updateTopic", "-t", "Shared")
    assert topics == [TOPIC]  # and not the name in the dry run
    assert "SharedGroup" in names("consumerProgress", "-g", "")
    assert names("wipeWritePerm", "-b", "") == [java_cluster.broker_name]
    assert names("updateTopic", "-b", "") == [java_cluster.broker]
    assert names("updateTopic", "-c", "") == ["DefaultCluster"]
    assert names("queryMsgByKey", "-t", TOPIC, "-k", "") == ["shared-key"]
    told = mq("printMsg", "-t", TOPIC, "--format", r"%q %o %k %b\n", "--body", "json")
    assert told.out == '0 0 shared-key {"a":1}\n'
    listed = mq("clusterList", "--columns", "brokerName,brokerAddr", "-o", "csv", "--no-header")
    assert listed.out == f"{java_cluster.broker_name},{java_cluster.broker}\n"
    deleted = mq("deleteTopic", "-c", "DefaultCluster", "-t", TOPIC, "--dry-run")
    assert "DELETE_TOPIC_IN_BROKER" in deleted.out
    assert TOPIC in mq("topicList").out.split()


def test_top_shows_rates_and_lag_of_java_brokers(mq: Mq, java_cluster: JavaCluster) -> None:
    topic, group = "TopJavaTopic", "TopJavaGroup"
    address = java_cluster.broker
    made = mq("updateTopic", "-b", address, "-t", topic, "-r", "1", "-w", "1")
    assert made.status == 0, made.err
    mq("updateSubGroup", "-b", address, "-g", group)

    async def send(enough: threading.Event) -> int:
        sent = 0
        async with Producer(java_cluster.namesrv, "top") as producer:
            while not enough.is_set():
                await producer.send(Message(topic, b"body"))
                sent += 1
        return sent

    def top(show: str) -> dict[str, Any]:
        # The rates are of a second in which a thread sends. Java's brokers refuse to report them in
        # their first second (StoreStatsService), so the second result is used.
        enough = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(asyncio.run, send(enough))
            try:
                shown = mq("top", "--show", show, "--interval", "1", "--count", "2", "-o", "json")
            finally:
                enough.set()
            assert sent.result(30) > 0
        assert shown.status == 0, shown.err
        (_, last) = map(json.loads, shown.out.splitlines())
        assert last["failures"] == []
        name = {"brokers": java_cluster.broker_name, "topics": topic, "groups": group}[show]
        (row,) = (item for item in last["data"] if name in item.values())
        return dict(row)

    broker = top("brokers")
    assert broker["inTps"] > 0 and broker["inBytesPerSecond"] > 0
    assert broker["putLatency99"] is not None and broker["diskRatio"] > 0
    assert isinstance(broker["producers"], int)
    assert top("topics")["inTps"] > 0
    with BlockingSession(java_cluster.namesrv) as session:
        run(Admin(session).update_consumer_offset(address, group, topic, 0, 1))
    lagging = top("groups")
    assert (lagging["direction"], lagging["members"]) == ("growing", 0)
    assert lagging["lag"] > 0 and lagging["inTps"] > 0
