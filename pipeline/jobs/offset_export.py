"""Record the offsets of all consumer groups; each run adds one snapshot.

Designed for cron: each run adds one file to the folder, in a subfolder of its day (UTC), which
appears whole or not at all. `lag-report` derives a history from them. A run every minute creates
1440 files a day; every five minutes is enough for most purposes.

Groups are known by the offsets that they have committed: a group without any is not seen. In a
queue where a group has committed no offset, while it has in others, its offset is unknown (null),
and its lag is the number of all messages in the queue. System topics and groups are left out.

One request per broker returns the offsets of all groups, and one per topic the ends of its queues.
Eight brokers or more are queried by the executors, fewer by the driver. A broker that does not
answer is reported, and the answers of the others are written.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.client.operations.columns import number, text, time
from mq.pipeline import parsing
from mq.pipeline.declared import ClusterOptions, read_declared
from mq.pipeline.jobs import snapshots
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.choice import expected_brokers_option, groups_option, topics_option
from mq.pipeline.jobs.declaration import BrokersAway, JobError, option
from mq.pipeline.jobs.job_result import JobResult, Shape
from mq.pipeline.jobs.offsets_of_groups import (
    SPREAD_FROM,
    BrokerAddress,
    GroupFilter,
    as_frame,
    ask,
    ask_from_executors,
    broker_addresses,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUPS = Shape(
    "groups",
    "Groups and their lag",
    (
        text("group", "Group"),
        text("topic", "Topic"),
        number("queues", "Queues"),
        number("lag", "Lag"),
        time("lastStoreTime", "Last message stored"),
    ),
)
TABLES = (GROUPS,)
WRITES = (
    "day=DATE/offsets-TIME-ID.LAYOUT with the columns snapshotTime timestamp, brokerName string, "
    "topic string, queueId int, group string, consumerOffset bigint (the next to consume; null "
    "if none is committed), brokerOffset bigint (the end of the queue), minOffset bigint, lag "
    "bigint, lastStoreTime timestamp (null in an empty queue)"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the export."""

    folder: str = snapshots.folder_option(
        "Folder of the snapshots, on any file system that Spark reaches."
    )
    layout: str = snapshots.layout_option("Format of the files.")
    groups: tuple[str, ...] = groups_option()
    topics: tuple[str, ...] = topics_option()
    expected_brokers: tuple[str, ...] = expected_brokers_option(
        "Brokers that must be there: one that is down is reported, which is not detected "
        "otherwise; the answers of the others are written."
    )
    cluster: str | None = option(
        "cluster",
        parsing.text,
        "Only the brokers of this cluster.",
        example="DefaultCluster",
        default=None,
        metavar="CLUSTER",
    )


def offsets(
    spark: "SparkSession",
    options: ClusterOptions,
    brokers: list[BrokerAddress],
    selection: GroupFilter,
) -> "tuple[DataFrame, list[str]]":
    """Return the current offsets of groups, and a line for each broker that does not answer.

    Columns as in offsets_of_groups.QUEUES.
    """
    if len(brokers) >= SPREAD_FROM:
        asked = ask_from_executors(spark, options, brokers, selection)
    else:
        asked = ask(options, brokers, selection)
    return as_frame(spark, asked.rows), asked.failures


def stamped(frame: "DataFrame", taken: datetime) -> "DataFrame":
    """Add `snapshotTime`, to the millisecond, before all other columns."""
    from pyspark.sql import functions as f

    milliseconds = int(taken.timestamp() * 1000)
    return frame.select(f.timestamp_millis(f.lit(milliseconds)).alias("snapshotTime"), "*")


def by_group(frame: "DataFrame") -> "DataFrame":
    """Return a row per group and topic, those with the greatest lag first."""
    from pyspark.sql import functions as f

    return (
        frame.groupBy("group", "topic")
        .agg(
            f.count("*").alias("queues"),
            f.sum("lag").alias("lag"),
            f.max("lastStoreTime").alias("lastStoreTime"),
        )
        .orderBy(f.desc("lag"), "group", "topic")
    )


def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult:
    """Take a snapshot and write it. Raises JobError if no broker answers or nothing is chosen."""
    asked = read_declared(ClusterOptions, cluster.options())
    taken = datetime.now(UTC)
    try:
        brokers = broker_addresses(asked, options.cluster)
    except LookupError as error:
        raise JobError(f"--cluster: {error.args[0]}") from None
    except MQError as error:
        raise BrokersAway(f"no name server answers: {error}; is --namesrvAddr right?") from None
    if not brokers:
        raise BrokersAway("no broker is registered at the name servers")
    selection = GroupFilter(options.groups, options.topics)
    frame, failures = offsets(spark, asked, brokers, selection)
    silent = len(failures) == len(brokers)
    absent = sorted({*options.expected_brokers} - {broker.broker_name for broker in brokers})
    failures += [f"broker {name}: it is not registered" for name in absent]
    frame = stamped(frame, taken).persist()
    if silent:
        raise BrokersAway(f"no broker answers: {'; '.join(failures)}")
    groups = GROUPS.collect(by_group(frame))
    if not groups.rows and not failures and (options.groups or options.topics):
        raise JobError(
            "no consumer group that --groups and --topics choose has offsets; to see all that "
            "have some, run mq spark submit offset-export without these options"
        )
    path = snapshots.write(spark, frame, options.folder, options.layout)
    frame.unpersist()
    return JobResult([groups], failures, [f"written: {path}"])
