"""Batch reads, in a real Spark, of a real broker."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from mq.client.tube.consumer import TubeConsumer
from mq.client.tube.options import ConsumeFrom
from mq.testing import RunningTube
from tests.pipeline.conftest import PATIENCE
from tests.pipeline.tube.conftest import TubeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def load(spark: "SparkSession", topic: TubeTopic, **options: str) -> "DataFrame":
    reader = spark.read.format("tubemq")
    if "schema" in options:
        reader = reader.schema(options.pop("schema"))
    return reader.options(**{**topic.options, **options}).load()


def test_every_message_of_a_topic_is_a_row(spark: "SparkSession", topic: TubeTopic) -> None:
    (sent,) = topic.send(b"typed", partition=1, kind="paid")
    plain = topic.send(b"one", b"two")
    rows = load(spark, topic).orderBy("messageId").collect()
    key, offset, number = sent
    assert rows[0].asDict() == {
        "topic": topic.name,
        "partitionKey": key,
        "offset": offset,
        "messageId": number,
        "messageType": "paid",
        "messageTime": "202601310800",
        "attributes": {"n": "0"},
        "flag": 1,
        "body": b"typed",
    }
    assert [(row.partitionKey, row.messageId, bytes(row.body)) for row in rows[1:]] == [
        (plain[0][0], plain[0][2], b"one"),
        (plain[1][0], plain[1][2], b"two"),
    ]
    assert rows[1].attributes == {} and rows[1].messageType is None
    assert load(spark, topic, schema="attributes string").first() is not None


def test_offsets_and_filters_select_the_messages_read(
    spark: "SparkSession", tube_of_session: RunningTube, topic: TubeTopic
) -> None:
    sent = topic.send(*(b"%02d" % n for n in range(20)), partition=None, kind="paid")
    topic.send(b"other", kind="sent")
    (key,) = {key for key, offset, _ in sent if offset == 280}
    other = f"1:{topic.name}:{1 - int(key[-1])}"
    frame = load(
        spark,
        topic,
        schema="body binary, partitionKey string",
        STARTINGOFFSETS=f'{{"{key}": 280, "{other}": -1}}',
        endingOffsets=f'{{"{key}": 420}}',
        filters="paid, other",
    )
    expected = [
        b"%02d" % n for n, (at, offset, _) in enumerate(sent) if at == key and 280 <= offset < 420
    ]
    assert sorted(bytes(row.body) for row in frame.collect()) == expected != []
    empty = TubeTopic(tube_of_session, f"{topic.name}_empty")
    tube_of_session.create_topic(empty.name, 1)
    assert load(spark, empty).count() == 0


def test_planning_does_not_move_the_offsets_of_a_group(topic: TubeTopic) -> None:
    from mq.pipeline.tube.cluster import TubeCluster
    from mq.pipeline.tube.options import parse_tube_options
    from mq.pipeline.tube.partition_group import hold, member

    sent = topic.send(*[b"x"] * 9)
    options = parse_tube_options(topic.options)

    async def group_at(begin: int = -2) -> int:
        async with member(options) as consumer:
            return (await hold(consumer, sent[0][0], options, begin)).offset

    assert asyncio.run(group_at(140)) == 140
    with TubeCluster(options) as cluster:
        bounds = cluster.bounds()
    assert {str(partition): (at.begin, at.end) for partition, at in bounds.items()} == {
        f"partition 1:{topic.name}:{number}": (0, 9 * 28) for number in (0, 1)
    }
    assert asyncio.run(group_at()) == 140


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "NoSuchTopic"}, "option topic: .*NoSuchTopic"),
        ({"masters": "127.0.0.1:1"}, "option masters: .*127.0.0.1:1"),
        ({"startingOffsets": '{"9:%s:0": 28}'}, "there is no partition 9:.*:0 to be read"),
        ({"endingOffsets": '{"1:%s:0": 2800}'}, "2800 is beyond the end of partition 1:.*, which"),
    ],
)
def test_a_mistake_is_reported_before_any_task_starts(
    options: dict[str, str], message: str, topic: TubeTopic
) -> None:
    from pyspark.sql.types import StructType

    from mq.pipeline.errors import OptionError
    from mq.pipeline.tube.batch import TubeBatchReader
    from mq.pipeline.tube.options import parse_tube_options

    given = {name: text.replace("%s", topic.name) for name, text in options.items()}
    reader = TubeBatchReader(parse_tube_options({**topic.options, **given}), StructType())
    with pytest.raises(OptionError, match=message):
        reader.partitions()


def test_a_group_of_consumers_is_refused_and_keeps_its_partitions(topic: TubeTopic) -> None:
    from pyspark.sql.types import StructType

    from mq.pipeline.errors import OptionError
    from mq.pipeline.tube.batch import TubeBatchReader
    from mq.pipeline.tube.options import parse_tube_options

    reader = TubeBatchReader(parse_tube_options(topic.options), StructType())
    group = topic.options["group"]

    async def work() -> bytes:
        theirs = TubeConsumer(
            topic.tube.master,
            group,
            [topic.name],
            consume_from=ConsumeFrom.FIRST,
            heartbeat_interval=0.2,
        )
        async with theirs as consumer:
            with pytest.raises(OptionError, match=r"option group: .*a group of its own"):
                await asyncio.to_thread(reader.partitions)
            return (await anext(aiter(consumer))).body

    topic.send(b"theirs")
    assert asyncio.run(work()) == b"theirs"


def test_a_query_with_other_filters_waits_for_the_members_of_the_previous_one(
    topic: TubeTopic,
) -> None:
    from mq.pipeline.errors import OptionError
    from mq.pipeline.tube.cluster import TubeCluster
    from mq.pipeline.tube.options import parse_tube_options
    from mq.pipeline.tube.partition_group import member

    before = parse_tube_options({**topic.options, "filters": "paid"})

    def plan(**options: str) -> int:
        with TubeCluster(parse_tube_options({**topic.options, **options})) as cluster:
            return len(cluster.bounds())

    async def work() -> int:
        async with member(before):
            with pytest.raises(OptionError, match=r"option group: .*FILTERSET"):
                await asyncio.to_thread(plan, occupiedTimeoutMs="0")
            waiting = asyncio.create_task(asyncio.to_thread(plan))
            done, _ = await asyncio.wait([waiting], timeout=0.3)
            assert not done
        return await waiting

    assert asyncio.run(work()) == 2
