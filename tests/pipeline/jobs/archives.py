"""Archives written by a job, and their contents."""

from pathlib import Path
from typing import TYPE_CHECKING

from mq.pipeline.jobs import load
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.job_result import JobResult
from mq.protocol.bodies import MessageQueue
from mq.testing import RunningBroker
from tests.pipeline.filling import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    spark: "SparkSession", broker: RunningBroker, folder: Path, topic: str, **given: str
) -> JobResult:
    job = load("archive")
    options = job.read({"folder": str(folder), "topic": topic, **given})
    return job.run(spark, options, ClusterAccess(broker.name_server))


def send(broker: RunningBroker, topic: str, queue_id: int, numbers: range) -> None:
    queue = MessageQueue(topic, "broker-a", queue_id)
    fill(broker.name_server, topic, [b"%d" % n for n in numbers], queue)


def archived(spark: "SparkSession", folder: Path) -> list[tuple[int, int, bytes]]:
    rows = spark.read.parquet(str(folder)).select("queueId", "queueOffset", "body").collect()
    return sorted((row.queueId, row.queueOffset, bytes(row.body)) for row in rows)


def messages(*queues: int) -> list[tuple[int, int, bytes]]:
    """All messages of queues that have these counts, numbered from 0."""
    return [(queue, n, b"%d" % n) for queue, count in enumerate(queues) for n in range(count)]
