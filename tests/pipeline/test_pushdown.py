"""Filters of a query that reduce the pulled messages."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from mq.protocol.bodies import MessageQueue
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE, require_filters
from tests.pipeline.filling import fill
from tests.pipeline.loading import load

require_filters()

from pyspark.sql.datasource import (  # noqa: E402
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import BinaryType, StructType  # noqa: E402

from mq.pipeline.batch import BatchReader  # noqa: E402
from mq.pipeline.errors import OptionError  # noqa: E402
from mq.pipeline.options import parse_options  # noqa: E402
from mq.pipeline.puller import QueueRange  # noqa: E402
from mq.pipeline.reading import Partition  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def planned(
    broker: RunningBroker, topic: str, *filters: Filter, **options: str
) -> tuple[list[QueueRange], list[bytes]]:
    """Return the ranges of the tasks and the bodies that they read; Spark evaluates all filters,
    too.
    """
    given = parse_options({"nameServer": broker.name_server, "topic": topic, **options})
    reader = BatchReader(given, StructType().add("body", BinaryType()))
    assert list(reader.pushFilters(list(filters))) == list(filters)
    partitions = [each for each in reader.partitions() if isinstance(each, Partition)]
    found = [
        body
        for partition in partitions
        for batch in reader.read(partition)
        for body in batch.column(0).to_pylist()
    ]
    return [each for partition in partitions for each in partition.ranges], sorted(found)


def test_filters_narrow_queues_offsets_and_tags(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic, 3)
    for queue_id, tag in ((0, "A"), (1, "B"), (2, "C")):
        queue = MessageQueue(mq_topic, "broker-a", queue_id)
        fill(mq_session_broker.name_server, mq_topic, [b"%d" % n for n in range(9)], queue, tag)
    whole = [QueueRange(mq_topic, "broker-a", n, 0, 9) for n in range(3)]

    def ranges(*filters: Filter) -> list[QueueRange]:
        return planned(mq_session_broker, mq_topic, *filters)[0]

    assert ranges(EqualTo(("queueId",), 1)) == whole[1:2]
    assert ranges(In(("QUEUEID",), (0, 1))) == whole[:2]
    assert ranges(GreaterThan(("queueId",), 1), LessThan(("queueId",), 9)) == whole[1:]
    assert ranges(EqualTo(("brokerName",), "broker-b")) == []
    assert ranges(EqualTo(("topic",), "another")) == []
    cut = [each._replace(begin=3, end=6) for each in whole]
    assert ranges(GreaterThan(("queueOffset",), 3), LessThanOrEqual(("queueOffset",), 5)) == cut
    for useless in (
        Not(EqualTo(("queueId",), 1)),
        IsNotNull(("queueId",)),
        StringStartsWith(("tags",), "A"),
        EqualTo(("queueId", "inner"), 1),
        EqualTo(("queueId",), None),
        EqualTo(("body",), b"x"),
    ):
        assert ranges(useless) == whole
    assert planned(mq_session_broker, mq_topic, In(("tags",), ("A", "C", None)))[1] == sorted(
        [b"%d" % n for n in range(9)] * 2
    )
    stored = mq_session_broker.messages(mq_topic)[0].store_timestamp
    later = datetime.fromtimestamp(stored / 1000 + 3600, UTC)
    assert ranges(GreaterThan(("storeTimestamp",), later)) == []
    assert ranges(LessThan(("storeTimestamp",), stored - 3_600_000)) == []
    assert ranges(LessThan(("storeTimestamp",), later)) == whole


def test_offsets_of_topics_excluded_by_a_filter_are_ignored(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    other = f"{mq_topic}-other"
    for topic in (mq_topic, other):
        mq_session_broker.create_topic(topic, 1)
        queue = MessageQueue(topic, "broker-a", 0)
        fill(mq_session_broker.name_server, topic, [b"%d" % n for n in range(9)], queue)
    both = f"{mq_topic},{other}"
    offsets = {
        "startingOffsets": json.dumps({topic: {"broker-a": {"0": 2}} for topic in both.split(",")}),
        "endingOffsets": json.dumps({topic: {"broker-a": {"0": 5}} for topic in both.split(",")}),
    }
    wanted = EqualTo(("topic",), mq_topic)
    found, _ = planned(mq_session_broker, both, wanted, **offsets)
    assert found == [QueueRange(mq_topic, "broker-a", 0, 2, 5)]
    with pytest.raises(OptionError, match=f"there is no queue 0 of topic {other}"):
        planned(mq_session_broker, mq_topic, wanted, **offsets)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_query_has_the_same_rows_with_pushdown_and_without(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str, enabled: str
) -> None:
    mq_session_broker.create_topic(mq_topic, 3)
    for queue_id, tag in ((0, "A"), (1, "B"), (2, "A")):
        queue = MessageQueue(mq_topic, "broker-a", queue_id)
        fill(mq_session_broker.name_server, mq_topic, [b"%d" % n for n in range(9)], queue, tag)
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, enabled)
    try:
        frame = load(spark, mq_session_broker, topic=mq_topic)
        some = frame.where("queueId in (0, 1) and tags = 'A' and queueOffset >= 4")
        some = some.where("storeTimestamp > timestamp'2020-01-01 00:00:00'")
        assert sorted(row.queueOffset for row in some.collect()) == [4, 5, 6, 7, 8]
        partitions = frame.where("queueId = 1").rdd.getNumPartitions()
        assert partitions == (1 if enabled == "true" else 3)
    finally:
        spark.conf.unset(name)
