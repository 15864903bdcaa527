"""The first page of a cluster: problems, rates, lag, disks."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from mq.client.operations.doctor.finding import Severity
from mq.daemons.console.call import Call
from mq.daemons.console.charts.history_charts import SPAN, ChartData, ChartLine, drawn
from mq.daemons.console.collector.snapshot import ClusterRow, Problem
from mq.daemons.console.route import N_, Event, Page, Permission, Route, Sheet, Stream

TOP = 10
# The minimum interval of events for a page with live updates, in s.
NEWS_SECONDS = 5.0
_CHARTED = 5  # groups

# The subjects of findings by their checks: users see the findings of subjects that they may see.
_OF_GROUPS = frozenset(("lag", "members", "subscription", "dead-letter"))
_OF_TOPICS = frozenset(("topic", "route", "permission", "queues"))


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A problem, as in `mq doctor`."""

    severity: str
    check: str
    subject: str
    detail: str
    hint: str | None
    link: str | None  # a path below the cluster


@dataclass(frozen=True, slots=True)
class TopTopic:
    """A topic with a high incoming rate."""

    topic: str
    in_rate: float | None
    out_rate: float | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class TopGroup:
    """A group with a high lag."""

    group: str
    lag: int | None
    lag_rate: float | None
    oldest_age_ms: int | None
    consume_rate: float | None
    members: int | None
    seen: int | None


@dataclass(frozen=True, slots=True)
class Disk:
    """The usage of a broker's fullest disk, 0 to 1."""

    broker: str
    id: int
    used: float | None
    seen: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of each kind."""

    brokers: int
    silent_brokers: int
    name_servers: int
    silent_name_servers: int
    topics: int
    groups: int
    clients: int


@dataclass(frozen=True, slots=True)
class Overview:
    """A cluster at a glance. Times are in ms since 1970."""

    at: int | None
    counts: Counts
    in_rate: float | None
    out_rate: float | None
    lag: int | None
    findings: tuple[FindingRow, ...] | None  # None: not checked yet
    findings_at: int | None
    problems: tuple[Problem, ...]
    clusters: tuple[ClusterRow, ...]
    top_topics: tuple[TopTopic, ...]
    top_groups: tuple[TopGroup, ...]
    disks: tuple[Disk, ...]
    charts: tuple[ChartData, ...]
    history_problem: str | None


async def overview(call: Call) -> Page:
    """Show problems, rates and lag."""
    snapshot = call.cluster.snapshot
    topics = [one for one in snapshot.topics if call.sees_topic(one.name)]
    groups = [one for one in snapshot.groups if call.sees_group(one.name)]
    busy = sorted(
        (one for one in topics if one.in_rate), key=lambda one: (-(one.in_rate or 0), one.name)
    )
    late = sorted((one for one in groups if one.lag), key=lambda one: (-(one.lag or 0), one.name))
    lags = [one.lag for one in groups if one.lag is not None]
    rates = await drawn(
        call, "rates", call.text("Messages per second"), call.text("messages/s"), _rates(call)
    )
    behind = await drawn(
        call, "lags", call.text("Lag"), call.text("messages"),
        [ChartLine(one.name, "group", one.name, "lag") for one in late[:_CHARTED]],
    )  # fmt: skip
    top_groups = tuple(
        TopGroup(one.name, one.lag, one.lag_rate, one.oldest_age_ms, one.consume_rate,
                 one.members, one.seen)
        for one in late[:TOP]
    )  # fmt: skip
    data = Overview(
        at=snapshot.at or None,
        counts=_counts(call, len(topics), len(groups)),
        in_rate=_sum([one.in_rate for one in snapshot.clusters]),
        out_rate=_sum([one.out_rate for one in snapshot.clusters]),
        lag=sum(lags) if lags else None,
        findings=_findings(call),
        findings_at=call.cluster.collector.findings_at,
        problems=snapshot.problems,
        clusters=snapshot.clusters,
        top_topics=tuple(
            TopTopic(one.name, one.in_rate, one.out_rate, one.lag) for one in busy[:TOP]
        ),
        top_groups=top_groups,
        disks=tuple(
            Disk(one.name, one.id, one.disk_used, one.seen, one.problem) for one in snapshot.brokers
        ),
        charts=(rates.data, behind.data),
        history_problem=call.cluster.history.problem,
    )
    sheet = rates.data.sheet
    return Page(
        "overview/overview.html",
        call.text("Cluster %(name)s", name=call.cluster.name),
        data,
        command=("doctor", "--problems", "-n", ";".join(call.cluster.session.name_servers)),
        sheet=Sheet(sheet.columns, sheet.rows, sheet.title),
        extra={"rates": rates, "behind": behind},
    )


def _rates(call: Call) -> list[ChartLine]:
    return [
        ChartLine(text, "cluster", cluster.name, figure)
        for cluster in call.cluster.snapshot.clusters
        for text, figure in (
            (call.text("into %(name)s", name=cluster.name), "in_rate"),
            (call.text("out of %(name)s", name=cluster.name), "out_rate"),
        )
    ]


def _counts(call: Call, topics: int, groups: int) -> Counts:
    snapshot = call.cluster.snapshot
    clients = {one.client_id for one in (*snapshot.producers, *snapshot.consumers)}
    return Counts(
        brokers=len(snapshot.brokers),
        silent_brokers=sum(not one.alive for one in snapshot.brokers),
        name_servers=len(snapshot.name_servers),
        silent_name_servers=sum(one.problem is not None for one in snapshot.name_servers),
        topics=topics,
        groups=groups,
        clients=len(clients),
    )


def _findings(call: Call) -> tuple[FindingRow, ...] | None:
    found = call.cluster.collector.findings
    if found is None:
        return None
    return tuple(
        FindingRow(
            one.severity.name.lower(),
            one.check,
            one.subject,
            one.detail,
            one.hint or None,
            _link(call, one.check, one.subject),
        )
        for one in found
        if one.severity is not Severity.OK and _is_seen(call, one.check, one.subject)
    )


def _is_seen(call: Call, check: str, subject: str) -> bool:
    if check in _OF_GROUPS:
        return call.sees_group(subject)
    return check not in _OF_TOPICS or call.sees_topic(subject)


def _link(call: Call, check: str, subject: str) -> str | None:
    from mq.daemons.console.template_filters import quoted

    if check in _OF_GROUPS:
        return f"/groups/{quoted(subject)}"
    if check in _OF_TOPICS:
        return f"/topics/{quoted(subject)}"
    for broker in call.cluster.snapshot.brokers:
        if broker.address == subject:
            return f"/brokers/{quoted(broker.name)}/{broker.id}"
    return None


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


async def news(call: Call) -> AsyncIterator[Event]:
    """Report newer data: the page fetches its parts again."""
    collector = call.cluster.collector
    snapshot = collector.snapshot
    while True:
        snapshot = await collector.newer(snapshot)
        yield Event("changed", {"at": snapshot.at})
        await asyncio.sleep(NEWS_SECONDS)


ROUTES = (
    Route(
        "/",
        overview,
        Permission.READ,
        N_("Problems, rates, and groups with a lag."),
        query=(SPAN,),
        data=Overview,
        menu=N_("Overview"),
    ),
    Stream("/news", news, Permission.READ, N_("Sends an event when there is newer data.")),
)
