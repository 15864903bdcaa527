"""A body that cannot be decompressed fails a query, or is returned as stored; jobs continue."""

import asyncio
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mq.client.transport.session import Session
from mq.pipeline.jobs import load
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.declaration import JobError
from mq.pipeline.jobs.job_result import JobResult
from mq.testing import RunningBroker
from tests.client.compressed import said_to_be_compressed
from tests.pipeline.conftest import PATIENCE, require_streams
from tests.pipeline.logs import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(3 * PATIENCE)

SCHEMA = "queueOffset bigint, body binary, bodyError string"
WHOLE = zlib.compress(b"whole" * 100)
DAMAGED = WHOLE[:10] + b"!" + WHOLE[11:]
PROPERTIES = "KEYS\x01key"


@pytest.fixture(scope="module")
def damaged(mq_session_broker: RunningBroker) -> RunningBroker:
    """A broker with topic Poisoned: queue 0 has an intact body at offset 0, a damaged one at 1."""

    async def work() -> None:
        async with Session(mq_session_broker.name_server) as session:
            for body in (WHOLE, DAMAGED):
                command = said_to_be_compressed("Poisoned", body, PROPERTIES)
                await session.call(mq_session_broker.address, command)

    mq_session_broker.create_topic("Poisoned", 1)
    asyncio.run(work())
    return mq_session_broker


def rows(frame: "DataFrame") -> list[tuple[int, bytes, bool]]:
    found = frame.orderBy("queueOffset").collect()
    return [(row.queueOffset, bytes(row.body), row.bodyError is not None) for row in found]


def streamed(frame: "DataFrame", name: str) -> None:
    query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()


AS_THEY_ARE = [(0, b"whole" * 100, False), (1, DAMAGED, True)]
TOLD = r"queue 0 of topic Poisoned at broker broker-a: the message at offset 1: the zlib body is "


def test_a_table_fails_at_a_damaged_body_or_returns_it_as_stored(
    spark: "SparkSession", damaged: RunningBroker
) -> None:
    from pyspark.errors import PySparkException

    options = {"nameServer": damaged.name_server, "topic": "Poisoned"}
    reader = spark.read.format("rocketmq").schema(SCHEMA).options(**options)
    with pytest.raises(PySparkException, match=TOLD + r'.*\.option\("failOnDamage", "false"\)'):
        reader.load().collect()
    assert rows(reader.option("failOnDamage", "false").load()) == AS_THEY_ARE


def test_a_stream_fails_at_a_damaged_body_or_returns_it_as_stored(
    spark: "SparkSession", damaged: RunningBroker
) -> None:
    require_streams()
    from pyspark.errors import PySparkException

    options = {"nameServer": damaged.name_server, "topic": "Poisoned"}
    options["startingOffsets"] = "earliest"
    reader = spark.readStream.format("rocketmq").schema(SCHEMA).options(**options)
    with pytest.raises(PySparkException, match=TOLD):
        streamed(reader.load(), "failing")
    streamed(reader.option("failOnDamage", "false").load(), "going_on")
    assert rows(spark.table("going_on")) == AS_THEY_ARE


def test_a_store_source_fails_at_a_damaged_body_or_returns_it_as_stored(
    spark: "SparkSession", tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    log = Log([])
    for offset, body in enumerate((WHOLE, DAMAGED)):
        log.add(body, sys_flag=1, queue_offset=offset, topic="Poisoned")
    log.write(tmp_path)
    reader = spark.read.format("rocketmq-store").schema(SCHEMA)
    with pytest.raises(PySparkException, match=TOLD.replace("broker-a", r"\?")):
        reader.load(str(tmp_path)).collect()
    found = reader.option("failOnDamage", "false").load(str(tmp_path))
    assert rows(found) == AS_THEY_ARE


def run(
    spark: "SparkSession", damaged: RunningBroker, name: str, **options: Any
) -> tuple[JobResult, list[Any]]:
    """Return the notes and the rows of a job."""
    job = load(name)
    outcome = job.run(spark, job.read(options), ClusterAccess(damaged.name_server))
    return outcome, [tuple(row) for table in outcome.tables for row in table.rows]


def test_jobs_continue_and_report_a_damaged_body(
    spark: "SparkSession", damaged: RunningBroker, mq_topic: str, tmp_path: Path
) -> None:
    told = "1 bodies cannot be decompressed, and are "
    folder = str(tmp_path / "archive")
    outcome, (row,) = run(spark, damaged, "count", topic="Poisoned")
    assert row[3:5] == (2, 500 + len(DAMAGED))
    assert outcome.failures == [told + "counted as they are stored"]

    outcome, (row,) = run(spark, damaged, "archive", topic="Poisoned", folder=folder)
    assert outcome.failures == [told + "archived as they are stored"]
    assert rows(spark.read.parquet(f"{folder}/day=*")) == AS_THEY_ARE
    assert run(spark, damaged, "archive", topic="Poisoned", folder=folder)[0].failures == []

    outcome, (row,) = run(spark, damaged, "replay", folder=folder, to=mq_topic, queues="mapped")
    assert (outcome.failures, row[3:5]) == ([told + "not sent"], (1, 500))
    assert [bytes(each.body) for each in damaged.messages(mq_topic)] == [b"whole" * 100]

    last = str(tmp_path / "last")
    outcome, _ = run(spark, damaged, "compaction", topic="Poisoned", folder=last)
    assert outcome.failures == [told + "written as they are stored"]
    assert rows(spark.read.parquet(last)) == AS_THEY_ARE[1:]
    outcome, _ = run(spark, damaged, "compaction", topic="Poisoned", to=mq_topic)
    assert outcome.failures == [told + "not sent"]
    assert len(damaged.messages(mq_topic)) == 1

    with pytest.raises(JobError, match="topic Poisoned has no traces"):
        run(spark, damaged, "trace-analysis", **{"trace-topic": "Poisoned"})
