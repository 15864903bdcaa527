"""The commands about topics, offsets, name servers, connections, queues and statistics print the
output of the Java mqadmin for the same state, on Java clusters of both releases and on ours.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from tests.cli.support import without_starts
from tests.interop import peers
from tests.interop.tools import BROKER, Cluster

pytestmark = pytest.mark.java

TOPIC = "AdminTopic"
ORDERED = "AdminOrdered"
GROUP = "AdminGroup"
OFFLINE = "AdminOffline"
MESSAGES = 12


@pytest.fixture(scope="module")
def cluster(both_tools: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The shared cluster with a topic, a consumer and a producer of this module."""
    tmp = tmp_path_factory.mktemp("admin-commands")
    fill(both_tools)
    namesrv = both_tools.namesrv
    with (
        peers.JavaProgram("4.9.8", "Consume.java", namesrv, GROUP, TOPIC, tmp=tmp) as consumer,
        peers.JavaProgram("4.9.8", "Hold.java", namesrv, "AdminProducers", TOPIC, tmp=tmp),
    ):
        consumer.wait_for_line("GOT ", count=MESSAGES)
        put_back(both_tools, GROUP)
        yield both_tools


def fill(cluster: Cluster) -> None:
    """A topic with messages, and two groups: one consumes, one has no consumers."""
    for topic in (TOPIC, ORDERED):
        made = cluster.ours(
            "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "4", "-w", "4"
        )
        assert made.status == 0
    for group in (GROUP, OFFLINE, "Cloned"):
        assert cluster.ours("updateSubGroup", "-b", cluster.broker, "-g", group).status == 0
    for number in range(MESSAGES):
        sent = cluster.ours(
            "sendMessage", "-t", TOPIC, "-p", f"message {number}", "-c", "TagA", "-b", BROKER,
            "-i", str(number % 4),
        )  # fmt: skip
        assert sent.status == 0, sent.err
    put_back(cluster, OFFLINE)


def put_back(cluster: Cluster, group: str, offset: int = 2) -> None:
    """Set the offsets of the group again, after a command has moved them."""
    with BlockingSession(cluster.namesrv) as session:
        admin = Admin(session)
        for queue in range(4):
            run(admin.update_consumer_offset(cluster.broker, group, TOPIC, queue, offset))


def offsets(cluster: Cluster, group: str) -> list[int | None]:
    with BlockingSession(cluster.namesrv) as session:
        admin = Admin(session)
        return [
            run(admin.query_consumer_offset(cluster.broker, group, TOPIC, queue))
            for queue in range(4)
        ]


def test_a_changed_permission_is_printed_as_by_java(cluster: Cluster) -> None:
    for perm in ("4", "6"):
        # The second command must not find the permission changed already: the old one is restored
        # in between.
        for arguments in (("-c", "DefaultCluster"), ("-b", cluster.broker)):
            words = ("updateTopicPerm", "-t", TOPIC, "-p", perm, *arguments)
            other = ("updateTopicPerm", "-t", TOPIC, "-p", "6" if perm == "4" else "4")
            cluster.theirs(*other, "-c", "DefaultCluster")
            java = cluster.theirs(*words)
            cluster.theirs(*other, "-c", "DefaultCluster")
            ours = cluster.ours(*words)
            assert (ours.out, ours.err, ours.status) == (java, "", 0)
            assert "success" in java
    cluster.assert_same("updateTopicPerm", "-t", TOPIC, "-p", "6", "-b", cluster.broker)


def test_order_configurations_are_printed_as_by_java(cluster: Cluster) -> None:
    cluster.assert_same("updateOrderConf", "-t", ORDERED, "-m", "put", "-v", f"{BROKER}:4")
    cluster.assert_same("updateOrderConf", "-t", ORDERED, "-m", "get")
    cluster.assert_same("updateOrderConf", "-t", ORDERED, "-m", "delete")


def test_the_offsets_of_consumers_are_printed_as_by_java(cluster: Cluster) -> None:
    # Before the offsets are reset: after that a Java consumer gives no answer for ten seconds.
    cluster.assert_same("getConsumerStatus", "-g", GROUP, "-t", TOPIC)
    connected = cluster.ours("consumerConnection", "-g", GROUP, "-o", "json").json["data"]
    client = connected["consumers"][0]["clientId"]
    cluster.assert_same("getConsumerStatus", "-g", GROUP, "-t", TOPIC, "-i", client)


@pytest.mark.parametrize("consumers", ["a", "a,b,c", "10.0.0.2,10.0.0.1", "1,2,3,4,5,6"])
def test_queues_are_allocated_as_by_java(cluster: Cluster, consumers: str) -> None:
    cluster.assert_same("allocateMQ", "-t", TOPIC, "-i", consumers)


