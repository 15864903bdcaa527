"""The plain text of commands for brokers and of those that send is that of the Java mqadmin."""

import re

import pytest

from tests.interop.tools import BROKER, TOPIC, Cluster

pytestmark = pytest.mark.java

CHANGE = ("updateBrokerConfig", "-k", "flushIntervalCommitLog", "-v", "700")
QUEUE = ("printMsgByQueue", "-t", TOPIC, "-a", BROKER, "-i", "1")
SAME = [
    ("cleanExpiredCQ",),
    ("cleanExpiredCQ", "-c", "DefaultCluster"),
    ("cleanUnusedTopic",),
    ("cleanUnusedTopic", "-c", "DefaultCluster"),
    ("deleteExpiredCommitLog",),
    ("deleteExpiredCommitLog", "-c", "DefaultCluster"),
    (*CHANGE, "-c", "DefaultCluster"),
    (*QUEUE, "-p", "true"),
    (*QUEUE, "-p", "true", "-d", "true", "-c", "GBK", "-s", "TagA"),
    (*QUEUE, "-f", "true"),
    (*QUEUE, "-f", "true", "-p", "true", "-b", "1000", "-e", "2026-01-01#00:00:00:000"),
]


@pytest.mark.parametrize("arguments", SAME, ids=" ".join)
def test_a_command_prints_what_java_prints(both_tools: Cluster, arguments: tuple[str, ...]) -> None:
    both_tools.assert_same(*arguments, nonempty="-e" not in arguments)


def test_what_is_asked_of_one_broker_is_what_java_prints(both_tools: Cluster) -> None:
    where = ("-b", both_tools.broker)
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        both_tools.assert_same(command, *where)
    both_tools.assert_same(*CHANGE, *where)
    lag = both_tools.assert_same("brokerConsumeStats", *where)
    assert re.search(rf"^{TOPIC} .* 3 +3 +0 +\d{{4}}-", lag, re.M)
    both_tools.assert_same("brokerConsumeStats", *where, "-l", "5", "-o", "true", "-t", "9000")


MEASURED = (
    re.compile(r"(?<=rt=)\d+(?=ms)"),
    re.compile(r"(?<=true                    )\d+$", re.M),
    re.compile(r"(?<=Avg RT: )\d+\.\d\d"),
    re.compile(r"\b[0-9A-F]{32}\b|\b[0-9A-F]{56}\b"),
    re.compile(r"(?<=queueOffset=)\d+"),
    re.compile(r"(?<=queueId=)\d+"),
)


def measured(text: str) -> str:
    for pattern in MEASURED:
        text = pattern.sub("<measured>", text)
    return text


@pytest.mark.parametrize(
    "arguments",
    [
        ("sendMsgStatus", "-b", BROKER, "-c", "3", "-s", "30"),
        ("checkMsgSendRT", "-t", "ProbedCommandTopic", "-a", "5", "-s", "10"),
        ("checkMsgSendRT", "-t", "ProbedCommandTopic", "-a", "1"),
    ],
    ids=" ".join,
)
def test_measured_sends_print_what_java_prints_but_for_times(
    both_tools: Cluster, arguments: tuple[str, ...]
) -> None:
    made = both_tools.ours("updateTopic", "-c", "DefaultCluster", "-t", "ProbedCommandTopic")
    assert made.status == 0
    java, ours = both_tools.theirs(*arguments), both_tools.ours(*arguments)
    assert (ours.status, ours.err) == (0, "")
    assert measured(ours.out) == measured(java) != java


def test_traces_of_producers_and_consumers_print_what_java_prints(both_tools: Cluster) -> None:
    sent = both_tools.ours("sendMessage", "-t", TOPIC, "-p", "x", "-m", "true", "-o", "json")
    message_id = sent.json["data"][0]["messageId"]
    arguments = ("queryMsgTraceById", "-i", message_id)
    for _ in range(100):  # a broker indexes just after it has stored
        if both_tools.ours(*arguments).status == 0:
            break
    assert "Pub " in both_tools.assert_same(*arguments)
