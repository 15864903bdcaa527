"""Both Java mqadmins with our daemons; their output is compared with that for Java's in the same
state.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from tests.interop import peers
from tests.interop.java_client import JavaClient, Sent
from tests.interop.jvm import require_java
from tests.interop.tools import JavaTool, java_daemons, masked, our_daemons, warm_tool

pytestmark = pytest.mark.java

BROKER = "broker-a"
TOPIC = "AdminTopic"
GROUP = "AdminGroup"
QUEUES = 4

MOVING = [
    (r"^%RETRY%.*\n", ""),  # gets an offset when its pull is answered, after 15 s
    (r"\b(?:[0-9A-F]{32}|[0-9A-F]{56})\b", "<id>"),
    (r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d(,\d+)?", "<time>"),
    # In a client id: the process id and System.nanoTime(), with the same number of digits.
    (r"@\d+#\d+ *", "@<process> "),
    (r"\b\d{13}\b", "<ms>"),
    (r"127\.0\.0\.1:\d+", "<peer>"),
    (r"\brt=\d+ms", "<rt>"),
    (r" +\d+\.\d\d (\d\.\d{4})$", r" <hours> \1"),
    # statsAll: messages in and out of the last sample, which each broker takes at its own time.
    (r"( +\d+) +\d+\.\d\d +\d+\.\d\d +\d+ +\d+$", r"\1 <rates>"),
    # consumerProgress: messages a second, which decrease over time.
    (r"((?:PUSH|PULL|<none>) +(?:CLUSTERING|BROADCASTING)) +\d+( +\d+)$", r"\1 <tps>\2"),
]


@dataclass(frozen=True)
class Side:
    """A cluster with TOPIC, three messages in each of its queues, all read by GROUP."""

    namesrv: str
    broker: str
    sent: list[Sent]

    def filled_in(self, words: str) -> list[str]:
        """A command line with this cluster's broker and the ids of one of its messages."""
        message = self.sent[4]
        for name, value in (
            ("<broker>", self.broker),
            ("<offset-id>", message.offset_id),
            ("<unique-id>", message.message_id),
        ):
            words = words.replace(name, value)
        return words.split()

    def masked(self, text: str) -> str:
        """Mask the parts that differ between two clusters in the same state."""
        text = text.replace(self.namesrv, "<namesrv>").replace(self.broker, "<broker>")
        for pattern, name in MOVING:
            text = re.sub(pattern, name, text, flags=re.M)
        return masked(text)


def filled(namesrv: str, broker: str, java: JavaClient, tool: JavaTool) -> Side:
    where = ("-c", "DefaultCluster", "-t", TOPIC)
    made = tool("updateTopic", *where, "-r", str(QUEUES), "-w", str(QUEUES), "-n", namesrv)
    assert f"create topic to {broker} success" in made
    sent = [s for queue in range(QUEUES) for s in java.send(TOPIC, queue, f"tag{queue}", 3)]
    java.consume("member", GROUP, TOPIC)
    java.got("member", 3 * QUEUES)
    java.commit("member", lambda: committed(namesrv, broker) == [3] * QUEUES)
    return Side(namesrv, broker, sent)


def committed(namesrv: str, broker: str) -> list[int | None]:
    with BlockingSession(namesrv) as session:
        admin = Admin(session)
        queues = range(QUEUES)
        return [run(admin.query_consumer_offset(broker, GROUP, TOPIC, queue)) for queue in queues]


@dataclass(frozen=True)
class Pair:
    """Our daemons and Java's, in the same state, and the tool of each release."""

    ours: Side
    theirs: Side
    tools: dict[str, JavaTool]

    def same(self, version: str, words: str, *, ordered: bool = True) -> str:
        """Run a command at both clusters; the output must be the same, and not empty."""
        texts = []
        for side in (self.theirs, self.ours):
            text = side.masked(self.tools[version](*side.filled_in(words), "-n", side.namesrv))
            texts.append(text if ordered else "\n".join(sorted(text.splitlines())))
        assert texts[1] == texts[0]
        assert texts[0]
        return texts[0]

    def at_ours(self, version: str, *words: str) -> str:
        return self.tools[version](*words, "-n", self.ours.namesrv)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    require_java()
    tmp = tmp_path_factory.mktemp("admin")
    with (
        our_daemons(tmp / "ours") as ours,
        java_daemons(tmp / "java", "4.9.7") as theirs,
        JavaClient("4.9.8", ours[0], tmp) as at_ours,
        JavaClient("4.9.8", theirs[0], tmp) as at_theirs,
    ):
        four, five = warm_tool(), warm_tool("5.5.0")
        sides = (filled(*ours, at_ours, four), filled(*theirs, at_theirs, four))
        yield Pair(*sides, {"4.9.7": four, "5.5.0": five})


