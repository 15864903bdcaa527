"""Send archived messages to a topic again, in their order.

Reads an archive of `archive`, or any Parquet that has its columns. The messages of a queue go to
one queue, one after the other, so that they keep their order: with --queues same to the queue with
the same number (at the broker of the same name, or at the only broker), with --queues mapped all
queues of the archive are distributed over those of the target in turn.

Bodies, tags, keys, flags, sharding keys and the users' own properties are kept. Message ids, times,
delays and everything else that RocketMQ sets itself are new: a replayed message is a new message.
Messages with an empty body, which brokers refuse, and those whose body could not be decompressed,
are left out and reported.

A task sends the messages for one queue, at most --rate of them per second; Spark decides how many
tasks run at a time (local[*]: one per core). Without --exactly-once a task that fails and is
retried sends its messages again from the first one, and so does a second run: choose the remaining
ones with --begin. With it, consumers see all messages when the job has ended, or none.

--count-only only shows what would be sent where.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.client.operations.columns import number, text, time
from mq.pipeline import parsing
from mq.pipeline.jobs import archive
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.archive_log import HOME
from mq.pipeline.jobs.choice import folder_option, time_option
from mq.pipeline.jobs.declaration import BrokersAway, JobError, option, switch
from mq.pipeline.jobs.job_result import JobResult, Shape, damage_report
from mq.pipeline.jobs.pacing import paced, small_batches
from mq.pipeline.jobs.storage import Folder
from mq.pipeline.offsets import Queue
from mq.protocol.names import check_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mq.protocol.bodies import MessageQueue

QUEUES = Shape(
    "queues",
    "What goes where",
    (
        text("topic", "Topic"),
        text("brokerName", "Broker"),
        number("queueId", "Queue"),
        number("messages", "Messages"),
        number("bytes", "Bytes"),
        time("first", "First stored"),
        time("last", "Last stored"),
        text("toTopic", "To topic"),
        text("toBroker", "To broker"),
        number("toQueue", "To queue"),
    ),
)
TABLES = (QUEUES,)
EXAMPLE = "--folder /data/archive --to Orders-again --rate 500"
WRITES = "messages in the topics"

_NEEDED = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "body")
_SENT = ("body", "tags", "keys", "properties", "flag")  # as far as the files have them
_QUEUE = ("topic", "brokerName", "queueId")


def queue_numbers(text: str) -> tuple[int, ...]:
    """Parse numbers separated by commas."""
    return tuple(parsing.number(0, 2**31 - 1)(part.strip()) for part in text.split(","))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a replay."""

    folder: str = folder_option(
        "The archive, or a folder of Parquet files with its columns.", "/data/archive"
    )
    to: str | None = option(
        "to",
        check_topic,
        "The topic to send to. Without it each message goes to the topic that it came from.",
        example="Orders-again",
        default=None,
        metavar="TOPIC",
    )
    topic: tuple[str, ...] = option(
        "topic",
        parsing.topics,
        "Only messages that came from these topics.",
        example="Orders,Refunds",
        default=(),
        metavar="TOPIC[,…]",
    )
    only_queues: tuple[int, ...] = option(
        "only-queues",
        queue_numbers,
        "Only messages that came from queues with these numbers.",
        example="0,3",
        default=(),
        metavar="N[,…]",
    )
    begin: int | None = time_option(
        "begin", "Only messages stored from this time on.", "2026-01-31T08:00:00+01:00"
    )
    end: int | None = time_option(
        "end", "Only messages stored before this time.", "2026-01-31T09:00:00+01:00"
    )
    queues: str = option(
        "queues",
        parsing.choice("same", "mapped"),
        "Target queue of messages: the one with the same number, or one of all in turn.",
        example="mapped",
        default="same",
        metavar="same|mapped",
    )
    rate: int | None = option(
        "rate",
        parsing.number(1, 10**9),
        "Maximum number of messages per second that each task sends.",
        example="500",
        default=None,
        metavar="N",
    )
    exactly_once: bool = switch("exactly-once", "Let consumers see all messages at the end.")
    count_only: bool = switch("count-only", "Send nothing; show what would be sent where.")


def load(spark: "SparkSession", folder: str) -> "DataFrame":
    """Return the messages in a folder. Raises JobError for a folder without any."""
    from pyspark.sql import functions as f

    target = Folder(spark, folder)
    if target.names(HOME):
        return archive.read(spark, folder)
    if not any(name.endswith(".parquet") for name in target.files()):
        raise JobError(f"{folder} has no Parquet files; make an archive: mq spark submit archive")
    frame = spark.read.parquet(target.path)
    if "bodyError" not in frame.columns:
        frame = frame.withColumn("bodyError", f.lit(None).cast("string"))
    missing = [name for name in _NEEDED if name not in frame.columns]
    if missing:
        raise JobError(
            f"{folder} has no column {missing[0]}; a replay needs {', '.join(_NEEDED)}, as "
            "archives have them"
        )
    return frame


def chosen(frame: "DataFrame", options: Options) -> "DataFrame":
    """Select the messages that the options choose; other days of an archive are not read."""
    from pyspark.sql import functions as f

    if options.topic:
        frame = frame.where(f.col("topic").isin(list(options.topic)))
    if options.only_queues:
        frame = frame.where(f.col("queueId").isin(list(options.only_queues)))
    if options.begin is not None:
        begin = datetime.fromtimestamp(options.begin / 1000, UTC)
        frame = frame.where(f.col("storeTimestamp") >= begin)
        frame = frame.where(f.col("day") >= begin.date()) if "day" in frame.columns else frame
    if options.end is not None:
        end = datetime.fromtimestamp(options.end / 1000, UTC)
        frame = frame.where(f.col("storeTimestamp") < end)
        frame = frame.where(f.col("day") <= end.date()) if "day" in frame.columns else frame
    return frame


