"""Keep the last message of each key of a topic, as Parquet or in another topic.

The key is the whole text of the message's keys, as brokers of 5.x compact topics, or with
--property the value of a property. Of a key's messages in one queue the last is that with the
greatest offset. If a key is in several queues (no sharding key kept it in one), the last messages
of the queues are compared by their store times.

A message with an empty body deletes its key: the result has no message of it. Few clients can send
one, so --tombstone-tag names a tag that means the same. Messages without the key are left out and
counted.

The last message of a key may have a body that cannot be decompressed; this is reported. Parquet
then has the body as it is stored, with the reason in the column bodyError; a topic has no message
of that key.

Parquet is written to a new folder, which appears when it is complete; --replace overwrites it. In a
topic the messages of a key go to the same queue, by a sharding key, and otherwise have no order.
Messages that were there before stay: the topic should be empty, or compacted, too.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.operations.columns import number, text
from mq.pipeline import parsing
from mq.pipeline.jobs import archive
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.choice import MessageChoice
from mq.pipeline.jobs.declaration import JobError, option, switch
from mq.pipeline.jobs.job_result import JobResult, Shape, damage_report
from mq.pipeline.jobs.storage import Folder
from mq.protocol.names import check_topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

READ = archive.READ
SCHEMA = f"key string, {READ}"

COUNTS = Shape(
    "counts",
    "What was compacted",
    (
        text("topic", "Topic"),
        number("messages", "Messages"),
        number("withoutKey", "Without the key"),
        number("keys", "Keys"),
        number("deleted", "Deleted keys"),
        number("kept", "Kept messages"),
    ),
)
TABLES = (COUNTS,)
EXAMPLE = "--topic Customers --folder /data/customers"
WRITES = f"Parquet with the columns {SCHEMA}; or messages in a topic"


@dataclass(frozen=True, kw_only=True)
class Options(MessageChoice):
    """Options of a compaction."""

    folder: str | None = option(
        "folder",
        parsing.text,
        "Write Parquet to this folder.",
        example="/data/customers",
        default=None,
        metavar="DIR",
    )
    to: str | None = option(
        "to",
        check_topic,
        "Send to this topic, instead of --folder.",
        example="Customers-last",
        default=None,
        metavar="TOPIC",
    )
    property: str | None = option(
        "property",
        parsing.text,
        "The key is the value of this property, instead of the message's keys.",
        example="customerId",
        default=None,
        metavar="NAME",
    )
    tombstone_tag: str | None = option(
        "tombstone-tag",
        parsing.text,
        "A message with this tag deletes its key, as one with an empty body does.",
        example="deleted",
        default=None,
        metavar="TAG",
    )
    replace: bool = switch("replace", "Replace what is in the folder.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.folder is None) == (self.to is None):
            raise ValueError("give either --folder or --to, for example --folder /data/customers")
        if self.to is not None and self.to in self.topic:
            raise ValueError("--to is one of the topics that are read; give another one")


def with_key(messages: "DataFrame", property_name: str | None = None) -> "DataFrame":
    """Add `key`: the keys of a message, or a property of it; null if it has none."""
    from pyspark.sql import functions as f

    key = f.col("keys") if property_name is None else f.col("properties")[property_name]
    return messages.select(f.nullif(key, f.lit("")).alias("key"), "*")


def last_by_key(keyed: "DataFrame") -> "DataFrame":
    """Return the last message of each topic and key, and `messages`, how many there were.

    This includes the last message without a key, with a null key.
    """
    from pyspark.sql import functions as f

    message = f.struct(*[name for name in keyed.columns if name not in ("topic", "key")])
    in_queue = keyed.groupBy("topic", "key", "brokerName", "queueId").agg(
        f.max_by(message, "queueOffset").alias("message"), f.count("*").alias("messages")
    )
    stored = f.struct(
        f.col("message.storeTimestamp"), f.col("message.queueOffset"), "brokerName", "queueId"
    )
    return (
        in_queue.groupBy("topic", "key")
        .agg(f.max_by("message", stored).alias("message"), f.sum("messages").alias("messages"))
        .select("key", "topic", "message.*", "messages")
        .select(*keyed.columns, "messages")
    )


def is_tombstone(tag: str | None = None) -> "Column":
    """Whether a message deletes its key."""
    from pyspark.sql import functions as f

    empty = f.coalesce(f.length("body") == 0, f.lit(True))
    return empty if tag is None else empty | f.coalesce(f.col("tags") == tag, f.lit(False))


def kept(last: "DataFrame", tag: str | None = None) -> "DataFrame":
    """Select from `last_by_key` the messages that the result has."""
    return last.where("key is not null").where(~is_tombstone(tag)).drop("messages")


def counts(last: "DataFrame", tag: str | None = None) -> "DataFrame":
    """Summarize `last_by_key`: a row per topic, with the columns of `COUNTS`."""
    from pyspark.sql import functions as f

    has_key = f.col("key").isNotNull()
    without = f.when(~has_key, f.col("messages")).otherwise(0)
    return (
        last.groupBy("topic")
        .agg(
            f.sum("messages").alias("messages"),
            f.sum(without).alias("withoutKey"),
            f.count_if(has_key).alias("keys"),
            f.count_if(has_key & is_tombstone(tag)).alias("deleted"),
        )
        .withColumn("kept", f.col("keys") - f.col("deleted"))
        .orderBy("topic")
    )


def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult:
    """Compact. Raises JobError."""
    folder = None if options.folder is None else Folder(spark, options.folder)
    if folder is not None:
        _check(folder, options.replace)
    messages = cluster.read(spark, READ, failOnDamage="false", **options.source_options())
    last = last_by_key(with_key(messages, options.property)).persist()
    result = kept(last, options.tombstone_tag)
    damaged = result.where("bodyError is not null").count()
    what_became = "written as they are stored" if folder is not None else "not sent"
    if folder is not None:
        folder.write_whole(result)
        notes = [f"written: {folder.path}"]
    else:
        assert options.to is not None
        _send(result.where("bodyError is null"), options.to, cluster)
        notes = [f"sent to topic {options.to}"]
    table = COUNTS.collect(counts(last, options.tombstone_tag))
    last.unpersist()
    without = sum(row[2] for row in table.rows)
    if without:
        name = "keys" if options.property is None else f"property {options.property}"
        notes.append(f"{without} messages have no {name} and were left out")
    return JobResult([table], damage_report(damaged, what_became), notes)


def _check(folder: Folder, replace: bool) -> None:
    found = folder.files()
    if not found:
        return
    if not replace:
        raise JobError(f"{folder.path} has files already: give a new folder, or --replace")
    if any(not name.endswith(".parquet") for name in found):
        raise JobError(
            f"{folder.path} has files that are no Parquet, such as {found[0]}: --replace would "
            "delete them; give another folder"
        )


def _send(messages: "DataFrame", topic: str, cluster: ClusterAccess) -> None:
    from pyspark.sql import functions as f

    rows = messages.select(
        "body", "tags", "keys", "properties", "flag", f.col("key").alias("shardingKey")
    )
    writer = rows.write.format("rocketmq").options(**cluster.options(topic=topic))
    writer.mode("append").save()