# In this order: each command may change or delete the objects of earlier ones.
SAME = [
    f"topicRoute -t {TOPIC}",
    f"topicStatus -t {TOPIC}",
    f"topicClusterList -t {TOPIC}",
    "clusterList -m",
    "consumerProgress",
    f"consumerProgress -g {GROUP}",
    f"consumerConnection -g {GROUP}",
    f"consumerStatus -g {GROUP}",
    f"producerConnection -g java_client_producer -t {TOPIC}",
    f"queryMsgByKey -t {TOPIC} -k key-tag1-1",
    "queryMsgById -i <offset-id>",
    f"queryMsgByUniqueKey -i <unique-id> -t {TOPIC}",
    f"queryMsgByOffset -t {TOPIC} -b {BROKER} -i 1 -o 1",
    f"printMsg -t {TOPIC}",
    f"printMsgByQueue -t {TOPIC} -a {BROKER} -i 2 -p true",
    f"consumeMessage -t {TOPIC} -b {BROKER} -i 1",
    f"queryCq -t {TOPIC} -q 1 -i 0 -c 2",
    f"queryCq -t {TOPIC} -q 1 -i 0 -b <broker> -g {GROUP}",
    "brokerConsumeStats -b <broker>",
    f"getConsumerConfig -g {GROUP}",
    f"allocateMQ -t {TOPIC} -i 127.0.0.1,127.0.0.2",
    f"sendMsgStatus -b {BROKER} -c 2 -s 10",
    "updateKvConfig -s NS -k key -v value",
    "deleteKvConfig -s NS -k key",
    "updateTopic -c DefaultCluster -t Made -r 3 -w 5 -p 6",
    "updateTopic -b <broker> -t Made -r 2 -w 2 -o true",
    "updateTopicPerm -t Made -p 4 -c DefaultCluster",
    "updateTopicPerm -t Made -p 6 -b <broker>",
    f"updateOrderConf -t Made -m put -v {BROKER}:2",
    "updateOrderConf -t Made -m get",
    "updateOrderConf -t Made -m delete",
    "deleteTopic -c DefaultCluster -t Made",
    "updateSubGroup -c DefaultCluster -g MadeGroup",
    "updateSubGroup -b <broker> -g MadeGroup -s false -m true -q 2 -r 3 -i 0 -w 1 -a false",
    "getConsumerConfig -g MadeGroup",
    "deleteSubGroup -c DefaultCluster -g MadeGroup",
    f"wipeWritePerm -b {BROKER}",
    f"addWritePerm -b {BROKER}",
    "updateBrokerConfig -b <broker> -k flushConsumerOffsetInterval -v 6000",
    "updateNamesrvConfig -k orderMessageEnable -v true",
    f"sendMessage -t {TOPIC} -p hello -k k -c TagA -b {BROKER} -i 2",
    f"cloneGroupOffset -s {GROUP} -d ClonedGroup -t {TOPIC} -o true",
    f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0",
    f"skipAccumulatedMessage -g {GROUP} -t {TOPIC}",
]
# The tool of 5.5.0 takes three seconds for every third command: only some of each kind.
SAME_OF_5 = [
    f"topicRoute -t {TOPIC}",
    f"consumerConnection -g {GROUP}",
    f"queryMsgByKey -t {TOPIC} -k key-tag1-1",
    f"printMsgByQueue -t {TOPIC} -a {BROKER} -i 2 -p true",
    "updateTopic -c DefaultCluster -t MadeBy5 -r 3 -w 5 -p 6",
    "updateSubGroup -c DefaultCluster -g MadeBy5Group",
    "deleteTopic -c DefaultCluster -t MadeBy5",
    "updateBrokerConfig -b <broker> -k flushConsumerOffsetInterval -v 7000",
]


