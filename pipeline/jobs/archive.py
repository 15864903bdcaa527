"""Archive topics as Parquet, by day and topic, each message exactly once.

Each run adds the messages since the last one, in batches of --batch messages. It may be killed at
any time: the next run continues at the end of the archive, without a gap or a duplicate. Progress
is stored with the data, in the folder's _archive/, not in the offsets of a consumer group. Every
batch is counted, queue by queue, before it becomes part of the archive.

Of two runs at the same time one fails and does no harm: on local disks, HDFS, and S3 with Hadoop
3.4.2 or later (s3a). Other file systems cannot tell runs apart: confirm with --alone that there is
only one.

The day is that on which the broker stored the message, in UTC. Any tool that reads Parquet reads
the folder as one table; `replay` sends it to a topic again.

Messages that a broker deleted before they were archived are reported as lost once, by the run that
finds the gap, and kept in the manifest of its batch. A topic that was deleted and recreated is
reported, and needs an archive of its own: the job compares the message that was archived last, as
long as brokers keep it. Queues that the archive has and the cluster has not are reported, too:
their broker may be down. A broker whose queues were never archived is unknown, unless
--expected-brokers names it. Topics that the broker compacts by itself (5.x,
cleanup.policy=COMPACTION) have gaps everywhere and cannot be archived.

A body that cannot be decompressed is archived as it is stored, with the reason in the column
bodyError, and reported by the run that reads it.

--begin applies to queues that the archive does not have yet; --end limits what a run may add.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mq.client.operations.columns import number, text
from mq.pipeline import parsing
from mq.pipeline.errors import BrokerDown
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.archive_log import ArchiveLog, Manifest
from mq.pipeline.jobs.archive_plan import Plan, absent, plan, recreated_queues
from mq.pipeline.jobs.choice import MessageChoice, folder_option
from mq.pipeline.jobs.declaration import BadArchive, BrokersAway, JobError, option, switch
from mq.pipeline.jobs.job_result import JobResult, Shape, damage_report
from mq.pipeline.jobs.storage import Folder
from mq.pipeline.offsets import Queue, to_nested

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

READ = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, tags string, "
    "keys string, properties map<string,string>, flag int, body binary, bornTimestamp timestamp, "
    "storeTimestamp timestamp, bornHost string, reconsumeTimes int, bodyError string"
)
# With the columns that are folder names last, as Spark's readers return them.
SCHEMA = f"{READ.removeprefix('topic string, ')}, day date, topic string"

QUEUES = Shape(
    "queues",
    "What was archived",
    (
        text("topic", "Topic"),
        text("brokerName", "Broker"),
        number("queueId", "Queue"),
        number("begin", "From"),
        number("end", "To"),
        number("messages", "Messages"),
    ),
)
TABLES = (QUEUES,)
EXAMPLE = "--topic Orders --folder /data/archive"
WRITES = f"day=DATE/topic=TOPIC/BATCH-PART.parquet with the columns {SCHEMA}"


@dataclass(frozen=True, kw_only=True)
class Options(MessageChoice):
    """Options of an archive."""

    folder: str = folder_option(
        "Folder of the archive, on any file system that Spark reaches.", "/data/archive"
    )
    batch: int = option(
        "batch",
        parsing.number(1, 2**40),
        "Maximum number of messages in a batch, which a killed run has to repeat.",
        example="1000000",
        default=10_000_000,
        metavar="N",
    )
    parts: int | None = option(
        "parts",
        parsing.number(1, 100_000),
        "Minimum number of tasks that read and write; large queues are split.",
        example="16",
        default=None,
        metavar="N",
    )
    alone: bool = switch(
        "alone",
        "No other run archives to this folder: needed if the file system cannot tell.",
    )
    allow_absent: bool = switch(
        "allow-absent",
        "Do not report queues that the archive has and the cluster has not, as of deleted topics.",
    )

    def has(self, topic: str) -> bool:
        """Whether a topic is chosen."""
        if self.topic_pattern is None:
            return topic in self.topic
        return re.fullmatch(self.topic_pattern, topic) is not None


class Range(NamedTuple):
    """Offsets of a queue that a batch adds: from `begin` up to, but without, `end`."""

    begin: int
    end: int


def with_day(messages: "DataFrame") -> "DataFrame":
    """Add `day`, the day in UTC when a message was stored, whatever the session's zone."""
    from pyspark.sql import functions as f

    days = f.floor(f.unix_millis("storeTimestamp") / f.lit(86_400_000)).cast("int")
    return messages.withColumn("day", f.date_from_unix_date(days))


def read(spark: "SparkSession", folder: str) -> "DataFrame":
    """Return the messages of an archive, with the columns of `SCHEMA`. Raises JobError."""
    target = Folder(spark, folder)
    log = ArchiveLog(target)
    if log.last is None:
        raise JobError(f"{folder} is not an archive: make one with mq spark submit archive")
    if log.waiting():
        raise JobError(
            f"{folder} is being written, or a run was killed: wait, or archive to it again"
        )
    return spark.read.schema(SCHEMA).parquet(target.path)


def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult:
    """Archive new messages. Raises JobError, OptionError or MQError."""
    folder = Folder(spark, options.folder)
    if not options.alone:
        folder.require_one_writer()
    log = ArchiveLog(folder, alone=options.alone)
    moved = log.finish()
    notes = [f"an earlier run was killed: {moved} files of it moved to their places"] * bool(moved)
    planned = _plan(options, cluster, log)
    added: dict[Queue, Range] = {}
    lost = planned.lost
    damaged = 0
    begins = planned.begins
    while True:
        from mq.pipeline.planning import limited

        ends = limited(begins, planned.ends, options.batch)
        ranges = {
            queue: Range(begins[queue], end) for queue, end in ends.items() if end > begins[queue]
        }
        if not ranges and not lost:
            break
        damaged += add(spark, log, cluster, ranges, lost, options.parts).damaged
        lost = ()
        for queue, each in ranges.items():
            added[queue] = Range(added.get(queue, each).begin, each.end)
        begins = {**begins, **ends}
    rows = [
        (*queue, each.begin, each.end, each.end - each.begin)
        for queue, each in sorted(added.items())
    ]
    failures = [*planned.failures, *damage_report(damaged, "archived as they are stored")]
    return JobResult([QUEUES.of(rows)], failures, notes)


