"""Report how evenly messages are spread over queues, and which keys have most of them.

For each topic: messages and bytes per queue, empty queues included, and their coefficient of
variation (the standard deviation over the mean: 0 is even, and above 0.25 one consumer has
noticeably more work than another). For each topic and kind of value (keys, tags, sharding key, or a
property of --property): the --top values with most messages, and what can be done about it.

Bytes are those in the broker's log, with bodies compressed as they are there. A message with
several keys counts for each one of them.

Up to --exact messages the values are counted exactly. Above that they are counted by a sketch, with
little memory: then bytes are unknown, and counts may be off by 0.003 % of all values of a kind.
Spark 4.0 has no such sketch: there they are always counted exactly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from mq.client.operations.columns import flag, number, text
from mq.pipeline import parsing
from mq.pipeline.jobs import pictures
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.choice import MessageChoice
from mq.pipeline.jobs.declaration import option
from mq.pipeline.jobs.job_result import JobResult, Shape, Table
from mq.pipeline.jobs.page import Section, page
from mq.pipeline.offsets import Queue
from mq.protocol.properties import KEY_SEPARATOR, PropertyKey

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TOPICS = Shape(
    "topics",
    "How even topics are",
    (
        text("topic", "Topic"),
        number("queues", "Queues"),
        number("emptyQueues", "Empty"),
        number("messages", "Messages"),
        number("bytes", "Bytes"),
        number("variation", "Variation"),
        number("variationBytes", "Variation of bytes"),
        number("greatestShare", "Greatest share %"),
        text("advice", "What to do"),
    ),
)
QUEUES = Shape(
    "queues",
    "Messages by queue",
    (
        text("topic", "Topic"),
        text("brokerName", "Broker"),
        number("queueId", "Queue"),
        number("messages", "Messages"),
        number("bytes", "Bytes"),
        number("share", "Share %"),
    ),
)
VALUES = Shape(
    "values",
    "Values with most messages",
    (
        text("topic", "Topic"),
        text("of", "Of"),
        text("value", "Value"),
        number("messages", "Messages"),
        number("bytes", "Bytes"),
        number("share", "Share %"),
        flag("exact", "Exact"),
    ),
)
TABLES = (TOPICS, QUEUES, VALUES)
REPORTS = True
EXAMPLE = "--topic Orders"

READ = (
    "topic string, brokerName string, queueId int, storedSize int, tags string, keys string, "
    "properties map<string,string>"
)
SHARDING_KEY = "sharding key"

_UNEVEN = 0.25
_TRACKED = 100_000  # values that the sketch keeps at a time
_DRAWN = 24


@dataclass(frozen=True, kw_only=True)
class Options(MessageChoice):
    """Options of the report."""

    top: int = option(
        "top",
        parsing.number(1, 1000),
        "Number of values of each kind that are shown.",
        example="50",
        default=20,
        metavar="N",
    )
    property: str | None = option(
        "property",
        parsing.text,
        "Count the values of this property, too.",
        example="customerId",
        default=None,
        metavar="NAME",
    )
    exact: int = option(
        "exact",
        parsing.number(0, 2**53),
        "Number of messages up to which values are counted exactly.",
        example="1000000",
        default=50_000_000,
        metavar="N",
    )


class Skew(NamedTuple):
    """The skew of some counts; `share` is the fraction of the greatest one."""

    variation: float
    share: float


def skew_of(counts: Sequence[int]) -> Skew:
    """Return the coefficient of variation, and the greatest share; 0 and 0 without counts."""
    total = sum(counts)
    if not total:
        return Skew(0.0, 0.0)
    mean = total / len(counts)
    spread = (sum((count - mean) ** 2 for count in counts) / len(counts)) ** 0.5
    return Skew(spread / mean, max(counts) / total)


def by_queue(messages: "DataFrame") -> "DataFrame":
    """Return a row per queue that has messages: topic, brokerName, queueId, messages, bytes."""
    from pyspark.sql import functions as f

    return messages.groupBy("topic", "brokerName", "queueId").agg(
        f.count("*").alias("messages"), f.sum("storedSize").alias("bytes")
    )


def valued(messages: "DataFrame", property_name: str | None = None) -> "DataFrame":
    """Return a row for each value that a message has: topic, of (keys, tags, …), value, size."""
    from pyspark.sql import functions as f

    properties = f.col("properties")
    lists = {
        "keys": f.split("keys", KEY_SEPARATOR),
        "tags": f.array("tags"),
        SHARDING_KEY: f.array(properties[PropertyKey.SHARDING_KEY]),
    }
    if property_name is not None:
        lists[f"property {property_name}"] = f.array(properties[property_name])
    structs = [f.transform(values, _named(kind)) for kind, values in lists.items()]
    every = f.concat(*(f.coalesce(each, f.array()) for each in structs))
    return (
        messages.select("topic", f.explode(every).alias("one"), f.col("storedSize").alias("size"))
        .select("topic", "one.of", "one.value", "size")
        .where("value is not null and value != ''")
    )


def _named(kind: str) -> "Callable[[Column], Column]":
    """Return a function that builds a structure of a value and its kind."""
    from pyspark.sql import functions as f

    return lambda value: f.struct(f.lit(kind).alias("of"), value.alias("value"))


def top_values(values: "DataFrame", top: int, *, exact: bool) -> "DataFrame":
    """Select from `valued` the values with most messages of each topic and kind: columns of
    `VALUES`.

    Before Spark 4.1, which has no sketch for it, they are counted exactly.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = ["topic", "of"]
    exact = exact or not values.sparkSession.catalog.functionExists("approx_top_k")
    if exact:
        counted = values.groupBy(*key, "value").agg(
            f.count("*").alias("messages"), f.sum("size").alias("bytes")
        )
        total = f.sum("messages").over(Window.partitionBy(*key))
        place = f.row_number().over(Window.partitionBy(*key).orderBy(f.desc("messages"), "value"))
        found = counted.select("*", total.alias("total"), place.alias("place")).where(
            f.col("place") <= top
        )
    else:
        sketch = f.expr(f"approx_top_k(value, {top}, {max(_TRACKED, top)})")
        found = (
            values.groupBy(*key)
            .agg(sketch.alias("tops"), f.count("*").alias("total"))
            .select(*key, "total", f.explode("tops").alias("one"))
            .select(
                *key,
                f.col("one.item").alias("value"),
                f.col("one.count").alias("messages"),
                f.lit(None).cast("bigint").alias("bytes"),
                "total",
            )
        )
    return found.select(
        *key,
        "value",
        "messages",
        "bytes",
        f.round(100 * f.col("messages") / f.col("total"), 2).alias("share"),
        f.lit(exact).alias("exact"),
    ).orderBy(*key, f.desc("messages"), "value")


