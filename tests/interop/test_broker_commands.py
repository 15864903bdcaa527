"""The commands for brokers and for sends print the same plain text as the Java mqadmin."""

import re
from pathlib import Path

import pytest

from tests.interop.tools import BROKER, TOPIC, Cluster, once

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


def test_a_query_of_one_broker_prints_what_java_prints(both_tools: Cluster) -> None:
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
def test_measured_sends_print_what_java_prints_except_for_times(
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
    once(lambda: both_tools.ours(*arguments).status == 0)  # it indexes shortly after it has stored
    assert "Pub " in both_tools.assert_same(*arguments)


COLD = [
    ("getColdDataFlowCtrInfo",),
    ("updateColdDataFlowCtrGroupConfig", "-g", "ColdGroup", "-v", "1000"),
    ("getColdDataFlowCtrInfo",),
    ("setCommitLogReadAheadMode", "-m", "1"),
    ("setCommitLogReadAheadMode", "-m", "0"),
    ("removeColdDataFlowCtrGroupConfig", "-g", "ColdGroup"),
    ("haStatus",),
]


def test_reads_of_cold_data_are_limited_as_by_java(both_tools: Cluster) -> None:
    for command in COLD:
        for where in (("-b", both_tools.broker), ("-c", "DefaultCluster")):
            ours_too = both_tools.release == "ours" and command == ("haStatus",)
            if both_tools.release == "5.5.0" or ours_too:
                both_tools.assert_same(*command, *where, tool=both_tools.java_5)
                continue
            refused = both_tools.ours(*command, *where)
            assert (refused.status, refused.out) == (69, "")
            assert f"the broker is older than RocketMQ 5, which {command[0]} needs" in refused.err


def test_a_log_file_is_printed_as_by_java(both_tools: Cluster, tmp_path: Path) -> None:
    if both_tools.release == "ours":
        pytest.skip("its store is in a process of its own")
    (store,) = both_tools.home.glob("broker-*/store/commitlog")
    content = next(iter(sorted(store.iterdir()))).read_bytes()[: 64 * 1024]
    end = 0
    while (size := int.from_bytes(content[end : end + 4], "big")) and end + size <= len(content):
        end += size
    file = tmp_path / "log"
    file.write_bytes(content[:end])
    shown = both_tools.ours("dumpCompactionLog", "-f", str(file))
    assert (shown.status, shown.err) == (0, "")
    assert shown.out == both_tools.java_5("dumpCompactionLog", "-f", str(file)) != ""