def test_the_tool_prints_the_same_for_our_daemons_and_java(pair: Pair) -> None:
    # Before any other request: a consumer commits only every five seconds.
    pair.same("4.9.7", "statsAll", ordered=False)
    for command in SAME:
        pair.same("4.9.7", command)
    # A Java set: names whose hash codes share a bucket come in the order of their insertion.
    pair.same("4.9.7", "topicList", ordered=False)
    pair.same("4.9.7", "topicList -c", ordered=False)


def test_the_tool_of_5_5_prints_the_same_for_our_daemons_and_java(pair: Pair) -> None:
    for command in SAME_OF_5:
        pair.same("5.5.0", command)


def test_the_tool_of_5_5_can_query_our_broker_with_a_code_unknown_to_java_4_9(pair: Pair) -> None:
    """GET_TOPIC_CONFIG (351), with which 5.x finds queues that are mapped to other brokers."""
    rows = pair.at_ours("5.5.0", "topicStatus", "-t", TOPIC).splitlines()
    rows = [row for row in rows if row.startswith(BROKER)]
    assert [row.split()[1:3] for row in rows] == [[str(queue), "0"] for queue in range(QUEUES)]
    progress = pair.at_ours("5.5.0", "consumerProgress", "-g", GROUP)
    assert progress.count(f"{TOPIC} ") == QUEUES


@pytest.mark.parametrize("version", peers.SERVER_RELEASES)
def test_the_cluster_and_its_broker_are_shown(pair: Pair, version: str) -> None:
    listed = pair.at_ours(version, "clusterList").splitlines()[1]
    assert listed.split()[:5] == ["DefaultCluster", BROKER, "0", pair.ours.broker, "V4_9_8"]
    status = pair.at_ours(version, "brokerStatus", "-b", pair.ours.broker)
    assert re.search(r"^brokerVersionDesc +: V4_9_8$", status, re.M)
    assert re.search(r"^putTps +: \d", status, re.M)
    shown = pair.at_ours(version, "getBrokerConfig", "-b", pair.ours.broker)
    assert re.search(rf"^brokerName +=  {BROKER}$", shown, re.M)
    assert re.search(r"^namesrvAddr +=  127\.0\.0\.1:\d+$", shown, re.M)


def test_attributes_set_by_the_tool_of_release_5_are_checked_and_stored(pair: Pair) -> None:
    broker = pair.ours.broker
    change = ("updateTopic", "-b", broker, "-t", "Attributed", "-a")
    assert "success" in pair.at_ours("5.5.0", *change, "+message.type=FIFO,+queue.type=SimpleCQ")
    assert pair.at_ours("5.5.0", *change, "+message.type=SOON") == ""
    assert "success" in pair.at_ours("5.5.0", *change, "+message.type=DELAY")
    assert "success" in pair.at_ours("4.9.7", "updateTopic", "-b", broker, "-t", "Attributed")
    with BlockingSession(pair.ours.namesrv) as session:
        table = run(Admin(session).topic_configs(broker)).topic_config_table
        run(Admin(session).delete_topic_in_broker(broker, "Attributed"))
    assert table["Attributed"].attributes == {"message.type": "DELAY", "queue.type": "SimpleCQ"}


def test_settings_without_effect_and_unknown_ones_are_accepted(pair: Pair) -> None:
    change = ("updateBrokerConfig", "-b", pair.ours.broker, "-v", "9")
    for name in ("sendMessageThreadPoolNums", "noSuchSetting"):
        shown = pair.at_ours("4.9.7", *change, "-k", name)
        assert shown == f"update broker config success, {pair.ours.broker}\n"


def test_a_setting_that_is_not_on_the_list_is_refused_with_its_name(pair: Pair) -> None:
    tool = pair.tools["4.9.7"]
    change = ("updateBrokerConfig", "-b", pair.ours.broker, "-v", "/tmp/elsewhere")
    for name, code in (("storePathRootDir", 16), ("fileReservedTime", 1)):
        begin = len(tool.lines)
        assert pair.at_ours("4.9.7", *change, "-k", name) == ""
        errors = [line for line in tool.lines[begin:] if f"CODE: {code}  DESC: {name}" in line]
        assert errors
