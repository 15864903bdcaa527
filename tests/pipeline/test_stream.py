"""Streams, in a real Spark, of a real broker."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.pipeline.offsets import Nested
from mq.pipeline.progress import lag_by_queue
from mq.protocol.bodies import (
    BrokerData,
    MessageQueue,
    QueueData,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.testing import RunningBroker
from tests.client.scripted import scripted
from tests.pipeline.checkpoints import offsets_in
from tests.pipeline.conftest import PATIENCE, require_streams
from tests.pipeline.filling import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(2 * PATIENCE)

Seen = list[tuple[int, list[bytes]]]


def start(
    spark: "SparkSession", broker: RunningBroker, checkpoint: str, seen: Seen, **options: str
) -> "StreamingQuery":
    """Start a query that records the bodies of each batch; with `now` it ends when it has all."""
    now = options.pop("now", None)
    reader = spark.readStream.format("rocketmq").schema("body binary, queueId int")
    frame = reader.option("nameServer", broker.name_server).options(**options).load()

    def note(batch: "DataFrame", number: int) -> None:
        seen.append((number, sorted(bytes(row.body) for row in batch.collect())))

    writer = frame.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint)
    return (writer.trigger(availableNow=True) if now else writer).start()


def until(query: "StreamingQuery", condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait for the work of a query. Spark has no event for a batch that Python could await."""
    end = time.monotonic() + seconds
    while not condition():
        failure = query.exception()
        assert failure is None, failure
        assert time.monotonic() < end, query.recentProgress
        time.sleep(0.05)


def bodies(seen: Seen) -> list[bytes]:
    return sorted(body for _, batch in seen for body in batch)


