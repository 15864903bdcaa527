"""Streams, in a real Spark, of a real broker."""

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mq.protocol.bodies import MessageQueue
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.filling import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(2 * PATIENCE)

Seen = list[tuple[int, list[bytes]]]


def start(
    spark: "SparkSession", broker: RunningBroker, checkpoint: str, seen: Seen, **options: str
) -> "StreamingQuery":
    """A query that notes the bodies of each batch; with `now` one that ends when it has all."""
    now = options.pop("now", None)
    reader = spark.readStream.format("rocketmq").schema("body binary, queueId int")
    frame = reader.option("nameServer", broker.name_server).options(**options).load()

    def note(batch: "DataFrame", number: int) -> None:
        seen.append((number, sorted(bytes(row.body) for row in batch.collect())))

    writer = frame.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if now else writer).start()


def until(query: "StreamingQuery", condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait for a query's work. Spark has no event for a batch that Python could wait for."""
    end = time.monotonic() + seconds
    while not condition():
        failure = query.exception()
        assert failure is None, failure
        assert time.monotonic() < end, query.recentProgress
        time.sleep(0.05)


def bodies(seen: Seen) -> list[bytes]:
    return sorted(body for _, batch in seen for body in batch)


def test_available_now_reads_all_in_batches_of_the_limit_and_ends(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, checkpoint: str
) -> None:
    sent = [b"%02d" % n for n in range(25)]
    fill(mq_session_broker.name_server, mq_topic, sent, MessageQueue(mq_topic, "broker-a", 0))
    options = {"topic": mq_topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    first: Seen = []
    query = start(spark, mq_session_broker, checkpoint, first, now="yes", **options)
    assert query.awaitTermination(PATIENCE)
    assert [len(batch) for _, batch in first] == [10, 10, 5]
    assert bodies(first) == sent

    mq_session_broker.send(mq_topic, b"later")
    second: Seen = []
    query = start(spark, mq_session_broker, checkpoint, second, now="yes", **options)
    assert query.awaitTermination(PATIENCE)
    assert bodies(second) == [b"later"]


def test_a_query_from_latest_gets_what_comes_and_queues_that_appear(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, checkpoint: str
) -> None:
    mq_session_broker.create_topic(mq_topic, 1)
    mq_session_broker.send(mq_topic, b"before")
    seen: Seen = []
    query = start(spark, mq_session_broker, checkpoint, seen, topic=mq_topic)
    try:
        until(query, lambda: seen)
        assert seen == [(0, [])]  # it only writes down where the query began
        mq_session_broker.send(mq_topic, b"first")
        until(query, lambda: bodies(seen) == [b"first"])
        mq_session_broker.create_topic(mq_topic, 3)
        for queue_id in range(3):
            queue = MessageQueue(mq_topic, "broker-a", queue_id)
            fill(mq_session_broker.name_server, mq_topic, [b"queue %d" % queue_id], queue)
        until(query, lambda: len(bodies(seen)) == 4)
    finally:
        query.stop()
    assert bodies(seen) == [b"first", b"queue 0", b"queue 1", b"queue 2"]
    source = query.recentProgress[-1]["sources"][0]
    offsets = {mq_topic: {"broker-a": {"0": 3, "1": 1, "2": 1}}}
    assert json.loads(source["endOffset"]) == json.loads(source["latestOffset"]) == offsets


def test_a_restarted_query_goes_on_where_it_ended_and_tells_a_group(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, checkpoint: str
) -> None:
    options = {"topic": mq_topic, "group": f"G{mq_topic}", "commitOffsets": "group"}
    seen: Seen = []
    query = start(spark, mq_session_broker, checkpoint, seen, **options)
    until(query, lambda: seen)
    query.stop()
    for body in (b"while", b"it", b"was", b"away"):
        mq_session_broker.send(mq_topic, body)
    query = start(spark, mq_session_broker, checkpoint, seen, now="yes", **options)
    assert query.awaitTermination(PATIENCE)
    assert bodies(seen) == [b"away", b"it", b"was", b"while"]
    # Spark tells of a batch when the next one is made: the group may be one batch behind.
    fill(mq_session_broker.name_server, mq_topic, [b"more"])
    query = start(spark, mq_session_broker, checkpoint, seen, now="yes", **options)
    assert query.awaitTermination(PATIENCE)
    assert mq_session_broker.lag(f"G{mq_topic}", mq_topic) <= 1


def test_a_topic_made_anew_is_a_loss_unless_that_is_allowed(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, checkpoint: str
) -> None:
    mq_session_broker.create_topic(mq_topic, 1)
    beyond = json.dumps({mq_topic: {"broker-a": {"0": 5}}})
    fill(mq_session_broker.name_server, mq_topic, [b"%d" % n for n in range(5)])
    seen: Seen = []
    options = {"topic": mq_topic, "startingOffsets": beyond}
    query = start(spark, mq_session_broker, checkpoint, seen, now="yes", **options)
    assert query.awaitTermination(PATIENCE)

    other = f"{mq_topic}-anew"
    mq_session_broker.create_topic(other, 1)
    fill(mq_session_broker.name_server, other, [b"new"])
    rename_in_checkpoint(checkpoint, mq_topic, other)
    options = {"topic": other, "now": "yes"}
    query = start(spark, mq_session_broker, checkpoint, seen, **options)
    with pytest.raises(Exception, match="messages from offset 5 to 1 are gone"):
        query.awaitTermination(PATIENCE)
    query = start(spark, mq_session_broker, checkpoint, seen, failOnDataLoss="false", **options)
    assert query.awaitTermination(PATIENCE)
    assert bodies(seen) == [b"new"]


def rename_in_checkpoint(checkpoint: str, old: str, new: str) -> None:
    """As if the topic that the query knows had been deleted, and made again with fewer messages."""
    from pathlib import Path

    for file in Path(checkpoint, "offsets").iterdir():
        if not file.name.startswith("."):
            file.write_text(file.read_text().replace(old, new))
    for checksum in Path(checkpoint, "offsets").glob(".*.crc"):
        checksum.unlink()
