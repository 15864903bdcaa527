"""Ranges of partitions of a real broker, read as tasks do, without Spark."""

import asyncio
from collections.abc import Iterable

import pytest

from mq.testing import RunningTube
from tests.pipeline.conftest import require_spark
from tests.pipeline.tube.conftest import TubeTopic
from tests.pipeline.tube.filling import Sent

require_spark()

from pyspark.sql.types import StructType  # noqa: E402

from mq.pipeline.errors import DataLoss, PartitionOccupied  # noqa: E402
from mq.pipeline.puller import QueueRange  # noqa: E402
from mq.pipeline.tube.offsets import TubePartition  # noqa: E402
from mq.pipeline.tube.options import TubeReadOptions, parse_tube_options  # noqa: E402
from mq.pipeline.tube.partition_group import member  # noqa: E402
from mq.pipeline.tube.reading import TubeTask, read  # noqa: E402

SCHEMA = StructType().add("messageId", "long").add("offset", "long")


def parsed(topic: TubeTopic, **more: str) -> TubeReadOptions:
    return parse_tube_options({**topic.options, **more})


def whole(key: str, begin: int, end: int) -> QueueRange:
    return QueueRange(*TubePartition.parse(key), begin, end)


def rows(options: TubeReadOptions, asked: QueueRange) -> list[tuple[int, int]]:
    """Id and offset of each message of a range."""
    batches = list(read(options, SCHEMA, TubeTask(asked)))
    return [(row["messageId"], row["offset"]) for batch in batches for row in batch.to_pylist()]


def ids(sent: Iterable[tuple[str, int, int]], key: str, begin: int, end: int) -> list[int]:
    return [number for at, offset, number in sent if at == key and begin <= offset < end]


def mixed(topic: TubeTopic, count: int) -> Sent:
    """Messages to two partitions in turn, which share an index."""
    return topic.send(*(b"%d" % n for n in range(count)), partition=None)


def test_a_range_ends_at_its_end_although_the_broker_returns_more(topic: TubeTopic) -> None:
    sent = sorted(mixed(topic, 24), key=lambda one: one[1])
    options, last = parsed(topic), sent[-1][1] + 28
    for key in {one[0] for one in sent}:
        for begin, end in ((0, last), (0, 28), (28, 9 * 28), (9 * 28, 10 * 28), (56, last - 28)):
            found = [number for number, _ in rows(options, whole(key, begin, end))]
            assert found == ids(sent, key, begin, end), (key, begin, end)


def test_a_range_without_messages_of_its_partition_is_empty(topic: TubeTopic) -> None:
    sent = topic.send(b"a", b"b", b"c", partition=0)
    other = sent[0][0].rpartition(":")[0] + ":1"
    assert rows(parsed(topic), whole(other, 0, 84)) == []
    assert rows(parsed(topic), whole(other, 0, 28)) == []


def test_a_filter_skips_messages_and_keeps_ranges_exact(topic: TubeTopic) -> None:
    paid = topic.send(*[b"paid"] * 5, kind="paid")
    topic.send(*[b"sent"] * 5, kind="sent")
    paid += topic.send(*[b"paid"] * 5, kind="paid")
    key = paid[0][0]
    options = parsed(topic, filters="paid")
    for begin, end in ((0, 15 * 28), (0, 12 * 28), (3 * 28, 5 * 28), (5 * 28, 10 * 28)):
        found = [number for number, _ in rows(options, whole(key, begin, end))]
        assert found == ids(paid, key, begin, end), (begin, end)


def test_the_offset_of_each_message_is_known_if_its_partition_is_alone(
    tube_of_session: RunningTube, topic: TubeTopic
) -> None:
    alone = TubeTopic(tube_of_session, f"{topic.name}_alone")
    tube_of_session.create_topic(alone.name, 1)
    sent = alone.send(*(b"%d" % n for n in range(9)))
    found = rows(parsed(alone), whole(sent[0][0], 56, 6 * 28))
    assert found == [(number, offset) for _, offset, number in sent[2:6]]


def test_reading_continues_where_it_stopped_after_a_restart_of_the_broker(topic: TubeTopic) -> None:
    sent = topic.send(*(b"%4d" % n * 500 for n in range(3000)))  # a dozen replies
    key, end = sent[0][0], sent[-1][1] + 28
    options = parsed(topic, retryIntervalMs="100", numRetries="8")
    reading = read(options, SCHEMA, TubeTask(whole(key, 0, end)))
    found = [row["messageId"] for row in next(reading).to_pylist()]
    topic.tube.restart()
    for batch in reading:
        found += [row["messageId"] for row in batch.to_pylist()]
    assert found == [number for _, _, number in sent]


def test_deleted_messages_are_data_loss_unless_allowed(
    topic: TubeTopic,
) -> None:
    sent = topic.send(b"a", b"b")
    beyond = whole(sent[0][0], 0, 280)
    with pytest.raises(DataLoss, match=r"from offset 56 to 280 are gone: it ends at 56 now"):
        rows(parsed(topic), beyond)
    found = rows(parsed(topic, failOnDataLoss="false"), beyond)
    assert [number for number, _ in found] == [number for _, _, number in sent]


def test_a_partition_of_another_client_of_the_group_is_not_taken(topic: TubeTopic) -> None:
    sent = topic.send(b"a")
    options = parsed(topic, occupiedTimeoutMs="0")

    async def work() -> None:
        async with member(options) as other:
            await other.connect(sent[0][0], 0)
            with pytest.raises(PartitionOccupied, match="A query needs a group of its own"):
                await asyncio.to_thread(rows, options, whole(sent[0][0], 0, 28))
            assert (await other.get_message()).messages[0].message_id == sent[0][2]

    asyncio.run(work())


def test_stopping_early_frees_the_partition_for_the_next_reader(topic: TubeTopic) -> None:
    sent = topic.send(*(b"%4d" % n * 500 for n in range(1000)))
    asked = whole(sent[0][0], 0, sent[-1][1] + 28)
    options = parsed(topic, occupiedTimeoutMs="0")
    reading = read(options, SCHEMA, TubeTask(asked))
    next(reading)
    reading.close()
    assert len(rows(options, asked)) == 1000
