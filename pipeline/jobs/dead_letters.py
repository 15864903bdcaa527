"""Report dead letters by group and original topic: how many, since when, and why.

A message becomes a dead letter when its group has failed to consume it after all retries ("retries
used up"), or when it was given up before ("given up early": by the consumer itself, or because the
broker could not redeliver it). Brokers do not keep the exception of the listener: only tags and
times tell failures apart; mq dlq show prints the letters themselves, and mq dlq resend sends them
again.

The age is the time since the message became a dead letter. Letters are deleted by age, as all
messages are (fileReservedTime): an old letter is soon lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.client.operations.columns import number, text, time
from mq.pipeline.jobs import pictures
from mq.pipeline.jobs.access import ClusterAccess
from mq.pipeline.jobs.choice import expected_brokers_option, groups_option, time_option
from mq.pipeline.jobs.declaration import BrokersAway, JobError
from mq.pipeline.jobs.job_result import JobResult, Shape, Table
from mq.pipeline.jobs.page import Section, page
from mq.protocol.names import DEAD_LETTER_PREFIX
from mq.protocol.properties import PropertyKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mq.pipeline.jobs.offsets_of_groups import BrokerAddress

READ = (
    "topic string, properties map<string,string>, tags string, storeTimestamp timestamp, "
    "reconsumeTimes int"
)
RETRIES = 16  # of a group that does not set its own number
NOT_TOLD = "(not told)"

LETTERS = Shape(
    "letters",
    "Dead letters by group and original topic",
    (
        text("group", "Group"),
        text("topic", "Original topic"),
        number("messages", "Messages"),
        number("retriesUsedUp", "Retries used up"),
        number("givenUpEarly", "Given up early"),
        number("mostRetries", "Most retries"),
        time("first", "First"),
        time("last", "Last"),
        text("tags", "Most frequent tags"),
    ),
)
AGES = Shape(
    "ages",
    "Dead letters by age",
    (text("group", "Group"), text("age", "Age"), number("messages", "Messages")),
)
TABLES = (LETTERS, AGES)
REPORTS = True

_TAGS = 3
_DRAWN = 12
_HOUR = 3600
_AGES = (  # upper limits in seconds
    (_HOUR, "under an hour"),
    (24 * _HOUR, "1 to 24 hours"),
    (72 * _HOUR, "1 to 3 days"),
    (168 * _HOUR, "3 to 7 days"),
)
_OLDEST = "7 days or more"
AGE_NAMES = (*(name for _, name in _AGES), _OLDEST)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the report."""

    groups: tuple[str, ...] = groups_option()
    expected_brokers: tuple[str, ...] = expected_brokers_option(
        "Brokers that have to be there: fail when one of them is down, whose letters would not be "
        "counted otherwise."
    )
    begin: int | None = time_option(
        "begin",
        "Only messages that became dead letters from this time on.",
        "2026-01-31T08:00:00+01:00",
    )
    end: int | None = time_option(
        "end",
        "Only messages that became dead letters before this time.",
        "2026-01-31T09:00:00+01:00",
    )


def letters(messages: "DataFrame", limits: Mapping[str, int]) -> "DataFrame":
    """Return a row per dead letter: group, topic, tags, since, retries, usedUp.

    `messages` have the columns of `READ`; `limits` are the retries of groups that differ from
    `RETRIES`. A message with a limit of its own is compared with that.
    """
    from pyspark.sql import functions as f

    properties = f.col("properties")
    # A separate step: Spark 4.0 would take `topic` for the new column of that name.
    messages = messages.withColumn("group", f.substring("topic", len(DEAD_LETTER_PREFIX) + 1, 1000))
    own = f.try_to_number(properties[PropertyKey.MAX_RECONSUME_TIMES], f.lit("999999999"))
    known = [f.lit(part) for each in limits.items() for part in each]
    limit = f.create_map(*known)[f.col("group")] if known else f.lit(None)
    return messages.select(
        "group",
        f.coalesce(
            properties[PropertyKey.RETRY_TOPIC],
            properties[PropertyKey.DLQ_ORIGIN_TOPIC],
            f.lit(NOT_TOLD),
        ).alias("topic"),
        "tags",
        f.col("storeTimestamp").alias("since"),
        f.col("reconsumeTimes").alias("retries"),
        (f.col("reconsumeTimes") >= f.coalesce(own, limit, f.lit(RETRIES))).alias("usedUp"),
    )


