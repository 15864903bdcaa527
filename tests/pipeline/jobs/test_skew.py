"""How even topics are, and which keys are hot."""

from typing import TYPE_CHECKING, Any

import pytest

from mq.pipeline.errors import OptionError
from mq.pipeline.jobs import load, skew
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.job_result import JobResult
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)


def message(queue_id: int, size: int, tags: str | None, keys: str | None, **more: str) -> Any:
    return ("T", "broker-a", queue_id, size, tags, keys, more)


def frame(spark: "SparkSession") -> "DataFrame":
    rows = [
        message(0, 100, "A", "k1 k2", __SHARDINGKEY="s1"),
        message(0, 50, "A", "k1", __SHARDINGKEY="s1", color="red"),
        message(0, 10, "B", None, __SHARDINGKEY="s2", color=""),
        message(1, 1, None, ""),
    ]
    return spark.createDataFrame(rows, skew.READ)


def test_messages_are_counted_by_queue(spark: "SparkSession") -> None:
    rows = sorted(tuple(row) for row in skew.by_queue(frame(spark)).collect())
    assert rows == [("T", "broker-a", 0, 3, 160), ("T", "broker-a", 1, 1, 1)]


def test_values_with_the_most_messages_are_first(spark: "SparkSession") -> None:
    values = skew.valued(frame(spark), "color")
    table = skew.VALUES.collect(skew.top_values(values, 2, exact=True))
    third = 33.33
    assert table.rows == [
        ("T", "keys", "k1", 2, 150, 66.67, True),
        ("T", "keys", "k2", 1, 100, third, True),
        ("T", "property color", "red", 1, 50, 100.0, True),
        ("T", "sharding key", "s1", 2, 150, 66.67, True),
        ("T", "sharding key", "s2", 1, 10, third, True),
        ("T", "tags", "A", 2, 150, 66.67, True),
        ("T", "tags", "B", 1, 10, third, True),
    ]


def test_a_sketch_of_few_values_is_exact(spark: "SparkSession") -> None:
    values = skew.valued(frame(spark))
    table = skew.VALUES.collect(skew.top_values(values, 1, exact=False))
    exact = not spark.catalog.functionExists("approx_top_k")  # since Spark 4.1
    assert [row[:4] + row[5:] for row in table.rows] == [
        ("T", of, value, 2, 66.67, exact)
        for of, value in (("keys", "k1"), ("sharding key", "s1"), ("tags", "A"))
    ]


def test_the_variation_includes_empty_queues() -> None:
    assert skew.skew_of([5, 5, 5]) == (0.0, 1 / 3)
    assert skew.skew_of([4, 0]) == (1.0, 1.0)
    assert skew.skew_of([0, 0]) == skew.skew_of([]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("counts", "brokers", "hot", "several", "text"),
    [
        ([7], 1, None, False, "one queue: one consumer of a group gets everything"),
        ([0, 0], 1, None, False, "no messages"),
        ([10, 11, 9], 1, ("s", 0.1), True, "even"),
        ([90, 5, 5], 1, ("s", 0.85), True, "sharding key s has 85 % of its topic"),
        ([60, 40, 0], 1, ("s", 0.2), True, "no sharding key is hot, but they fall on few queues"),
        ([50, 50, 0], 1, None, False, "1 queues are empty: were they added lately"),
        ([90, 10], 2, None, False, "compare brokers"),
        ([90, 10], 1, None, False, "producers choose queues by themselves"),
    ],
)
def test_the_advice_depends_on_the_kind_of_skew(
    counts: list[int], brokers: int, hot: tuple[str, float] | None, several: bool, text: str
) -> None:
    assert skew.advice(counts, brokers, hot, several).startswith(text)


def run(spark: "SparkSession", broker: RunningBroker, **given: str) -> JobResult:
    job = load("skew")
    return job.run(spark, job.read(given), ClusterAccess(broker.name_server))


def test_a_topic_is_reported_with_its_empty_queues(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic, 4)
    for n in range(3):
        sent = mq_session_broker.send(
            mq_topic, b"x", keys=(f"<k{n}>", "hot"), properties={"__SHARDINGKEY": "s"}
        )
    outcome = run(spark, mq_session_broker, topic=mq_topic, top="1")
    topics, queues, values = outcome.tables
    assert [row[:4] for row in topics.rows] == [
        (mq_topic, 4, sum(1 for row in queues.rows if not row[3]), 3)
    ]
    assert len(queues.rows) == 4 and sum(row[3] for row in queues.rows) == 3
    assert sent.queue.queue_id in {row[2] for row in queues.rows if row[3]}
    assert topics.rows[0][4] == sum(row[4] for row in queues.rows) > 0
    assert [row[1:4] for row in values.rows] == [("keys", "hot", 3), ("sharding key", "s", 3)]
    assert outcome.page.count("<svg") == 2
    sketched = run(spark, mq_session_broker, topic=mq_topic, top="2", exact="0").tables[2]
    exact = not spark.catalog.functionExists("approx_top_k")
    assert [row[-1] for row in sketched.rows] == [exact] * 3


def test_an_empty_topic_is_reported_too(
    spark: "SparkSession", mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    mq_session_broker.create_topic(mq_topic, 2)
    topics, queues, values = run(spark, mq_session_broker, topic=mq_topic).tables
    assert topics.rows == [(mq_topic, 2, 2, 0, 0, 0.0, 0.0, 0.0, "no messages")]
    assert (len(queues.rows), values.rows) == (2, [])
    with pytest.raises(OptionError, match="no name server knows it"):
        run(spark, mq_session_broker, topic="NoSuchTopic")
