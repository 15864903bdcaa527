"""Each command's plain text is that of the Java mqadmin 4.9.7 for the same state.

The Java tool and ours run one after the other on the same cluster: a Java one of each release, and
ours. Masked are durations, current rates, and the ids of messages that each tool sends.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from tests.cli.support import Finished
from tests.interop.tools import BROKER, GROUP, TOPIC, Cluster, once

pytestmark = pytest.mark.java

ORDERED = "OrderedCommandTopic"


@pytest.fixture
def cluster(both_tools: Cluster) -> Cluster:
    return both_tools


READS = [
    ("topicList",),
    ("topicList", "-c"),
    ("topicRoute", "-t", TOPIC),
    ("topicRoute", "-t", TOPIC, "-l"),
    ("topicStatus", "-t", TOPIC),
    ("topicClusterList", "-t", TOPIC),
    ("clusterList",),
    ("clusterList", "-m"),
    ("brokerStatus", "-c", "DefaultCluster"),
    ("getBrokerConfig", "-c", "DefaultCluster"),
    ("consumerProgress",),
    ("consumerProgress", "-g", GROUP),
    ("consumerProgress", "-g", GROUP, "-s", "true"),
    ("queryMsgByKey", "-t", TOPIC, "-k", "key3"),
    ("queryMsgByKey", "-t", TOPIC, "-k", "every"),
    ("queryMsgByOffset", "-t", TOPIC, "-b", BROKER, "-i", "1", "-o", "1"),
    ("printMsg", "-t", TOPIC),
    ("printMsg", "-t", TOPIC, "-s", "TagA", "-d", "false"),
    ("printMsg", "-t", TOPIC, "-s", "NoSuchTag"),
    ("printMsg", "-t", TOPIC, "-b", "1000", "-e", "2026-01-01#00:00:00:000", "-c", "GBK"),
    ("consumeMessage", "-t", TOPIC),
    ("consumeMessage", "-t", TOPIC, "-c", "2"),
    ("consumeMessage", "-t", TOPIC, "-b", BROKER, "-i", "1"),
    ("consumeMessage", "-t", TOPIC, "-b", BROKER, "-i", "1", "-o", "2", "-g", GROUP),
    ("consumeMessage", "-t", TOPIC, "-b", BROKER, "-i", "1", "-o", "99"),
    ("consumeMessage", "-t", TOPIC, "-b", BROKER, "-i", "0", "-c", "1"),
]


@pytest.mark.parametrize("arguments", READS, ids=" ".join)
def test_a_read_prints_what_java_prints(cluster: Cluster, arguments: tuple[str, ...]) -> None:
    cluster.assert_same(*arguments)


def test_a_query_of_one_broker_prints_what_java_prints(cluster: Cluster) -> None:
    cluster.assert_same("brokerStatus", "-b", cluster.broker)
    cluster.assert_same("getBrokerConfig", "-b", cluster.broker)


def test_lists_are_in_java_s_order_when_hash_buckets_are_shared(cluster: Cluster) -> None:
    for number in range(30):
        cluster.ours("updateTopic", "-b", cluster.broker, "-t", f"Many-{number * 7919}")
    listed = cluster.assert_same("topicList").splitlines()
    assert {f"Many-{number * 7919}" for number in range(30)} <= set(listed)
    assert listed != sorted(listed)


def test_a_message_is_found_by_both_its_ids(cluster: Cluster) -> None:
    found = cluster.ours("queryMsgByKey", "-t", TOPIC, "-k", "key4", "-o", "json").json["data"]
    (message,) = found
    by_offset_id = cluster.assert_same("queryMsgById", "-i", message["offsetId"])
    by_unique_id = cluster.assert_same(
        "queryMsgByUniqueKey", "-i", message["messageId"], "-t", TOPIC
    )
    assert f"Message Body Path:   /tmp/rocketmq/msgbodys/{message['messageId']}\n" in by_offset_id
    body = Path("/tmp/rocketmq/msgbodys", message["messageId"]).read_text()
    assert body == "Grüße 4"
    assert GROUP in by_unique_id
    two = f"{message['offsetId']},{message['offsetId']}"
    cluster.assert_same("queryMsgById", "-i", two)


WRITES = [
    ("updateTopic", "-c", "DefaultCluster", "-t", "Written", "-r", "3", "-w", "5", "-p", "4"),
    ("updateTopic", "-c", "DefaultCluster", "-t", "Written", "-u", "true", "-s", "true"),
    ("updateTopic", "-c", "DefaultCluster", "-t", ORDERED, "-o", "true"),
    ("updateSubGroup", "-c", "DefaultCluster", "-g", "Written"),
    ("updateSubGroup", "-c", "DefaultCluster", "-g", "Written", "-s", "false", "-m", "true",
     "-d", "true", "-q", "2", "-r", "3", "-i", "1", "-w", "2", "-a", "false"),
    ("deleteTopic", "-c", "DefaultCluster", "-t", "Written"),
    ("deleteTopic", "-c", "DefaultCluster", "-t", "NeverMade"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", WRITES, ids=" ".join)
def test_a_write_prints_what_java_prints(cluster: Cluster, arguments: tuple[str, ...]) -> None:
    cluster.assert_same(*arguments)


def test_a_write_to_one_broker_prints_what_java_prints(cluster: Cluster) -> None:
    cluster.assert_same("updateTopic", "-b", cluster.broker, "-t", "Written")
    cluster.assert_same("updateTopic", "-b", cluster.broker, "-t", ORDERED, "-o", "true")
    cluster.assert_same("updateSubGroup", "-b", cluster.broker, "-g", "Written")


def test_java_reads_what_we_write(cluster: Cluster) -> None:
    where = ("-c", "DefaultCluster", "-t", "Read")
    cluster.ours("updateTopic", *where, "-r", "3", "-w", "5", "-p", "4")
    java = cluster.theirs("topicRoute", "-t", "Read", "-l")
    assert re.search(BROKER + r" .* 3 +5 +4 +$", java, re.M)
    cluster.ours("updateTopic", "-c", "DefaultCluster", "-t", ORDERED, "-o", "true", "-w", "2")
    assert cluster.theirs("updateOrderConf", "-m", "get", "-t", ORDERED).endswith(
        f"orderConf=[{BROKER}:2] "
    )
    cluster.ours("deleteTopic", *where)
    assert "Read" not in cluster.theirs("topicList").split()


def test_options_added_in_release_5_reach_a_5_broker(cluster: Cluster) -> None:
    topic = ("updateTopic", "-c", "DefaultCluster", "-t", "Attributed", "-a", "+message.type=FIFO")
    assert cluster.ours(*topic).status == 0
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'
    group = ("updateSubGroup", "-c", "DefaultCluster", "-g", "Patient", "-o", "true", "-p", policy)
    assert cluster.ours(*group).status == 0
    if cluster.release == "5.5.0":  # a 4.9 broker ignores them
        with BlockingSession(cluster.namesrv) as session:
            admin = Admin(session)
            topics = run(admin.topic_configs(cluster.broker)).topic_config_table
            groups = run(admin.subscription_groups(cluster.broker)).subscription_group_table
        assert topics["Attributed"].attributes == {"message.type": "FIFO"}
        assert groups["Patient"].consume_message_orderly
        found = groups["Patient"].group_retry_policy
        assert found is not None and found.customized_retry_policy is not None
        assert found.customized_retry_policy.next == [1000, 5000]
    # The tool of 4.9.7 drops fields that it does not know: other tests compare all groups of this
    # cluster.
    delete = ("deleteSubGroup", "-c", "DefaultCluster", "-g", "Patient", "--yes")
    assert cluster.ours(*delete).status == 0
    delete = ("deleteTopic", "-c", "DefaultCluster", "-t", "Attributed", "--yes")
    assert cluster.ours(*delete).status == 0


def test_sends_print_what_java_prints_except_for_the_id(cluster: Cluster) -> None:
    cluster.ours("updateTopic", "-c", "DefaultCluster", "-t", "Sent")
    words = f"sendMessage -t Sent -p body -k a -c TagA -b {BROKER} -i 2"
    arguments = words.split()
    identity = re.compile(r"\b[0-9A-F]{32}\b|\b[0-9A-F]{56}\b")
    java, ours = cluster.theirs(*arguments), cluster.ours(*arguments)
    assert identity.sub("<id>", ours.out) == identity.sub("<id>", java)
    assert len(identity.findall(ours.out)) == 1
    # Java's broker adds them to queues after its response.
    mine, other = once(lambda: found if len(found := _sent_messages(cluster)) == 2 else [])
    assert mine.keys() == other.keys()
    for name in ("body", "keys", "tags", "sysFlag", "queueId", "bodyCrc"):
        assert mine[name] == other[name]


def _sent_messages(cluster: Cluster) -> list[dict[str, Any]]:
    pages = cluster.ours("printMsg", "-t", "Sent", "--output", "json").out.splitlines()
    return [message for page in pages for message in json.loads(page)["data"]]


def test_a_trace_that_we_write_is_read_by_java(cluster: Cluster) -> None:
    sent = cluster.ours(
        "sendMessage", "-t", TOPIC, "-p", "traced", "-k", "traced", "-m", "true", "-o", "json"
    )
    assert sent.status == 0, sent.err
    message_id = sent.json["data"][0]["messageId"]
    # A broker indexes shortly after it has stored.
    trace = once(lambda: cluster.theirs("queryMsgTraceById", "-i", message_id))
    head, line = trace.splitlines()[:2]
    assert head.split() == [
        "#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"
    ]  # fmt: skip
    assert line.startswith("Pub ")
    assert line.split()[-1] == "success"


def test_lines_are_produced_and_a_topic_is_copied_through_a_pipe(both_tools: Cluster) -> None:
    def ours(*arguments: str, piped: str) -> Finished:
        return both_tools.mq(*arguments, "-n", both_tools.namesrv, piped=piped)

    refused = ours("produce", "ProducedLines", piped="x\n")
    assert refused.status == 66  # Java's brokers would have created it
    lines = "".join(f"produced{number % 5}:{number}\n" for number in range(300))
    sent = ours("produce", "ProducedLines", "-K", ":", "-c", "TagP", "--create", piped=lines)
    assert (sent.status, sent.err) == (0, ""), sent.err

    def all_of(topic: str) -> str:
        """Return the lines of all messages once Java's broker has added them to queues, after its
        response.
        """

        def all_there() -> str:
            text = both_tools.ours("message", "export", topic, "-").out
            return text if text.count("\n") >= 300 else ""

        return once(all_there)

    exported = all_of("ProducedLines")
    found = [json.loads(line) for line in exported.splitlines()]
    by_key: dict[str, list[int]] = {}
    for line in sorted(found, key=lambda one: (one["queueId"], one["queueOffset"])):
        by_key.setdefault(line["properties"]["KEYS"], []).append(int(line["body"]))
    assert by_key == {f"produced{key}": list(range(key, 300, 5)) for key in range(5)}
    one = next(line for line in found if line["body"] == "7")
    java = both_tools.theirs("queryMsgByUniqueKey", "-t", "ProducedLines", "-i", one["messageId"])
    assert "TagP" in java
    assert "produced2" in java
    moved = ours("message", "import", "-", "-t", "ProducedAgain", "--create", piped=exported)
    assert moved.status == 0, moved.err
    again = all_of("ProducedAgain").splitlines()
    assert sorted(json.loads(line)["messageId"] for line in again) == sorted(
        line["messageId"] for line in found
    )
    delayed = ours("produce", "ProducedLines", "--delay", "95s", piped="later\n")
    if both_tools.release == "4.9.7":
        assert delayed.status == 64
        assert "would deliver it at once; its levels are 1s 5s 10s" in delayed.err
    else:
        assert delayed.status == 0, delayed.err