def add(
    spark: "SparkSession",
    log: ArchiveLog,
    cluster: ClusterAccess,
    ranges: Mapping[Queue, Range],
    lost: tuple[tuple[Queue, int, int], ...] = (),
    parts: int | None = None,
) -> Manifest:
    """Add a batch: write it, count it, and make it part of the archive."""
    begins = {queue: each.begin for queue, each in ranges.items()}
    ends = {queue: each.end for queue, each in ranges.items()}
    staging = log.new_staging()
    marks: dict[Queue, tuple[int, int]] = {}
    damaged = 0
    if ranges:
        marks, damaged = _stage(spark, log.folder.child(staging), cluster, ranges, parts)
    manifest = Manifest(
        number=log.next_number,
        staging=staging,
        begins=begins,
        ends={**log.ends, **{queue: end for queue, _, end in lost}, **ends},
        files=tuple(log.folder.files(staging)),
        messages=sum(each.end - each.begin for each in ranges.values()),
        lost=lost,
        damaged=damaged,
        marks={**log.marks, **marks},
    )
    log.commit(manifest)
    return manifest


def _stage(
    spark: "SparkSession",
    path: str,
    cluster: ClusterAccess,
    ranges: Mapping[Queue, Range],
    parts: int | None,
) -> tuple[dict[Queue, tuple[int, int]], int]:
    """Write the messages of a batch to a folder of its own, and `check` them."""
    options = {
        "failOnDamage": "false",
        "topic": ",".join(sorted({queue.topic for queue in ranges})),
        "startingOffsets": json.dumps(
            to_nested({queue: each.begin for queue, each in ranges.items()})
        ),
        "endingOffsets": json.dumps(to_nested({queue: each.end for queue, each in ranges.items()})),
    }
    if parts is not None:
        options["minPartitions"] = str(parts)
    messages = cluster.read(spark, READ, **options).where(_wanted(ranges))
    with_day(messages).write.partitionBy("day", "topic").parquet(path)
    return check(spark.read.schema(SCHEMA).parquet(path), ranges)


def check(
    staged: "DataFrame", ranges: Mapping[Queue, Range]
) -> tuple[dict[Queue, tuple[int, int]], int]:
    """Count the messages of a batch. Returns the last one of each queue (its offset and its store
    time in ms), and how many bodies could not be decompressed. Raises JobError unless each
    offset is there exactly once.
    """
    from pyspark.sql import functions as f

    found = {
        Queue(row.topic, row.brokerName, row.queueId): row
        for row in staged.groupBy("topic", "brokerName", "queueId")
        .agg(
            f.count("*").alias("messages"),
            f.min("queueOffset").alias("first"),
            f.max("queueOffset").alias("last"),
            f.count_distinct("queueOffset").alias("different"),
            f.max_by(f.unix_millis("storeTimestamp"), "queueOffset").alias("stored"),
            f.count("bodyError").alias("damaged"),
        )
        .collect()
    }
    for queue, each in ranges.items():
        row = found.get(queue)
        size = each.end - each.begin
        if row is None or not (
            row.messages == row.different == size and row["first"] == each.begin
        ):
            count = 0 if row is None else row.messages
            raise BadArchive(
                f"{queue}: {count} messages were read of the {size} from offset {each.begin} to "
                f"{each.end}; nothing of this batch was archived: run again"
            )
    last = {queue: (row["last"], row.stored) for queue, row in found.items()}
    return last, sum(row.damaged for row in found.values())


def _wanted(ranges: Mapping[Queue, Range]) -> "Column":
    """Select only the queues that the batch is to add; a queue that appears meanwhile is for the
    next.
    """
    from pyspark.sql import functions as f

    queues = f.concat_ws(" ", "topic", "brokerName", "queueId")
    return queues.isin([" ".join(map(str, queue)) for queue in ranges])


def _plan(options: Options, cluster: ClusterAccess, log: ArchiveLog) -> Plan:
    """Query the cluster, and plan the run. Raises JobError for a broker that does not answer."""
    from mq.pipeline.cluster import Cluster
    from mq.pipeline.options import parse_options

    chosen = {
        name: value
        for name, value in options.source_options().items()
        if name in ("topic", "topicPattern", "expectedBrokers")
    }
    archived = log.ends
    with Cluster(parse_options(cluster.options(**chosen))) as asked:
        try:
            bounds = asked.bounds(asked.topics())
            starts = {queue: at.begin for queue, at in bounds.items()}
            if options.begin is not None:
                new = {queue: at for queue, at in bounds.items() if queue not in archived}
                starts |= asked.at_time(new, options.begin)
            ends = {queue: at.end for queue, at in bounds.items()}
            if options.end is not None:
                ends = asked.at_time(bounds, options.end)
            recreated = recreated_queues(asked, bounds, log.marks)
        except BrokerDown as error:
            raise BrokersAway(
                f"broker {error.broker_name} of topic {error.topic} does not answer; nothing was "
                "archived: start it, and run again"
            ) from None
    planned = plan(archived, bounds, starts, ends, recreated)
    if not options.allow_absent:
        planned.failures.extend(absent(options.has, archived, bounds))
    return planned