def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult:
    """Report."""
    sizes = _queues(options, cluster)
    exact = sum(sizes.values()) <= options.exact
    messages = cluster.read(spark, READ, **options.source_options()).persist()
    counted = {
        Queue(row[0], row[1], row[2]): (row[3], row[4]) for row in by_queue(messages).collect()
    }
    values = VALUES.collect(
        top_values(valued(messages, options.property), options.top, exact=exact)
    )
    messages.unpersist()
    queues = _with_shares({**dict.fromkeys(sizes, (0, 0)), **counted})
    topics = TOPICS.of(_topic_rows(queues, values))
    return JobResult([topics, queues, values], page=_page(topics, queues, values))


def advice(
    counts: Sequence[int], brokers: int, hot: tuple[str, float] | None, several_keys: bool
) -> str:
    """Return advice for queues with these counts. `hot` is the sharding key with most messages, and
    its share of those that have one; `several_keys` tells whether there are others.
    """
    if len(counts) == 1:
        return (
            "one queue: one consumer of a group gets everything; add queues to use more consumers"
        )
    if not sum(counts):
        return "no messages"
    skew = skew_of(counts)
    empty = sum(1 for count in counts if not count)
    if hot is not None and hot[1] > 1.5 / len(counts) and skew.variation > _UNEVEN:
        return (
            f"sharding key {hot[0]} has {100 * hot[1]:.0f} % of its topic, and a queue gets all of "
            "a key: split the key where order allows it; more queues do not help"
        )
    if skew.variation <= _UNEVEN:
        return "even"
    if hot is not None and several_keys:
        return (
            "no sharding key is hot, but they fall on few queues: use keys with more different "
            "values, or a number of queues over which keys spread well"
        )
    if empty:
        return (
            f"{empty} queues are empty: were they added lately, or do producers choose queues by "
            "a value that has few different ones?"
        )
    if brokers > 1:
        return "compare brokers: was one added lately, read-only or unavailable for a while?"
    return "producers choose queues by themselves: check how they do"


def _topic_rows(queues: Table, values: Table) -> Iterable[tuple[object, ...]]:
    by_topic: dict[str, list[tuple[object, ...]]] = {}
    for row in queues.rows:
        by_topic.setdefault(row[0], []).append(row)
    for topic, rows in sorted(by_topic.items()):
        counts = [int(str(row[3])) for row in rows]
        sizes = [int(str(row[4])) for row in rows]
        keys = [(row[2], row[5] / 100) for row in values.rows if row[:2] == (topic, SHARDING_KEY)]
        brokers = len({row[1] for row in rows})
        skew = skew_of(counts)
        yield (
            *(topic, len(rows), sum(1 for count in counts if not count), sum(counts), sum(sizes)),
            *(round(skew.variation, 3), round(skew_of(sizes).variation, 3)),
            round(100 * skew.share, 2),
            advice(counts, brokers, keys[0] if keys else None, len(keys) > 1),
        )


def _with_shares(counted: Mapping[Queue, tuple[int, int]]) -> Table:
    totals: dict[str, int] = {}
    for queue, (messages, _) in counted.items():
        totals[queue.topic] = totals.get(queue.topic, 0) + messages
    return QUEUES.of(
        (*queue, messages, size, round(100 * messages / (totals[queue.topic] or 1), 2))
        for queue, (messages, size) in sorted(counted.items())
    )


def _queues(options: Options, cluster: ClusterAccess) -> dict[Queue, int]:
    """Return all queues of the topics, each with the maximum number of its messages."""
    from mq.pipeline.cluster import Cluster
    from mq.pipeline.options import parse_options

    with Cluster(parse_options(cluster.options(**options.source_options()))) as asked:
        bounds = asked.bounds(asked.topics())
    return {queue: at.end - at.begin for queue, at in bounds.items()}


def _page(topics: Table, queues: Table, values: Table) -> str:
    uneven = [row for row in topics.rows if row[5] > _UNEVEN]
    summary = f"{len(topics.rows)} topics, {len(uneven)} of them uneven."
    greatest = sorted(queues.rows, key=lambda row: -row[3])[:_DRAWN]
    by_queue = [(f"{row[0]} {row[1]} {row[2]}", row[3]) for row in sorted(greatest)]
    most = sorted(values.rows, key=lambda row: -row[3])[:_DRAWN]
    by_value = [(f"{row[0]} {row[1]} {row[2]}", row[3]) for row in most]
    sections = [
        Section("Topics", table=topics),
        Section("Queues", "", pictures.bars("Messages by queue", by_queue), queues),
        Section("Values", "", pictures.bars("Values with most messages", by_value), values),
    ]
    return page("Skew of topics", sections, datetime.now(UTC), summary)
