"""Report latencies, failures and retries per topic and group, from the traces of clients.

Clients with tracing write what they send and consume to a topic of its own. For each topic and
group: how long sends took; how long a message waited from the end of its send to its first delivery
to a listener (it is stored shortly before that end); how long listeners took; and end to end, from
the beginning of the send to the end of the first successful consumption, retries included.
Percentiles are exact up to some ten thousand messages of a group, and beyond that off by 0.01 % of
the ranks.

Times are those of the clients' clocks: if a message was delivered before its send ended, the wait
counts as 0 and is in the column "Clocks differ". A consumer's entries do not name the topic: it
comes from the producer's entries, and is "(not traced)" if there are none in the chosen time.
Deliveries without an end were in progress, or their consumer died.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mq.client.hooks import ConsumeOutcome
from mq.client.operations.columns import Column as Field
from mq.client.operations.columns import number, text
from mq.pipeline.jobs import pictures
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.choice import expected_brokers_option, time_option
from mq.pipeline.jobs.declaration import JobError, option
from mq.pipeline.jobs.job_result import JobResult, Shape, Table
from mq.pipeline.jobs.page import Section, page
from mq.protocol.names import TRACE_TOPIC, check_topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NOT_TRACED = "(not traced)"

_PERCENTS = (50.0, 90.0, 99.0)
_CURVE = (0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99)
_ACCURACY = 10_000
_DRAWN = 8


def _latencies(name: str, title: str) -> tuple[Field, ...]:
    """Return columns for the percentiles and the maximum of some latencies, in ms."""
    return (
        *(number(f"{name}P{percent:g}", f"{title} {percent:g} % ms") for percent in _PERCENTS),
        number(f"{name}Max", f"{title} max ms"),
    )


SENDS = Shape(
    "sends",
    "Sends by topic and producer group",
    (
        text("topic", "Topic"),
        text("group", "Producer group"),
        number("messages", "Messages"),
        number("failed", "Failed"),
        *_latencies("send", "Send"),
    ),
)
CONSUMES = Shape(
    "consumes",
    "Deliveries by topic and consumer group",
    (
        text("topic", "Topic"),
        text("group", "Consumer group"),
        number("messages", "Messages"),
        number("deliveries", "Deliveries"),
        number("retries", "Retries"),
        number("failed", "Failed"),
        number("unfinished", "Without an end"),
        number("clocksDiffer", "Clocks differ"),
        *_latencies("wait", "Wait"),
        *_latencies("consume", "Consume"),
        *_latencies("endToEnd", "End to end"),
    ),
)
OUTCOMES = Shape(
    "outcomes",
    "How consuming and transactions ended",
    (text("group", "Group"), text("outcome", "Outcome"), number("count", "Count")),
)
TABLES = (SENDS, CONSUMES, OUTCOMES)
REPORTS = True


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the report."""

    trace_topic: str = option(
        "trace-topic",
        check_topic,
        "The topic that clients write traces to.",
        example="my_traces",
        default=TRACE_TOPIC,
        metavar="TOPIC",
    )
    expected_brokers: tuple[str, ...] = expected_brokers_option(
        "Brokers that the topic must be at: fail if one of them is down, which is not detected "
        "otherwise."
    )
    begin: int | None = time_option(
        "begin", "Only traces stored from this time on.", "2026-01-31T08:00:00+01:00"
    )
    end: int | None = time_option(
        "end", "Only traces stored before this time.", "2026-01-31T09:00:00+01:00"
    )


def sends(entries: "DataFrame") -> "DataFrame":
    """Return a row per topic and producer group, with the columns of `SENDS`."""
    from pyspark.sql import functions as f

    return (
        entries.where("kind = 'Pub'")
        .groupBy("topic", "group")
        .agg(
            f.count("*").alias("messages"),
            f.count_if(~f.col("success")).alias("failed"),
            *_measured("send", f.when(f.col("success"), f.col("cost"))),
        )
        .orderBy(f.desc("messages"), "topic", "group")
    )


