"""The report about dead letters."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mq.client.admin import Admin
from mq.client.consumer.send_back import send_back
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.pipeline.jobs import dead_letters, load
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.declaration import BrokersAway, JobError
from mq.pipeline.jobs.job_result import JobResult
from mq.protocol.bodies import MessageQueue, SubscriptionGroupConfig
from mq.protocol.names import dead_letter_topic
from mq.testing import RunningBroker
from tests.pipeline.conftest import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(2 * PATIENCE)

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def letter(group: str, hours: float, retries: int, tag: str | None, **properties: str) -> Any:
    since = NOW - timedelta(hours=hours)
    return (dead_letter_topic(group), properties, tag, since, retries)


def frame(spark: "SparkSession") -> "DataFrame":
    rows = [
        letter("billing", 0.5, 16, "A", RETRY_TOPIC="Orders"),
        letter("billing", 2, 17, "B", RETRY_TOPIC="Orders"),
        letter("billing", 30, 2, "B", RETRY_TOPIC="Orders"),
        letter("billing", 100, 3, None, RETRY_TOPIC="Orders", MAX_RECONSUME_TIMES="3"),
        letter("billing", 500, 16, "C", DLQ_ORIGIN_TOPIC="Refunds"),
        letter("audit", 24, 2, "<b>", MAX_RECONSUME_TIMES="oops"),
    ]
    messages = spark.createDataFrame(rows, dead_letters.READ)
    return dead_letters.letters(messages, {"audit": 2})


def at(hours: float) -> int:
    return int((NOW - timedelta(hours=hours)).timestamp() * 1000)


def test_dead_letters_are_counted_by_group_and_original_topic(spark: "SparkSession") -> None:
    table = dead_letters.LETTERS.collect(dead_letters.by_topic(frame(spark)))
    assert table.rows == [
        ("billing", "Orders", 4, 3, 1, 17, at(100), at(0.5), "B (2), A (1)"),
        ("audit", "(not told)", 1, 1, 0, 2, at(24), at(24), "<b> (1)"),
        ("billing", "Refunds", 1, 1, 0, 16, at(500), at(500), "C (1)"),
    ]


def test_dead_letters_are_counted_by_age(spark: "SparkSession") -> None:
    table = dead_letters.AGES.collect(dead_letters.by_age(frame(spark), NOW))
    assert table.rows == [
        ("audit", "1 to 3 days", 1),
        ("billing", "under an hour", 1),
        ("billing", "1 to 24 hours", 1),
        ("billing", "1 to 3 days", 1),
        ("billing", "3 to 7 days", 1),
        ("billing", "7 days or more", 1),
    ]


def run(spark: "SparkSession", broker: RunningBroker, **given: str) -> JobResult:
    job = load("dead-letters")
    return job.run(spark, job.read(given), ClusterAccess(broker.name_server))


async def give_up(broker: RunningBroker, group: str, topic: str, level: int) -> None:
    """Send back the messages in queue 0 of the topic, which the group may not consume again."""
    queue = MessageQueue(topic, "broker-a", 0)
    async with Session(broker.name_server) as session:
        config = SubscriptionGroupConfig(group_name=group, retry_max_times=0)
        await Admin(session).update_subscription_group(broker.address, config)
        async for message in PullConsumer(session).read(queue):
            await send_back(
                session, group, queue, message, delay_level=level, max_reconsume_times=0
            )


def test_dead_letters_of_a_broker_are_reported(spark: "SparkSession", tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store") as broker:
        broker.create_topic("Orders", 1)
        assert run(spark, broker).tables[0].rows == []
        broker.send("Orders", b"1", tags="A")
        broker.send("Orders", b"2", tags="A")
        asyncio.run(give_up(broker, "billing", "Orders", 0))
        asyncio.run(give_up(broker, "audit", "Orders", -1))
        outcome = run(spark, broker)
        letters, ages = outcome.tables
        assert [row[:5] for row in letters.rows] == [
            ("audit", "Orders", 2, 2, 0),
            ("billing", "Orders", 2, 2, 0),
        ]
        assert {row[-1] for row in letters.rows} == {"A (2)"}
        assert ages.rows == [("audit", "under an hour", 2), ("billing", "under an hour", 2)]
        assert outcome.page.count("<svg") == 2
        assert [row[0] for row in run(spark, broker, groups="b*").tables[0].rows] == ["billing"]
        with pytest.raises(JobError, match="no group that --groups nobody names has dead letters"):
            run(spark, broker, groups="nobody")
        with pytest.raises(JobError, match="in the time that was chosen"):
            run(spark, broker, groups="billing", end="1")
        there = {"expected-brokers": "broker-a"}
        assert len(run(spark, broker, **there).tables[0].rows) == 2
        with pytest.raises(BrokersAway, match=r"^not registered: broker-x; start it"):
            run(spark, broker, **{"expected-brokers": "broker-a,broker-x"})
