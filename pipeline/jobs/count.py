"""Count messages and bytes per topic and queue.

Bytes are those of bodies, as consumers get them: decompressed. The times are when the broker stored
the first and the last of the messages counted.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.choice import MessageChoice
from mq.pipeline.jobs.job_result import JobResult, Shape, number, text, time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "topic string, brokerName string, queueId int, storeTimestamp timestamp, body binary"

QUEUES = Shape(
    "queues",
    "Queues with messages",
    (
        text("topic", "Topic"),
        text("brokerName", "Broker"),
        number("queueId", "Queue"),
        number("messages", "Messages"),
        number("bytes", "Bytes"),
        time("first", "First stored"),
        time("last", "Last stored"),
    ),
)
TABLES = (QUEUES,)
EXAMPLE = "--topic Orders"


@dataclass(frozen=True, kw_only=True)
class Options(MessageChoice):
    """Which messages are counted."""


def by_queue(messages: "DataFrame") -> "DataFrame":
    """A row for each queue: topic, brokerName, queueId, messages, bytes, first, last."""
    from pyspark.sql import functions as f

    return messages.groupBy("topic", "brokerName", "queueId").agg(
        f.count("*").alias("messages"),
        f.sum(f.length("body")).alias("bytes"),
        f.min("storeTimestamp").alias("first"),
        f.max("storeTimestamp").alias("last"),
    )


def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult:
    """Count."""
    messages = cluster.read(spark, SCHEMA, **options.source_options())
    counted = by_queue(messages).orderBy("topic", "brokerName", "queueId")
    return JobResult([QUEUES.collect(counted)])
