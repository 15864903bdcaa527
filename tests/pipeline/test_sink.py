"""Writes of tables and streams, in a real Spark, to a real broker."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE, require_streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def table(spark: "SparkSession", rows: int, partitions: int = 2) -> "DataFrame":
    frame = spark.range(0, rows, 1, partitions)
    return frame.selectExpr("cast(id as string) as body", "concat('k', id % 7) as keys")


def numbers(broker: RunningBroker, topic: str) -> list[int]:
    return sorted(int(message.body) for message in broker.messages(topic))


@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_each_row_is_a_message(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, exactly_once: str
) -> None:
    options = {"nameServer": mq_session_broker.name_server, "topic": mq_topic}
    writer = table(spark, 2000).write.format("rocketmq").mode("append").options(**options)
    writer.option("exactlyOnce", exactly_once).save()
    assert numbers(mq_session_broker, mq_topic) == list(range(2000))
    read = spark.read.format("rocketmq").options(**options).load()
    assert read.where("keys = 'k3'").count() == len(range(3, 2000, 7))


@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_a_stream_is_copied_to_another_topic(
    spark: "SparkSession",
    mq_session_broker: RunningBroker,
    mq_topic: str,
    checkpoint: str,
    exactly_once: str,
) -> None:
    require_streams()
    options = {"nameServer": mq_session_broker.name_server, "topic": mq_topic}
    table(spark, 500).write.format("rocketmq").mode("append").options(**options).save()
    copy = f"{mq_topic}-copy"
    stream = spark.readStream.format("rocketmq").options(**options)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "300")
    frame = stream.option("includeProperties", "true").load().select("body", "properties")
    writer = frame.writeStream.format("rocketmq").option("checkpointLocation", checkpoint)
    writer = writer.options(**{**options, "topic": copy, "exactlyOnce": exactly_once})
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)
    assert numbers(mq_session_broker, copy) == list(range(500))
    keys = {int(m.body): m.keys for m in mq_session_broker.messages(copy)}
    assert keys[10] == ("k3",)
    if exactly_once == "true":  # the decisions name their query
        log = mq_session_broker.messages("mq-spark-commits")
        decisions = [json.loads(each.body) for each in log if (each.tags or "").startswith("D")]
        writers = [each["writer"] for each in decisions if each["query"] == query.id]
        assert writers == [{"topic": copy, "checkpoint": checkpoint}] * 2


@pytest.mark.parametrize("exactly_once", ["false", "true"])
def test_a_stream_of_files_is_written_to_a_topic(
    spark: "SparkSession",
    mq_session_broker: RunningBroker,
    mq_topic: str,
    checkpoint: str,
    tmp_path: Path,
    exactly_once: str,
) -> None:
    """With every type of a message's columns: Spark 4.0 passes rows to writers of streams."""
    kinds = "body binary, keys array<string>, properties map<string,string>, deliverAt timestamp"
    kinds = kinds.removesuffix(", deliverAt timestamp") if exactly_once == "true" else kinds
    files = tmp_path / "files"
    frame = table(spark, 500).selectExpr(
        "cast(body as binary) body",
        "array(keys, 'all') keys",
        "map('n', body) properties",
        *(["timestamp'2020-01-01 00:00:00' deliverAt"] if exactly_once == "false" else []),
    )
    frame.write.parquet(str(files))
    stream = spark.readStream.schema(kinds).option("maxFilesPerTrigger", "1").parquet(str(files))
    writer = stream.writeStream.format("rocketmq").option("checkpointLocation", checkpoint)
    writer = writer.option("nameServer", mq_session_broker.name_server).option("topic", mq_topic)
    query = writer.option("exactlyOnce", exactly_once).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE)
    mq_session_broker.wait_for_messages(mq_topic, 500)
    assert numbers(mq_session_broker, mq_topic) == list(range(500))
    found = {int(each.body): each for each in mq_session_broker.messages(mq_topic)}
    assert found[10].keys == ("k3", "all") and found[10].properties["n"] == "10"


def test_a_failed_exactly_once_write_leaves_nothing(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic)
    frame = table(spark, 100).selectExpr("if(body = '99', null, body) as body", "keys")
    writer = frame.write.format("rocketmq").mode("append").option("topic", mq_topic)
    writer = writer.option("nameServer", mq_session_broker.name_server)
    with pytest.raises(Exception, match="the body of a row is null or empty"):
        writer.option("exactlyOnce", "true").save()
    assert mq_session_broker.messages(mq_topic) == []


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id as body", {}, "column body cannot be bigint; it is binary or string"),
        ("'x' as body, 1 as nonsense", {}, "a message has no column nonsense to write"),
        ("'x' as body", {"topc": "x"}, "option topc: there is none; did you mean topic?"),
        ("'x' as body", {"nameServer": "127.0.0.1:1"}, "option nameServer: 127.0.0.1:1"),
        ("'x' as body", {"mode": "overwrite"}, "a topic cannot be overwritten, only appended to"),
        ("'x' as body", {"topic": ""}, "option topic: The specified topic is blank"),
    ],
)
def test_a_mistake_is_reported_before_any_task_starts(
    spark: "SparkSession",
    mq_session_broker: RunningBroker,
    columns: str,
    options: dict[str, str],
    message: str,
) -> None:
    group = f"mistake-{message}"
    spark.sparkContext.setJobGroup(group, group)
    given = {"nameServer": mq_session_broker.name_server, "topic": "T", "mode": "append", **options}
    frame = spark.range(3).selectExpr(*columns.split(", "))
    writer = frame.write.format("rocketmq").mode(given.pop("mode"))
    with pytest.raises(Exception) as raised:
        writer.options(**given).save()
    assert message in str(raised.value)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(group) == []


def test_a_stream_reports_a_mistake_when_it_starts(
    spark: "SparkSession", mq_session_broker: RunningBroker, checkpoint: str
) -> None:
    frame = spark.readStream.format("rate").load().selectExpr("cast(value as string) as body")
    writer = frame.writeStream.format("rocketmq").option("topic", "T")
    writer = writer.option("nameServer", mq_session_broker.name_server)
    writer = writer.option("checkpointLocation", checkpoint).option("exactlyOnce", "perhaps")
    query = writer.start()
    with pytest.raises(Exception, match="option exactlyOnce: 'perhaps' is neither"):
        query.awaitTermination(PATIENCE)
