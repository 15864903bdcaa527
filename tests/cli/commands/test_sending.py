import json
import re
import signal
import subprocess
import sys

import pytest

from tests.cli.support import Mq


def make(cluster: Mq, topic: str) -> None:
    made = cluster("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "2", "-w", "2")
    assert made.status == 0


def test_sends_to_a_broker_are_timed_one_by_one(cluster: Mq) -> None:
    shown = cluster("sendMsgStatus", "-b", "broker-a", "-c", "2", "-s", "30")
    assert (shown.status, shown.err) == (0, "")
    assert re.fullmatch(
        r"(rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, msgId=[0-9A-F]{32}, "
        r"offsetMsgId=[0-9A-F]{32}, messageQueue=MessageQueue \[topic=broker-a, "
        r"brokerName=broker-a, queueId=0\], queueOffset=\d+\]\n){2}",
        shown.out,
    )
    lines = cluster("sendMsgStatus", "-b", "broker-a", "-c", "1", "-o", "json").out.splitlines()
    (row,) = json.loads(lines[0])["data"]
    assert (row["topic"], row["sendStatus"]) == ("broker-a", "SEND_OK")
    assert row["roundTripMillis"] >= 0


def test_a_topic_s_queues_are_probed_in_turn(cluster: Mq) -> None:
    make(cluster, "Probed")
    shown = cluster("checkMsgSendRT", "-t", "Probed", "-a", "3", "-s", "10")
    assert shown.status == 0
    heads, *lines, average = shown.out.splitlines()
    assert heads.split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#RT"]
    assert [line.split()[:3] for line in lines] == [
        ["broker-a", "0", "true"],
        ["broker-a", "1", "true"],
        ["broker-a", "0", "true"],
    ]
    assert re.fullmatch(r"Avg RT: \d+\.\d\d", average)
    one = cluster("checkMsgSendRT", "-t", "Probed", "-a", "1")
    assert one.out.endswith("Avg RT: NaN\n")  # as Java's mean of no times
    documents = cluster("checkMsgSendRT", "-t", "Probed", "-a", "1", "-o", "json").out.splitlines()
    assert json.loads(documents[0])["data"][0]["sent"] is True


def test_a_send_that_fails_is_reported_and_the_status_says_so(cluster: Mq) -> None:
    make(cluster, "Refusing")
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Refusing", "-p", "6")
    shown = cluster("checkMsgSendRT", "-t", "Refusing", "-a", "2", "-s", str(5 << 20))
    assert shown.status == 1
    assert [line.split()[2] for line in shown.out.splitlines()[1:3]] == ["false", "false"]
    assert shown.err.count("mq checkMsgSendRT: ") == 2


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("sendMsgStatus", "-b", "broker-a", "-c", "0"), 64),
        (("sendMsgStatus", "-b", "broker-a", "-s", "0"), 64),
        (("checkMsgSendRT", "-t", "Probed", "-a", "0"), 64),
        (("checkMsgSendRT", "-t", "NoSuchTopicAnywhere/", "-a", "1"), 64),
        (("clusterRT", "-a", "0"), 64),
        (("clusterRT", "-i", "-1"), 64),
        (("clusterRT", "-c", "Nowhere"), 66),
    ],
)
def test_what_cannot_be_sent_is_refused(
    arguments: tuple[str, ...], status: int, cluster: Mq
) -> None:
    finished = cluster(*arguments)
    assert (finished.status, finished.out) == (status, "")


@pytest.mark.parametrize("log", [False, True])
def test_every_broker_is_probed_again_and_again_until_ctrl_c(log: bool, cluster: Mq) -> None:
    options = ("-p", "true", "-m", "room 1") if log else ()
    command = [sys.executable, "-m", "mq", "clusterRT", "-a", "2", "-i", "0", *options]
    with subprocess.Popen(
        command,
        env={"PATH": "", **cluster.variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr.read() == ""
    assert process.returncode == 0
    if log:
        line = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\|room 1\|DefaultCluster\|broker-a\|\d+\n"
    else:
        heads = lines.pop(0)
        assert heads.split() == "#Cluster Name #Broker Name #RT #successCount #failCount".split()
        line = r"DefaultCluster {12}broker-a {18}\d+\.\d\d +2 {17}0 {15}\n"
    assert all(re.fullmatch(line, text) for text in lines)