def by_queue(frame: "DataFrame") -> "DataFrame":
    """Return a row per queue: topic, brokerName, queueId, messages, bytes, first, last, empty,
    damaged.

    `empty` and `damaged` count messages that cannot be sent; `messages` counts the others.
    """
    from pyspark.sql import functions as f

    size = f.length("body")
    whole = f.col("bodyError").isNull()
    full = whole & (size > 0)
    return (
        frame.groupBy(*_QUEUE)
        .agg(
            f.count_if(full).alias("messages"),
            f.sum(f.when(whole, size).otherwise(0)).alias("bytes"),
            f.min("storeTimestamp").alias("first"),
            f.max("storeTimestamp").alias("last"),
            (f.count_if(whole) - f.count_if(full)).alias("empty"),
            f.count("bodyError").alias("damaged"),
        )
        .orderBy(*_QUEUE)
    )


def targets(
    sources: Sequence[Queue],
    there: Mapping[str, "Sequence[MessageQueue]"],
    how: str,
    to: str | None,
) -> dict[Queue, "MessageQueue"]:
    """Return the target queue of each source queue. `there` are the queues of target topics.

    Raises JobError if there is no queue of the same number.
    """
    found = {}
    turns: dict[str, int] = {}
    for source in sorted(sources):
        topic = to or source.topic
        if how == "mapped":
            turn = turns.get(topic, 0)
            turns[topic] = turn + 1
            found[source] = there[topic][turn % len(there[topic])]
            continue
        same = [each for each in there[topic] if each.queue_id == source.queue_id]
        named = [each for each in same if each.broker_name == source.broker_name]
        brokers = {each.broker_name for each in there[topic]}
        if not named and not (same and len(brokers) == 1):
            raise JobError(
                f"topic {topic} has no queue {source.queue_id} at broker {source.broker_name}: "
                "give it as many queues as there were, or send with --queues mapped"
            )
        found[source] = (named or same)[0]
    return found


def prepared(frame: "DataFrame", to: Mapping[Queue, "MessageQueue"]) -> "DataFrame":
    """Return the rows to write: a task for each target queue, in the order of offsets.

    Messages with an empty body, or one that could not be decompressed, are left out.
    """
    from pyspark.sql import functions as f

    order = sorted(set(to.values()))
    rows = [
        (*source, target.topic, target.broker_name, target.queue_id, order.index(target))
        for source, target in to.items()
    ]
    schema = (
        "topic string, brokerName string, queueId int, toTopic string, toBroker string, "
        "toQueue int, task int"
    )
    mapping = f.broadcast(frame.sparkSession.createDataFrame(rows, schema))
    kept = [name for name in _SENT if name in frame.columns]
    sendable = frame.where(f.col("bodyError").isNull() & (f.length("body") > 0))
    joined = sendable.join(mapping, list(_QUEUE))
    if hasattr(joined, "repartitionById"):  # since Spark 4.1: no task has two queues
        parted = joined.repartitionById(len(order), "task")
    else:
        parted = joined.repartition(len(order), "task")
    return parted.sortWithinPartitions(*_QUEUE, "queueOffset").select(
        *kept,
        f.col("toTopic").alias("topic"),
        f.col("toBroker").alias("brokerName"),
        f.col("toQueue").alias("queueId"),
    )


def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult:
    """Count, and send. Raises JobError."""
    frame = chosen(load(spark, options.folder), options)
    counted = by_queue(frame).collect()
    if not counted:
        raise JobError(
            f"{options.folder} has no messages that --topic, --only-queues, --begin and --end "
            "choose; give fewer of them"
        )
    sources = [Queue(row.topic, row.brokerName, row.queueId) for row in counted]
    names = {options.to or source.topic for source in sources}
    to = targets(sources, _queues_of(cluster, names), options.queues, options.to)
    rows = []
    for source, row in zip(sources, counted, strict=True):
        target = to[source]
        times = [int(moment.timestamp() * 1000) for moment in (row["first"], row["last"])]
        where = (target.topic, target.broker_name, target.queue_id)
        rows.append((*source, row.messages, row.bytes, *times, *where))
    empty = sum(row.empty for row in counted)
    failures = [f"{empty} messages have an empty body, which brokers refuse"] * bool(empty)
    failures += damage_report(sum(row.damaged for row in counted), "not sent")
    if options.count_only:
        return JobResult([QUEUES.of(rows)], failures, ["nothing was sent: --count-only"])
    messages = prepared(frame, to)
    if options.rate is not None:
        messages = paced(messages, "queueId", options.rate)
    once = str(options.exactly_once).lower()
    with small_batches(spark, options.rate):
        writer = messages.write.format("rocketmq").options(**cluster.options(exactlyOnce=once))
        writer.mode("append").save()
    return JobResult([QUEUES.of(rows)], failures)


def _queues_of(
    cluster: ClusterAccess, topics: Iterable[str]
) -> dict[str, "Sequence[MessageQueue]"]:
    """Return the writable queues of each topic. Raises JobError."""
    from mq.client.errors import RouteNotFound
    from mq.client.routing.routes import write_queues
    from mq.client.transport.blocking import run as wait

    found: dict[str, Sequence[MessageQueue]] = {}
    with cluster.session() as session:
        for topic in sorted(topics):
            try:
                found[topic] = sorted(write_queues(topic, wait(session.route(topic))))
            except RouteNotFound:
                raise JobError(
                    f"topic {topic} does not exist: create it first, with as many queues, or "
                    "send to another one with --to"
                ) from None
            except MQError as error:
                raise BrokersAway(f"no name server answers: {error}") from None
            if not found[topic]:
                raise JobError(f"topic {topic} has no queue that can be written to now")
    return found
