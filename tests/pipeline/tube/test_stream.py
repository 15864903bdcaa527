"""Streams, in a real Spark, of a real broker."""

import json
from typing import TYPE_CHECKING

import pytest

from mq.pipeline.progress import lag_by_queue
from mq.testing import RunningTube
from tests.pipeline.conftest import PATIENCE, require_streams
from tests.pipeline.tube.conftest import TubeTopic

require_streams()

from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402
from pyspark.sql.types import StructType  # noqa: E402

from mq.pipeline.tube.options import parse_tube_options  # noqa: E402
from mq.pipeline.tube.stream import TubeStreamReader  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(2 * PATIENCE)

Seen = list[tuple[int, list[bytes]]]


def start(
    spark: "SparkSession",
    topic: TubeTopic,
    checkpoint: str,
    seen: Seen,
    options: dict[str, str],
    *,
    fails: bool = False,
) -> "StreamingQuery":
    """Start a query that records the bodies of each batch; it ends when it has all, or `fails` at
    one.
    """
    reader = spark.readStream.format("tubemq").schema("body binary")
    frame = reader.options(**{**topic.options, **options}).load()

    def note(batch: "DataFrame", number: int) -> None:
        seen.append((number, sorted(bytes(row.body) for row in batch.collect())))
        if fails:
            raise RuntimeError("the sink has failed")

    writer = frame.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def bodies(seen: Seen) -> list[bytes]:
    return sorted(body for _, batch in seen for body in batch)


def test_batches_obey_the_limit_and_a_failed_one_is_repeated_unchanged(
    spark: "SparkSession", topic: TubeTopic, checkpoint: str
) -> None:
    sent = [b"%02d" % n for n in range(25)]
    topic.send(*sent)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    seen: Seen = []
    query = start(spark, topic, checkpoint, seen, options, fails=True)
    with pytest.raises(Exception, match="the sink has failed"):
        query.awaitTermination(PATIENCE)
    (failed,) = seen
    topic.send(b"later")
    again: Seen = []
    query = start(spark, topic, checkpoint, again, options)
    assert query.awaitTermination(PATIENCE)
    assert again[0] == failed
    assert bodies(again) == [*sent, b"later"]
    assert all(len(batch) <= 10 for _, batch in again)
    progress = query.recentProgress[-1]
    assert json.loads(progress["sources"][0]["endOffset"]) == {
        f"1:{topic.name}:{number}": 26 * 28 for number in (0, 1)
    }
    assert set(lag_by_queue(progress).values()) == {0}


def test_a_stream_from_latest_gets_new_messages_and_new_partitions(
    tube_of_session: RunningTube, topic: TubeTopic
) -> None:
    """Asked as by Spark, but without it: the tests of RocketMQ cover what Spark does with the
    results.
    """
    more = TubeTopic(tube_of_session, f"{topic.name}_more")
    tube_of_session.create_topic(more.name, 1)
    first = topic.send(b"before")
    both = {**topic.options, "topic": f"{topic.name},{more.name}"}
    reader = TubeStreamReader(parse_tube_options(both), StructType().add("body", "binary"))
    limit = ReadAllAvailable()
    try:
        begin = reader.initialOffset()
        assert begin[first[0][0]] == 28
        assert reader.latestOffset(begin, limit) == begin  # the first batch, which is empty
        assert reader.partitions(begin, begin) == []
        del begin[f"1:{more.name}:0"]  # as if it had been created later
        topic.send(b"a", b"b")
        more.send(b"new")
        end = wait_for(reader, begin, f"1:{more.name}:0", 28)
        read = [
            bytes(row["body"])
            for part in reader.partitions(begin, end)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]
        assert sorted(read) == [b"a", b"b", b"new"]
    finally:
        reader.stop()


def wait_for(reader: TubeStreamReader, begin: dict[str, int], key: str, end: int) -> dict[str, int]:
    """Ask repeatedly: a recent result is reused for a moment."""
    while True:
        found = reader.latestOffset(begin, ReadAllAvailable())
        if found.get(key) == end:
            return found