def test_available_now_reads_everything_in_limited_batches_and_ends(
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


def test_a_query_from_latest_gets_new_messages_and_new_queues(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, checkpoint: str
) -> None:
    mq_session_broker.create_topic(mq_topic, 1)
    mq_session_broker.send(mq_topic, b"before")
    seen: Seen = []
    query = start(spark, mq_session_broker, checkpoint, seen, topic=mq_topic)
    try:
        until(query, lambda: seen)
        assert seen == [(0, [])]  # it only records where the query started
        mq_session_broker.send(mq_topic, b"first")
        until(query, lambda: bodies(seen) == [b"first"])
        mq_session_broker.create_topic(mq_topic, 3)
        for queue_id in range(3):
            queue = MessageQueue(mq_topic, "broker-a", queue_id)
            fill(mq_session_broker.name_server, mq_topic, [b"queue %d" % queue_id], queue)
        expected = {mq_topic: {"broker-a": {"0": 3, "1": 1, "2": 1}}}
        # Spark reports a batch after it has run.
        until(query, lambda: ended(query) == expected)
    finally:
        query.stop()
    assert bodies(seen) == [b"first", b"queue 0", b"queue 1", b"queue 2"]
    source = progress(query)
    assert source["endOffset"] == source["latestOffset"]
    assert nested(source["endOffset"]) == expected
    assert set(lag_by_queue(query.recentProgress[-1]).values()) == {0}


def ended(query: "StreamingQuery") -> Any:
    """Return the end of the last batch that Spark has reported, or None before the first."""
    return nested(progress(query)["endOffset"]) if query.recentProgress else None


def nested(checkpoint: str) -> Nested:
    return offsets_in(json.loads(checkpoint))


def progress(query: "StreamingQuery") -> Any:
    """Return Spark's last report about the source."""
    return query.recentProgress[-1]["sources"][0]


def test_a_restarted_query_continues_and_commits_offsets_of_a_group(
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
    # Spark reports a batch when the next one is planned: the group may lag by one batch.
    fill(mq_session_broker.name_server, mq_topic, [b"more"])
    query = start(spark, mq_session_broker, checkpoint, seen, now="yes", **options)
    assert query.awaitTermination(PATIENCE)
    assert mq_session_broker.lag(f"G{mq_topic}", mq_topic) <= 1


def test_a_recreated_topic_is_data_loss_unless_allowed(
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
    with pytest.raises(Exception, match="was deleted and created again"):
        query.awaitTermination(PATIENCE)
    query = start(spark, mq_session_broker, checkpoint, seen, failOnDataLoss="false", **options)
    assert query.awaitTermination(PATIENCE)
    assert bodies(seen) == [b"new"]


def test_a_batch_waits_for_enough_messages_or_the_maximum_delay(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    """Asked as by Spark, but without Spark, which does not report triggers that found too few
    messages.
    """
    require_streams()
    from pyspark.sql.streaming.datasource import ReadMinRows
    from pyspark.sql.types import StructType

    from mq.pipeline.options import parse_options
    from mq.pipeline.stream import StreamReader

    def reader(delay: str) -> StreamReader:
        options = {"topic": mq_topic, "minOffsetsPerTrigger": "5", "maxTriggerDelay": delay}
        options["nameServer"] = mq_session_broker.name_server
        return StreamReader(parse_options(options), StructType())

    mq_session_broker.create_topic(mq_topic, 1)
    patient, hasty = reader("1h"), reader("0ms")
    limit = patient.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    begin = patient.initialOffset()
    assert patient.latestOffset(begin, limit) == begin  # the first batch, which is empty
    fill(mq_session_broker.name_server, mq_topic, [b"%d" % n for n in range(4)])
    assert patient.latestOffset(begin, limit) == begin
    assert offsets_in(hasty.latestOffset(begin, limit)) == {mq_topic: {"broker-a": {"0": 4}}}
    fill(mq_session_broker.name_server, mq_topic, [b"4"])
    end = patient.latestOffset(begin, limit)
    assert offsets_in(end) == {mq_topic: {"broker-a": {"0": 5}}}
    fill(mq_session_broker.name_server, mq_topic, [b"5"])
    assert patient.latestOffset(end, limit) == end
    patient.prepareForTriggerAvailableNow()  # then it takes all available messages
    assert offsets_in(patient.latestOffset(end, limit)) == {mq_topic: {"broker-a": {"0": 6}}}


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_a_recreated_topic_is_data_loss_even_next_to_a_topic_with_many_messages(
    mq_session_broker: RunningBroker, mq_topic: str, name: str
) -> None:
    """The limit of a batch must not keep the topic's offset until the new topic has as many
    messages as the old one: the messages before it would be skipped without a report.
    """
    require_streams()
    from pyspark.sql.types import StructType

    from mq.pipeline.errors import DataLoss
    from mq.pipeline.options import parse_options
    from mq.pipeline.reading import Partition
    from mq.pipeline.stream import StreamReader

    def reader(**more: str) -> StreamReader:
        options = {"topic": f"{mq_topic},{other}", name: "10" if "max" in name else "90", **more}
        return StreamReader(
            parse_options({**options, "nameServer": mq_session_broker.name_server}), StructType()
        )

    other = f"{mq_topic}-other"
    for topic, count in ((mq_topic, 3), (other, 50)):
        mq_session_broker.create_topic(topic, 1)
        fill(mq_session_broker.name_server, topic, [b"%d" % n for n in range(count)])
    start = {mq_topic: {"broker-a": {"0": 5}}, other: {"broker-a": {"0": 0}}}
    strict, lenient = reader(), reader(failOnDataLoss="false")
    end = strict.latestOffset(start, strict.getDefaultReadLimit())
    assert end[mq_topic]["broker-a"]["0"] <= 3
    with pytest.raises(DataLoss, match="the messages from offset 5 to"):
        strict.partitions(start, end)
    read = [0, 0]  # of each topic
    for _ in range(10):
        end = lenient.latestOffset(start, lenient.getDefaultReadLimit())
        batch = 0
        for part in lenient.partitions(start, end):
            assert isinstance(part, Partition)
            for each in part.ranges:
                assert each.begin == read[each.topic == other]  # each message exactly once
                read[each.topic == other] = each.end
                batch += each.end - each.begin
        assert batch <= 10 or name == "minOffsetsPerTrigger"
        start = end
    assert read == [3, 50]


@pytest.mark.parametrize("limit", ["", "5"])
def test_the_offset_of_a_queue_stays_while_a_lagging_replica_replaces_its_master(
    limit: str,
) -> None:
    """The lagging replica must not count as a recreated queue: that would be data loss, permanent
    in the checkpoint, or with failOnDataLoss off, a second read of all messages.
    """
    require_streams()
    from pyspark.sql.types import StructType

    from mq.pipeline.options import parse_options
    from mq.pipeline.stream import StreamReader

    end = 9
    addresses: dict[int, str] = {}

    def stats(request: Command, channel: Channel) -> Command:
        table = TopicStatsTable()
        table.offset_table[MessageQueue("Orders", "broker-a", 0)] = TopicOffset(max_offset=end)
        return request.reply(0, None, table.encode())

    def route(request: Command, channel: Channel) -> Command:
        queues = QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=6)
        those = BrokerData(cluster="c", broker_name="broker-a", broker_addrs=addresses)
        body = TopicRouteData(queue_datas=[queues], broker_datas=[those]).encode()
        return request.reply(0, None, body)

    def latest(name_server: str, start: dict[str, Any]) -> object:
        options = {"nameServer": name_server, "topic": "Orders"}
        options |= {"maxOffsetsPerTrigger": limit} if limit else {}
        reader = StreamReader(parse_options(options), StructType())
        return reader.latestOffset(start, reader.getDefaultReadLimit())

    async def scenario() -> None:
        nonlocal end
        start = {"Orders": {"broker-a": {"0": 10}}}
        handlers: dict[int, Handler] = {RequestCode.GET_TOPIC_STATS_INFO: stats}
        names: dict[int, Handler] = {RequestCode.GET_ROUTEINFO_BY_TOPIC: route}
        async with scripted(handlers) as broker, scripted(names) as name_server:
            addresses[1] = broker
            assert await asyncio.to_thread(latest, name_server, start) == start
            end = 12
            ended = {"Orders": {"broker-a": {"0": 12}}}
            assert await asyncio.to_thread(latest, name_server, start) == ended

    asyncio.run(scenario())


@pytest.mark.long
def test_a_hundred_topics_of_a_pattern_are_one_stream(
    spark: "SparkSession", tmp_path: Path, checkpoint: str
) -> None:
    with RunningBroker(tmp_path / "store") as broker:
        for n in range(100):
            broker.create_topic(f"Orders-{n:03}", 1)
        broker.create_topic("Refunds", 1)
        for n in range(100):
            fill(broker.name_server, f"Orders-{n:03}", [b"%d" % n])
        fill(broker.name_server, "Refunds", [b"not this"])
        seen: Seen = []
        options = {"topicPattern": "Orders-.*", "startingOffsets": "earliest"}
        query = start(spark, broker, checkpoint, seen, now="yes", **options)
        assert query.awaitTermination(PATIENCE)
        assert bodies(seen) == sorted(b"%d" % n for n in range(100))


def test_messages_deleted_before_they_are_read_are_data_loss_unless_allowed(
    spark: "SparkSession", tmp_path: Path, checkpoint: str
) -> None:
    store = tmp_path / "store"
    sent = [b"%02d" % n * 10_000 for n in range(20)]  # three per log file
    with RunningBroker(store, {"mappedFileSizeCommitLog": "65536"}) as broker:
        broker.create_topic("T", 1)
        seen: Seen = []
        options = {"topic": "T", "startingOffsets": "earliest", "now": "yes"}
        fill(broker.name_server, "T", sent[:1])
        assert start(spark, broker, checkpoint, seen, **options).awaitTermination(PATIENCE)
        fill(broker.name_server, "T", sent[1:], per_batch=1)
        broker.restart()  # all messages are flushed
        for file in sorted(store.rglob("commitlog/*"))[:3]:
            os.utime(file, (1_000_000_000, 1_000_000_000))
        with BlockingSession(broker.name_server) as session:
            run(Admin(session).delete_expired_commit_log(broker.address))
            kept = run(Admin(session).min_offset(broker.address, "T", 0))
        assert 1 < kept < 20
        query = start(spark, broker, checkpoint, seen, **options)
        with pytest.raises(Exception, match=r"the messages from offset 1 to \d+ are gone"):
            query.awaitTermination(PATIENCE)
        options["failOnDataLoss"] = "false"
        assert start(spark, broker, checkpoint, seen, **options).awaitTermination(PATIENCE)
    assert bodies(seen) == sorted([sent[0], *sent[kept:]])


def rename_in_checkpoint(checkpoint: str, old: str, new: str) -> None:
    """As if the query's topic had been deleted, and recreated with fewer messages."""
    for file in Path(checkpoint, "offsets").iterdir():
        if not file.name.startswith("."):
            file.write_text(file.read_text().replace(old, new))
    for checksum in Path(checkpoint, "offsets").glob(".*.crc"):
        checksum.unlink()