@pytest.mark.parametrize("words", [
    ("resetOffsetByTime", "-s", "now"),
    ("resetOffsetByTime", "-s", "now", "-f", "false"),
    ("resetOffsetByTime", "-s", "1000"),
    ("resetOffsetByTime", "-s", "2020-01-01#00:00:00:000"),
    ("resetOffsetByTimeOld", "-s", "2020-01-01#00:00:00:000"),
    ("skipAccumulatedMessage",),
    ("skipAccumulatedMessage", "-f", "false"),
], ids=" ".join)  # fmt: skip
def test_offsets_of_a_group_without_consumers_are_set_as_by_java(
    cluster: Cluster, words: tuple[str, ...]
) -> None:
    arguments = (*words, "-g", OFFLINE, "-t", TOPIC)
    put_back(cluster, OFFLINE)
    java, theirs = cluster.theirs(*arguments), offsets(cluster, OFFLINE)
    put_back(cluster, OFFLINE)
    ours, mine = cluster.ours(*arguments), offsets(cluster, OFFLINE)
    assert (ours.out, without_starts(ours.err), ours.status) == (java, [], 0)
    assert mine == theirs
    assert BROKER in java


@pytest.mark.parametrize("words", [
    ("resetOffsetByTime", "-s", "now"),
    ("skipAccumulatedMessage",),
], ids=" ".join)  # fmt: skip
def test_offsets_of_running_consumers_are_reset_as_by_java(
    cluster: Cluster, words: tuple[str, ...]
) -> None:
    cluster.assert_same(*words, "-g", GROUP, "-t", TOPIC)


def test_a_group_that_never_existed_gets_offsets_as_by_java(cluster: Cluster) -> None:
    words = ("resetOffsetByTime", "-s", "now", "-t", TOPIC)
    java = cluster.theirs(*words, "-g", "NeverOne")
    ours = cluster.ours(*words, "-g", "NeverTwo")
    if ours.status == 0:
        assert ours.out == java.replace("NeverOne", "NeverTwo")
        assert offsets(cluster, "NeverOne") == offsets(cluster, "NeverTwo")
    else:
        assert java == ""


def test_one_queue_is_reset_if_the_broker_supports_it(cluster: Cluster) -> None:
    put_back(cluster, OFFLINE)
    words = ("resetOffsetByTime", "-g", OFFLINE, "-t", TOPIC, "-b", cluster.broker, "-q", "1")
    done = cluster.ours(*words, "-s", "now", "-o", "1")
    assert done.status == 0, done.err
    assert offsets(cluster, OFFLINE)[1] == 1
    online = cluster.ours("resetOffsetByTime", "-g", GROUP, *words[3:], "-s", "now", "-o", "3")
    if cluster.release == "5.5.0":
        assert (online.status, online.err) == (0, "")
        return
    assert online.status == 69
    assert "it cannot tell them about one queue" in online.err


def test_cloned_offsets_equal_those_of_the_other_group(cluster: Cluster) -> None:
    put_back(cluster, OFFLINE)
    cluster.assert_same("cloneGroupOffset", "-s", GROUP, "-d", "Cloned", "-t", TOPIC)
    assert offsets(cluster, "Cloned") == offsets(cluster, GROUP)


def test_write_permission_is_removed_and_restored_as_by_java(cluster: Cluster) -> None:
    for command in ("wipeWritePerm", "addWritePerm"):
        java = cluster.theirs(command, "-b", BROKER)
        cluster.theirs("addWritePerm" if command == "wipeWritePerm" else "wipeWritePerm",
                       "-b", BROKER)  # fmt: skip
        ours = cluster.ours(command, "-b", BROKER)
        assert (ours.out, ours.err, ours.status) == (java, "", 0)
        assert re.search(r"OK, [1-9]\d*\n$", java)
        cluster.assert_same(command, "-b", "no-such-broker")


def test_name_servers_are_configured_as_by_java(cluster: Cluster) -> None:
    cluster.assert_same("getNamesrvConfig")
    setting = ("orderMessageEnable", "true")
    cluster.assert_same("updateNamesrvConfig", "-k", setting[0], "-v", setting[1])
    cluster.assert_same("getNamesrvConfig")
    cluster.assert_same("updateKvConfig", "-s", "space", "-k", "key", "-v", "a value")
    cluster.assert_same("deleteKvConfig", "-s", "space", "-k", "key")
    cluster.assert_same("deleteKvConfig", "-s", "no-such-space", "-k", "key")


def test_connections_are_shown_as_by_java(cluster: Cluster) -> None:
    cluster.assert_same("consumerConnection", "-g", GROUP)
    cluster.assert_same("consumerConnection", "-g", GROUP, "-b", cluster.broker)
    cluster.assert_same("producerConnection", "-g", "AdminProducers", "-t", TOPIC)
    heard = re.compile(r"(?<=lastUpdateTimestamp=)\d+")
    words = ("producer", "-b", cluster.broker)
    java, ours = cluster.theirs(*words), cluster.ours(*words).out
    assert heard.sub("<then>", ours) == heard.sub("<then>", java)
    assert "producer group (AdminProducers) instance : " in ours


