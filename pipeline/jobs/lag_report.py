"""Report how the lag of consumer groups has developed, and when they will have caught up.

Reads the snapshots that `offset-export` has written. Lag is the number of messages between a
group's committed offset in a queue and the queue's end. Rates are those of the last --window before
the last snapshot: the messages per second that the group consumed and that producers sent, over all
queues. A group that consumes faster than producers send has caught up after lag / (difference);
otherwise, at this rate it never will. An offset that decreased, by a reset or because a topic was
recreated, is not counted as consumption.

A queue is stalled if it has lag in all snapshots of the window, and its group has committed nothing
new in it since the first of them.

A group with one snapshot in the window has a lag, but no rates.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mq.client.operations.columns import number, text, time
from mq.pipeline import parsing
from mq.pipeline.jobs import pictures, snapshots
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.choice import groups_option, time_option, topics_option
from mq.pipeline.jobs.declaration import JobError, option
from mq.pipeline.jobs.job_result import JobResult, Shape, Table
from mq.pipeline.jobs.page import Section, page

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

GROUPS = Shape(
    "groups",
    "Groups: lag, rates and when they will have caught up",
    (
        text("group", "Group"),
        text("topic", "Topic"),
        number("lag", "Lag"),
        number("greatestLag", "Greatest lag"),
        number("consumedPerSecond", "Consumed/s"),
        number("sentPerSecond", "Sent/s"),
        time("caughtUp", "Caught up at"),
        number("snapshots", "Snapshots"),
        time("last", "Last snapshot"),
    ),
)
STALLED = Shape(
    "standing",
    "Stalled queues",
    (
        text("group", "Group"),
        text("topic", "Topic"),
        text("brokerName", "Broker"),
        number("queueId", "Queue"),
        number("consumerOffset", "Offset"),
        number("lag", "Lag"),
        time("since", "Since"),
    ),
)
HISTORY = Shape(
    "history",
    "Lag over time",
    (
        time("snapshotTime", "Time"),
        text("group", "Group"),
        text("topic", "Topic"),
        number("lag", "Lag"),
    ),
)
TABLES = (GROUPS, STALLED, HISTORY)
REPORTS = True

_DRAWN = 8  # lines in a chart
_POINTS = 200  # snapshots of a line that are drawn and listed
_KEY = ("group", "topic")
_QUEUE = (*_KEY, "brokerName", "queueId")


def duration(text: str) -> str:
    """Check a duration such as 15m, and return it as written. Raises ValueError."""
    parsing.seconds(text)
    return text.strip()


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the report."""

    folder: str = snapshots.folder_option("Folder in which `offset-export` keeps its snapshots.")
    layout: str = snapshots.layout_option("File format of the snapshots.")
    groups: tuple[str, ...] = groups_option()
    topics: tuple[str, ...] = topics_option()
    begin: int | None = time_option(
        "begin", "Only snapshots taken from this time on.", "2026-01-31T00:00:00Z"
    )
    end: int | None = time_option(
        "end", "Only snapshots taken before this time.", "2026-02-01T00:00:00Z"
    )
    window: str = option(
        "window",
        duration,
        "Time before the last snapshot for rates and stalled queues.",
        example="15m",
        default="1h",
        metavar="DURATION",
    )


def chosen(frame: "DataFrame", options: Options) -> "DataFrame":
    """Select the snapshots that the options choose; other days are not read."""
    from pyspark.sql import functions as f

    if options.begin is not None:
        begin = datetime.fromtimestamp(options.begin / 1000, UTC)
        frame = frame.where((f.col("day") >= begin.date()) & (f.col("snapshotTime") >= begin))
    if options.end is not None:
        end = datetime.fromtimestamp(options.end / 1000, UTC)
        frame = frame.where((f.col("day") <= end.date()) & (f.col("snapshotTime") < end))
    for column, names in (("group", options.groups), ("topic", options.topics)):
        if names:
            frame = frame.where(f.col(column).rlike(f"^({'|'.join(map(_regex, names))})$"))
    return frame


def lag_over_time(frame: "DataFrame") -> "DataFrame":
    """Return the lag of each group and topic in each snapshot: snapshotTime, group, topic, lag."""
    from pyspark.sql import functions as f

    return frame.groupBy("snapshotTime", *_KEY).agg(f.sum("lag").alias("lag"))


def rates(frame: "DataFrame", window: float) -> "DataFrame":
    """Return a row per group and topic, with the columns of `GROUPS`; `window` in seconds.

    The window of a group ends at its own last snapshot. Groups with the greatest lag come first.
    """
    from pyspark.sql import functions as f

    whole = lag_over_time(frame).groupBy(*_KEY)
    overall = whole.agg(
        f.max("lag").alias("greatestLag"),
        f.max_by("lag", "snapshotTime").alias("lag"),
        f.count("*").alias("snapshots"),
        f.max("snapshotTime").alias("last"),
    )
    moved = _steps(_recent(frame, window)).groupBy(*_KEY)
    seconds = _seconds("ended") - _seconds("began")
    speeds = moved.agg(
        f.sum("consumed").alias("consumed"),
        f.sum("sent").alias("sent"),
        f.min("snapshotTime").alias("began"),
        f.max("snapshotTime").alias("ended"),
    ).select(
        *_KEY,
        f.round(f.try_divide("consumed", seconds), 3).alias("consumedPerSecond"),
        f.round(f.try_divide("sent", seconds), 3).alias("sentPerSecond"),
    )
    gain = f.col("consumedPerSecond") - f.col("sentPerSecond")
    after = f.when(f.col("lag") == 0, 0.0).when(gain > 0, f.col("lag") / gain)
    caught_up = f.timestamp_millis((_seconds("last") * 1000 + after * 1000).cast("bigint"))
    return (
        overall.join(speeds, list(_KEY), "left")
        .withColumn("caughtUp", caught_up)
        .select(*[column.name for column in GROUPS.columns])
        .orderBy(f.desc("lag"), *_KEY)
    )