def deliveries(entries: "DataFrame") -> "DataFrame":
    """Return a row for each delivery of a message to a listener.

    Columns: topic, group, messageId, retryTimes, first (whether it is the message's first one to
    the group); in ms: wait (null unless first), clocksDiffer, cost (null without an end), success,
    outcome, endToEnd (null unless successful and both sides were traced).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    sent = (
        entries.where("kind = 'Pub' and success")
        .groupBy("messageId")
        .agg(
            f.min("topic").alias("topic"),
            f.min("timestamp").alias("begun"),
            f.min(f.col("timestamp") + f.col("cost")).alias("sent"),
        )
    )
    before = entries.where("kind = 'SubBefore'").select(
        "group", "messageId", "requestId", "retryTimes", f.col("timestamp").alias("delivered")
    )
    after = (
        entries.where("kind = 'SubAfter'")
        .groupBy("requestId", "messageId")
        .agg(
            f.max("cost").alias("cost"),
            f.min("success").alias("success"),
            f.max("outcome").alias("outcome"),
        )
    )
    order = Window.partitionBy("group", "messageId").orderBy("delivered", "requestId")
    waited = f.col("delivered") - f.col("sent")
    ended = f.col("delivered") + f.col("cost") - f.col("begun")
    first = f.row_number().over(order) == 1
    return (
        before.join(after, ["requestId", "messageId"], "left")
        .join(sent, "messageId", "left")
        .select(
            f.coalesce("topic", f.lit(NOT_TRACED)).alias("topic"),
            "group",
            "messageId",
            "retryTimes",
            first.alias("first"),
            f.when(first & waited.isNotNull(), f.greatest(waited, f.lit(0))).alias("wait"),
            f.coalesce(first & (waited < 0), f.lit(False)).alias("clocksDiffer"),
            "cost",
            "success",
            "outcome",
            f.when(f.col("success") & ended.isNotNull(), f.greatest(ended, f.lit(0))).alias(
                "endToEnd"
            ),
        )
    )


def consumes(delivered: "DataFrame") -> "DataFrame":
    """Summarize `deliveries`: a row per topic and consumer group, with the columns of `CONSUMES`,
    and `waitCurve`, the waits at the percentiles that are drawn.
    """
    from pyspark.sql import functions as f

    once = delivered.groupBy("topic", "group", "messageId").agg(
        f.count("*").alias("deliveries"),
        f.count_if(f.col("retryTimes") > 0).alias("retries"),
        f.count_if(~f.col("success")).alias("failed"),
        f.count_if(f.col("success").isNull()).alias("unfinished"),
        f.count_if("clocksDiffer").alias("clocksDiffer"),
        f.max("wait").alias("wait"),
        f.min("endToEnd").alias("endToEnd"),
    )
    counts = ("deliveries", "retries", "failed", "unfinished", "clocksDiffer")
    costs = delivered.groupBy("topic", "group").agg(*_measured("consume", f.col("cost")))
    whole = once.groupBy("topic", "group").agg(
        f.count("*").alias("messages"),
        *(f.sum(name).alias(name) for name in counts),
        *_measured("wait", f.col("wait")),
        *_measured("endToEnd", f.col("endToEnd")),
        _percentiles(f.col("wait"), _CURVE).alias("waitCurve"),
    )
    names = [column.name for column in CONSUMES.columns]
    return (
        whole.join(costs, ["topic", "group"])
        .select(*names, "waitCurve")
        .orderBy(f.desc("messages"), "topic", "group")
    )


def outcomes(entries: "DataFrame") -> "DataFrame":
    """Count the outcomes of consuming and of transactions, by group: the columns of `OUTCOMES`."""
    from pyspark.sql import functions as f

    names = f.create_map(
        *(f.lit(part) for each in ConsumeOutcome for part in (each.value, each.name))
    )
    groups = entries.where("kind = 'SubBefore'").select("requestId", "messageId", "group")
    consumed = (
        entries.where("kind = 'SubAfter'")
        .drop("group")
        .join(groups.distinct(), ["requestId", "messageId"])
        .select("group", names[f.col("outcome")].alias("outcome"))
    )
    ended = entries.where("kind = 'EndTransaction'").select("group", f.col("state"))
    return (
        consumed.union(ended)
        .groupBy("group", "outcome")
        .agg(f.count("*").alias("count"))
        .orderBy("group", f.desc("count"))
    )


def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult:
    """Report. Raises JobError if there are no traces."""
    from mq.pipeline.jobs.trace_entries import entries

    # a damaged body is a malformed trace
    chosen = {"topic": options.trace_topic, "failOnDamage": "false"}
    if options.expected_brokers:
        chosen["expectedBrokers"] = ",".join(options.expected_brokers)
    if options.begin is not None:
        chosen["startingTimestamp"] = str(options.begin)
    if options.end is not None:
        chosen["endingTimestamp"] = str(options.end)
    rows = entries(cluster.read(spark, "body binary", **chosen)).persist()
    kinds = {row.kind: row["count"] for row in rows.groupBy("kind").count().collect()}
    if not kinds.keys() - {"Malformed"}:
        raise JobError(
            f"topic {options.trace_topic} has no traces in the chosen time: enable tracing in "
            "clients (Java: enableMsgTrace, mq: trace=True), and traceTopicEnable=true in brokers"
        )
    counted = consumes(deliveries(rows)).persist()
    tables = [
        SENDS.collect(sends(rows)),
        CONSUMES.collect(counted),
        OUTCOMES.collect(outcomes(rows)),
    ]
    drawn = counted.where("waitCurve is not null").limit(_DRAWN)
    curves = {
        f"{row.group} on {row.topic}": list(zip(_CURVE, row.waitCurve, strict=True))
        for row in drawn.select("group", "topic", "waitCurve").collect()
    }
    for frame in (counted, rows):
        frame.unpersist()
    malformed = kinds.get("Malformed", 0)
    failures = [f"{malformed} traces cannot be read to their end"] * bool(malformed)
    return JobResult(tables, failures, page=_page(tables, curves))


def _page(tables: Sequence[Table], curves: dict[str, list[tuple[float, float]]]) -> str:
    sent, consumed, ended = tables
    slow = [(f"{row[1]} on {row[0]}", row[6]) for row in sent.rows[:_DRAWN] if row[6] is not None]
    sections = [
        Section(
            "Sends",
            "",
            pictures.bars("99 % of sends took at most", slow, pictures.short_time),
            sent,
        ),
        Section(
            "From the send to the consumer",
            "How long messages waited, from the end of their send to their first delivery.",
            pictures.percentiles("Wait of messages by percentile", curves),
            consumed,
        ),
        Section("How it ended", table=ended),
    ]
    summary = (
        f"{sum(row[2] for row in sent.rows)} messages sent,"
        f" {sum(row[3] for row in sent.rows)} sends failed,"
        f" {sum(row[3] for row in consumed.rows)} deliveries,"
        f" {sum(row[5] for row in consumed.rows)} failed."
    )
    return page("Message traces", sections, datetime.now(UTC), summary)


def _measured(name: str, value: "Column") -> list["Column"]:
    """Return the columns of `_latencies`."""
    from pyspark.sql import functions as f

    each = [_percentile(value, percent).alias(f"{name}P{percent:g}") for percent in _PERCENTS]
    return [*each, f.max(value).alias(f"{name}Max")]


def _percentile(value: "Column", percent: float) -> "Column":
    from pyspark.sql import functions as f

    return f.percentile_approx(value, percent / 100, _ACCURACY)


def _percentiles(value: "Column", percents: Sequence[float]) -> "Column":
    from pyspark.sql import functions as f

    return f.percentile_approx(value, [percent / 100 for percent in percents], _ACCURACY)