@pytest.mark.parametrize("words", [
    ("-q", "0", "-i", "0"),
    ("-q", "1", "-i", "1", "-c", "1"),
    ("-q", "0", "-i", "0", "-g", GROUP),
], ids=" ".join)  # fmt: skip
def test_queue_entries_are_shown_as_by_java(cluster: Cluster, words: tuple[str, ...]) -> None:
    arguments = ("queryCq", "-t", TOPIC, *words)
    cluster.assert_same(*arguments)
    cluster.assert_same(*arguments, "-b", cluster.broker)


def test_statistics_are_shown_as_by_java(cluster: Cluster) -> None:
    rates = re.compile(r"\b\d+\.\d\d\b")
    for arguments in ((), ("-t", TOPIC), ("-a",)):
        words = ("statsAll", *arguments)
        for _ in range(40):  # counts change if a broker takes a sample between the two calls
            java, ours = cluster.theirs(*words), cluster.ours(*words)
            if rates.sub("<rate>", ours.out) == rates.sub("<rate>", java):
                break
        assert rates.sub("<rate>", ours.out) == rates.sub("<rate>", java)
        assert java.startswith("#Topic")


def test_many_topics_are_created_if_the_broker_supports_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "topics.json"
    file.write_text('[{"topicName": "Many1", "readQueueNums": 2, "writeQueueNums": 2}]')
    words = ("updateTopicList", "-c", "DefaultCluster", "-f", str(file))
    made = cluster.ours(*words)
    if cluster.release == "4.9.7":
        assert (made.status, made.out) == (69, "")
        assert "the broker is older than RocketMQ 5, which updateTopicList needs" in made.err
        return
    assert made.status == 0, made.err
    if cluster.release == "5.5.0":  # with -c mqadmin prints its help after the text
        at = ("updateTopicList", "-b", cluster.broker, "-f", str(file))
        cluster.assert_same(*at, tool=cluster.java_5)
    (row,) = cluster.ours("topicRoute", "-t", "Many1", "-o", "json").json["data"]
    assert row["readQueueNums"] == 2


ALIKE = [
    ("updateOrderConf", "-t", ORDERED, "-m", "put", "-v", f"{BROKER}:4"),
    ("updateOrderConf", "-t", ORDERED, "-m", "get"),
    ("allocateMQ", "-t", TOPIC, "-i", "a,b,c"),
    ("cloneGroupOffset", "-s", GROUP, "-d", "Cloned", "-t", TOPIC),
    ("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC),
    ("wipeWritePerm", "-b", "no-such-broker"),
    ("addWritePerm", "-b", "no-such-broker"),
    ("getNamesrvConfig",),
    ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"),
    ("updateKvConfig", "-s", "space", "-k", "key", "-v", "a value"),
    ("deleteKvConfig", "-s", "space", "-k", "key"),
    ("consumerConnection", "-g", GROUP),
    ("producerConnection", "-g", "AdminProducers", "-t", TOPIC),
    ("queryCq", "-t", TOPIC, "-q", "0", "-i", "0"),  # with -g the layout of empty lists differs
]


@pytest.mark.parametrize("arguments", ALIKE, ids=" ".join)
def test_commands_equal_in_both_releases_print_what_java_prints(
    cluster: Cluster, arguments: tuple[str, ...]
) -> None:
    if cluster.release == "5.5.0":
        cluster.assert_same(*arguments, tool=cluster.java_5)


def test_queues_in_rocksdb_are_checked_if_the_broker_supports_it(cluster: Cluster) -> None:
    words = ("checkRocksdbCqWriteProgress", "-c", "DefaultCluster")
    ours = cluster.ours(*words)
    if cluster.release != "5.5.0":
        assert (ours.status, ours.out) == (69, "")
        assert "which checkRocksdbCqWriteProgress needs" in ours.err
        return
    java = cluster.java_5(*words, "-n", cluster.namesrv)
    assert ours.out == java
    assert java.startswith(BROKER)


def test_one_queue_is_reset_as_by_java_5(cluster: Cluster) -> None:
    if cluster.release != "5.5.0":
        return  # for the Java tool, an older broker would reset the whole topic
    where = ("-b", cluster.broker, "-q", "1")
    for time in ("1000", "2020-01-01#00:00:00:000"):
        words = ("resetOffsetByTime", "-g", OFFLINE, "-t", TOPIC, "-s", time, *where)
        cluster.assert_same(*words, tool=cluster.java_5)
        cluster.assert_same(*words, "-o", "2", tool=cluster.java_5)
        assert offsets(cluster, OFFLINE)[1] == 2
