"""Count messages and bytes per topic and queue.

Bytes are those of decompressed bodies, as consumers get them. The times are when the broker stored
the first and the last of the messages counted. Bodies that cannot be decompressed are counted as
they are stored, and reported.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.operations.columns import number, text, time
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.choice import MessageChoice
from mq.pipeline.jobs.job_result import JobResult, Shape, damage_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "topic string, brokerName string, queueId int, storeTimestamp timestamp, body binary, "
    "bodyError string"
)

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
    """Options of a count."""


def by_queue(messages: "DataFrame") -> "DataFrame":
    """Return a row per queue: topic, brokerName, queueId, messages, bytes, first, last, damaged."""
    from pyspark.sql import functions as f

    return messages.groupBy("topic", "brokerName", "queueId").agg(
        f.count("*").alias("messages"),
        f.sum(f.length("body")).alias("bytes"),
        f.min("storeTimestamp").alias("first"),
        f.max("storeTimestamp").alias("last"),
        f.count("bodyError").alias("damaged"),
    )


def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult:
    """Count."""
    from pyspark.sql import functions as f

    messages = cluster.read(spark, SCHEMA, failOnDamage="false", **options.source_options())
    counted = by_queue(messages).orderBy("topic", "brokerName", "queueId").persist()
    table = QUEUES.collect(counted)
    (damaged,) = counted.agg(f.coalesce(f.sum("damaged"), f.lit(0))).first() or (0,)
    counted.unpersist()
    return JobResult([table], damage_report(damaged, "counted as they are stored"))
