"""Batch reads, in a real Spark, of a real broker."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mq.protocol.bodies import MessageQueue
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.filling import fill
from tests.pipeline.loading import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def bodies(frame: "DataFrame") -> list[bytes]:
    return sorted(bytes(row.body) for row in frame.select("body").collect())


def test_every_message_of_a_topic_is_a_row(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    large = b"large " * 2000
    sent = mq_session_broker.send(
        mq_topic, b"small", tags="A", keys=("k1", "k2"), properties={"of": "mine"}
    )
    mq_session_broker.send(mq_topic, large)
    frame = load(spark, mq_session_broker, topic=mq_topic, includeProperties="true")
    assert frame.columns == [
        *("topic", "flag", "body", "properties", "tags", "keys", "brokerName", "queueId"),
        *("queueOffset", "bornTimestamp", "storeTimestamp", "bornHost", "msgId"),
    ]
    (row,) = frame.where("tags = 'A'").collect()
    assert (row.topic, row.body, row["keys"]) == (mq_topic, b"small", "k1 k2")
    assert row.properties["of"] == "mine"
    assert (row.queueId, row.queueOffset) == (sent.queue.queue_id, sent.queue_offset)
    assert row.msgId == sent.message_id
    assert bodies(frame) == [large, b"small"]
    assert frame.count() == 2


def test_a_schema_and_offsets_select_columns_and_messages(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    queue = MessageQueue(mq_topic, "broker-a", 1)
    fill(mq_session_broker.name_server, mq_topic, [b"%02d" % n for n in range(50)], queue)
    frame = load(
        spark,
        mq_session_broker,
        topic=mq_topic,
        schema="queueOffset bigint, body binary",
        STARTINGOFFSETS=json.dumps({mq_topic: {"broker-a": {"1": 10}}}),
        endingOffsets=json.dumps({mq_topic: {"broker-a": {"1": 40}}}),
        minPartitions="3",
    )
    assert frame.rdd.getNumPartitions() == 3
    assert [tuple(row) for row in frame.orderBy("queueOffset").collect()] == [
        (n, b"%02d" % n) for n in range(10, 40)
    ]


def test_tags_and_sql_are_filtered_at_the_broker(spark: "SparkSession", tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"enablePropertyFilter": "true"}) as broker:
        for n in range(6):
            broker.send("T", b"%d" % n, tags="ABC"[n % 3], properties={"n": str(n)})
        assert bodies(load(spark, broker, topic="T", subExpression="A || C")) == [
            *(b"0", b"2", b"3", b"5")
        ]
        frame = load(spark, broker, topic="T", subExpression="n > 3", subExpressionType="sql92")
        assert bodies(frame) == [b"4", b"5"]


def test_topics_are_selected_by_a_list_or_a_pattern(spark: "SparkSession", tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store") as broker:
        for topic in ("Orders-eu", "Orders-us", "Refunds"):
            broker.send(topic, topic.encode())
        assert bodies(load(spark, broker, topicPattern="Orders-.*")) == [b"Orders-eu", b"Orders-us"]
        assert bodies(load(spark, broker, topic="Refunds, Orders-us")) == [b"Orders-us", b"Refunds"]
        assert bodies(load(spark, broker, topicPattern="Nothing")) == []


def test_times_limit_the_messages_read(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    for body in (b"early", b"middle", b"late"):
        mq_session_broker.send(mq_topic, body)
    stored = [m.store_timestamp for m in mq_session_broker.messages(mq_topic)]
    assert bodies(
        load(
            spark,
            mq_session_broker,
            topic=mq_topic,
            startingTimestamp=str(stored[0]),
            endingTimestamp=str(stored[-1] + 1),
        )
    ) == [b"early", b"late", b"middle"]
    assert bodies(load(spark, mq_session_broker, topic=mq_topic, endingTimestamp="1")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "NoSuchTopic"}, "option topic: topic NoSuchTopic: no name server knows it"),
        ({"topic": "T", "startingOffsets": "{oops"}, "option startingOffsets: neither earliest"),
        ({"topic": "T", "numRetry": "1"}, "did you mean numRetries?"),
        ({"topic": "T", "nameServer": "127.0.0.1:1"}, "option nameServer: 127.0.0.1:1: "),
        (
            {"topic": "T", "endingOffsets": '{"T": {"broker-a": {"0": 77}}}'},
            "option endingOffsets: 77 is beyond the end of queue 0 of topic T",
        ),
        (
            {"topic": "T", "startingOffsets": '{"T": {"broker-a": {"9": 0}}}'},
            "option startingOffsets: there is no queue 9 of topic T at broker broker-a",
        ),
        ({"topic": "T", "schema": "value string"}, "there is no column value"),
    ],
)
def test_a_mistake_is_reported_before_any_task_starts(
    spark: "SparkSession",
    mq_session_broker: RunningBroker,
    options: dict[str, str],
    message: str,
) -> None:
    mq_session_broker.create_topic("T", 2)
    group = f"mistake-{message}"
    spark.sparkContext.setJobGroup(group, group)
    with pytest.raises(Exception) as raised:
        load(spark, mq_session_broker, **options).collect()
    assert message in str(raised.value)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(group) == []


@pytest.mark.skipif(importable("pyspark.sql.streaming.datasource"), reason="it reads streams")
def test_a_stream_is_refused_in_one_line_by_a_spark_that_cannot_read_it(
    spark: "SparkSession", mq_session_broker: RunningBroker, checkpoint: str
) -> None:
    stream = spark.readStream.format("rocketmq").option("topic", "T")
    frame = stream.option("nameServer", mq_session_broker.name_server).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    with pytest.raises(
        Exception, match=r"readStream needs Spark 4.2 or later, and this is 4\.[01]"
    ):
        query.awaitTermination(PATIENCE)