def by_topic(letters: "DataFrame") -> "DataFrame":
    """Return a row per group and original topic, with the columns of `LETTERS`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = ["group", "topic"]
    most = Window.partitionBy(*key).orderBy(f.desc("count"), "tags")
    tags = (
        letters.where("tags is not null")
        .groupBy(*key, "tags")
        .count()
        .withColumn("place", f.row_number().over(most))
        .where(f.col("place") <= _TAGS)
        .withColumn("text", f.concat("tags", f.lit(" ("), "count", f.lit(")")))
        .groupBy(*key)
        .agg(f.sort_array(f.collect_list(f.struct("place", "text"))).alias("tags"))
        .select(*key, f.array_join(f.col("tags.text"), ", ").alias("tags"))
    )
    return (
        letters.groupBy(*key)
        .agg(
            f.count("*").alias("messages"),
            f.count_if("usedUp").alias("retriesUsedUp"),
            f.count_if(~f.col("usedUp")).alias("givenUpEarly"),
            f.max("retries").alias("mostRetries"),
            f.min("since").alias("first"),
            f.max("since").alias("last"),
        )
        .join(tags, key, "left")
        .fillna("", ["tags"])
        .orderBy(f.desc("messages"), *key)
    )


def by_age(letters: "DataFrame", now: datetime) -> "DataFrame":
    """Count the letters of each group by age: group, age (of `AGE_NAMES`), messages."""
    from pyspark.sql import functions as f

    seconds = f.lit(now.timestamp()) - f.unix_millis("since") / 1000
    place = f.lit(len(_AGES))
    for index, (edge, _) in reversed(list(enumerate(_AGES))):
        place = f.when(seconds < edge, index).otherwise(place)
    names = f.array(*map(f.lit, AGE_NAMES))
    return (
        letters.groupBy("group", place.alias("place"))
        .agg(f.count("*").alias("messages"))
        .orderBy("group", "place")
        .select("group", f.get(names, f.col("place")).alias("age"), "messages")
    )


def run(spark: "SparkSession", options: Options, cluster: ClusterAccess) -> JobResult:
    """Report. Raises JobError for a group without dead letters, or a broker that is down."""
    now = datetime.now(UTC)
    brokers = _brokers(cluster)
    # A dead letter topic exists only where there are letters, so brokers are checked, not topics.
    absent = sorted({*options.expected_brokers} - {broker.broker_name for broker in brokers})
    if absent:
        raise BrokersAway(f"not registered: {', '.join(absent)}; start it, and run again")
    chosen = {"topicPattern": _pattern(options.groups)}
    if options.begin is not None:
        chosen["startingTimestamp"] = str(options.begin)
    if options.end is not None:
        chosen["endingTimestamp"] = str(options.end)
    limits, failures = _limits(cluster, brokers)
    rows = letters(cluster.read(spark, READ, **chosen), limits).persist()
    found = LETTERS.collect(by_topic(rows))
    ages = AGES.collect(by_age(rows, now))
    rows.unpersist()
    if not found.rows and options.groups:
        raise JobError(
            f"no group that --groups {','.join(options.groups)} names has dead letters in the time "
            "that was chosen; groups that have some: mq dlq list"
        )
    return JobResult([found, ages], failures, page=_page(found, ages, now))


def _page(found: Table, ages: Table, now: datetime) -> str:
    where = [(f"{row[0]}: {row[1]}", row[2]) for row in found.rows[:_DRAWN]]
    by_name = dict.fromkeys(AGE_NAMES, 0)
    for _, age, messages in ages.rows:
        by_name[age] += messages
    sections = [
        Section("Groups and topics", "", pictures.bars("Dead letters", where), found),
        Section("Age", "", pictures.bars("Dead letters by age", list(by_name.items())), ages),
    ]
    total = sum(row[2] for row in found.rows)
    used_up = sum(row[3] for row in found.rows)
    summary = (
        f"{total} dead letters of {len({row[0] for row in found.rows})} groups; {used_up} had "
        f"their retries used up, {total - used_up} were given up early."
    )
    return page("Dead letters", sections, now, summary)


def _pattern(groups: Sequence[str]) -> str:
    """Return a regular expression of the dead letter topics of groups."""
    import re

    wild = [re.escape(name).replace(r"\*", ".*").replace(r"\?", ".") for name in groups or ("*",)]
    return f"{DEAD_LETTER_PREFIX}({'|'.join(wild)})"


def _brokers(cluster: ClusterAccess) -> "list[BrokerAddress]":
    """Return the registered brokers. Raises BrokersAway."""
    from mq.pipeline.declared import ClusterOptions, read_declared
    from mq.pipeline.jobs.offsets_of_groups import broker_addresses

    asked = read_declared(ClusterOptions, cluster.options())
    try:
        return broker_addresses(asked)
    except MQError as error:
        raise BrokersAway(f"no name server answers: {error}; is --namesrvAddr right?") from None


def _limits(
    cluster: ClusterAccess, brokers: "Iterable[BrokerAddress]"
) -> tuple[dict[str, int], list[str]]:
    """Return the retries of groups, and a line for each broker that does not answer."""
    from mq.client.admin import Admin
    from mq.client.transport.blocking import run as wait

    limits = {}
    failures = []
    with cluster.session() as session:
        for broker in brokers:
            try:
                groups = wait(Admin(session).subscription_groups(broker.address))
            except MQError as error:
                failures.append(
                    f"broker {broker.broker_name}: {error}: groups that no other broker knows are "
                    f"taken to retry {RETRIES} times"
                )
                continue
            for name, group in groups.subscription_group_table.items():
                limits[name] = group.retry_max_times
    return limits, failures