def stalled_queues(frame: "DataFrame", window: float) -> "DataFrame":
    """Return queues with lag in all snapshots of the window, at least two, and an unchanged offset.

    Columns as in `STALLED`; `since` is the first snapshot of the window.
    """
    from pyspark.sql import functions as f

    offset = f.coalesce("consumerOffset", f.lit(-1))
    return (
        _recent(frame, window)
        .groupBy(*_QUEUE)
        .agg(
            f.max("consumerOffset").alias("consumerOffset"),
            f.max_by("lag", "snapshotTime").alias("lag"),
            f.min("snapshotTime").alias("since"),
            f.count("*").alias("seen"),
            f.min("lag").alias("least"),
            (f.max(offset) - f.min(offset)).alias("moved"),
        )
        .where("seen > 1 and least > 0 and moved = 0")
        .select(*[column.name for column in STALLED.columns])
        .orderBy(f.desc("lag"), *_QUEUE)
    )


def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult:
    """Report. Raises JobError if there are no such snapshots."""
    frame = chosen(snapshots.read(spark, options.folder, options.layout), options).persist()
    window = parsing.seconds(options.window)
    groups = GROUPS.collect(rates(frame, window))
    if not groups.rows:
        raise JobError(
            f"the snapshots in {options.folder} have nothing that --groups, --topics, --begin "
            "and --end choose; give fewer of them"
        )
    stalled = STALLED.collect(stalled_queues(frame, window))
    history = _history(frame, groups)
    frame.unpersist()
    return JobResult([groups, stalled, history], page=_page(groups, stalled, history))


def _history(frame: "DataFrame", groups: Table) -> Table:
    """Return the lag over time of the groups with the greatest lag, in as many snapshots as a chart
    shows.
    """
    from pyspark.sql import functions as f

    worst = [row[:2] for row in groups.rows[:_DRAWN]]
    drawn = f.lit(False)
    for group, topic in worst:
        drawn = drawn | ((f.col("group") == group) & (f.col("topic") == topic))
    lags = lag_over_time(frame.where(drawn))
    times = sorted(row[0] for row in lags.select("snapshotTime").distinct().collect())
    step = -(-len(times) // _POINTS)
    kept = lags.where(f.col("snapshotTime").isin(times[::-1][:: step or 1]))
    return HISTORY.collect(kept.orderBy("snapshotTime", *_KEY))


def _page(groups: Table, stalled: Table, history: Table) -> str:
    series: dict[str, list[tuple[float, float]]] = {
        f"{row[0]} on {row[1]}": [] for row in groups.rows[:_DRAWN]
    }
    for moment, group, topic, lag in history.rows:
        series[f"{group} on {topic}"].append((moment / 1000, lag))
    behind = [(f"{row[0]} on {row[1]}", row[2]) for row in groups.rows[:_DRAWN] if row[2]]
    never = [row for row in groups.rows if row[2] and row[4] is not None and row[6] is None]
    summary = (
        f"{len(groups.rows)} groups and topics; {sum(1 for row in groups.rows if row[2])} have lag,"
        f" {len(never)} do not catch up at their present rate, {len(stalled.rows)} queues are"
        " stalled."
    )
    sections = [
        Section("Lag now", "", pictures.bars("Lag now", behind), groups),
        Section(
            "Stalled queues",
            "If the group has consumers, read their logs or run mq consumer status;\n"
            "to find queues without a consumer, run mq consumer progress.",
            table=stalled,
        ),
        Section("Lag over time", "", pictures.over_time("Lag over time", series), history),
    ]
    return page("Lag of consumer groups", sections, datetime.now(UTC), summary)


def _recent(frame: "DataFrame", window: float) -> "DataFrame":
    """Select the snapshots of each group and topic in the window before its last one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    last = f.max("snapshotTime").over(Window.partitionBy(*_KEY))
    recent = frame.withColumn("last", last)
    return recent.where(_seconds("snapshotTime") >= _seconds("last") - window).drop("last")


def _steps(frame: "DataFrame") -> "DataFrame":
    """Add the messages consumed and sent in each queue since the previous snapshot."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    before = Window.partitionBy(*_QUEUE).orderBy("snapshotTime")
    consumer = f.coalesce("consumerOffset", "minOffset")
    zero = f.lit(0)
    return frame.select(
        "*",
        f.greatest(consumer - f.lag(consumer).over(before), zero).alias("consumed"),
        f.greatest(f.col("brokerOffset") - f.lag("brokerOffset").over(before), zero).alias("sent"),
    )


def _seconds(column: str) -> "Column":
    from pyspark.sql import functions as f

    return f.unix_millis(column) / 1000


def _regex(pattern: str) -> str:
    """Convert a glob pattern to a regular expression of Java."""
    special = "\\.[]{}()+-^$|"
    escaped = "".join(f"\\{letter}" if letter in special else letter for letter in pattern)
    return escaped.replace("*", ".*").replace("?", ".")
