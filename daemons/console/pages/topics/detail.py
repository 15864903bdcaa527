"""A topic: its queues, route, settings by broker, groups and producers."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from mq.client.errors import MQError, RouteNotFound
from mq.client.operations import cluster
from mq.client.operations.errors import NotFound, Unavailable
from mq.client.operations.subjects import topics
from mq.client.operations.subjects.drift import SettingRow
from mq.client.operations.subjects.topics import QueueStatus, RouteRow
from mq.daemons.console.call import Call
from mq.daemons.console.charts.history_charts import (
    SPAN,
    ChartData,
    ChartLine,
    RenderedChart,
    drawn,
)
from mq.daemons.console.collector.snapshot import BrokerRow, TopicRow
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.broker_queries import DEADLINE, MissingPart
from mq.daemons.console.route import N_, Page, Permission, Route, Sheet
from mq.protocol.bodies import GroupList, TopicConfig, TopicRouteData

MOST_QUEUES = 1000  # that a page shows; its CSV has all


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A group that consumes the topic, with its lag; None: unknown."""

    name: str
    state: str
    members: int | None
    lag: int | None
    consume_rate: float | None


@dataclass(frozen=True, slots=True)
class TopicProducer:
    """A producer that is connected to a broker of the topic; its topics are unknown."""

    group: str
    client_id: str
    address: str
    language: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """``known`` is the topic in the snapshot, None if that is older than the topic. ``brokers`` are
    the headings of the columns of ``settings``. ``silent`` has the failures."""

    topic: str
    known: TopicRow | None
    queues: tuple[QueueStatus, ...]
    queue_count: int
    messages: int
    route: tuple[RouteRow, ...]
    brokers: tuple[str, ...]
    settings: tuple[SettingRow, ...]
    drifts: bool
    groups: tuple[TopicGroup, ...]
    producers: tuple[TopicProducer, ...]
    charts: tuple[ChartData, ...]
    silent: tuple[MissingPart, ...]


async def show(call: Call) -> Page:
    """Show the answers of the topic's brokers within a time limit, and the data of the snapshot."""
    topic = call.path["topic"]
    known = call.cluster.snapshot.topic(topic)
    if known is None:  # the snapshot is older than the topic, or missing
        route, problems = await _route(call, topic)
        if problems and problems[0].subject != topic:
            raise Unavailable(problems[0].text)
        if not route.broker_datas:
            raise NotFound(call.text("There is no topic %(name)s.", name=topic))
        brokers = asked.of_route(call, route)
        queues, settings, groups = await _ask(call, brokers, topic)
    else:
        brokers = asked.heads(call, known.brokers)
        (route, problems), (queues, settings, groups) = await asyncio.gather(
            _route(call, topic), _ask(call, brokers, topic)
        )
    rows, failed = queues
    failures = {**groups[1], **settings[1], **failed}
    by_broker = {brokers[at].name: one for at, one in settings[0].items() if one is not None}
    compared = topics.compared(by_broker)
    charts = await _charts(call, topic)
    told = {name for found in groups[0].values() for name in found.group_list}
    data = TopicDetail(
        topic,
        known,
        tuple(rows[:MOST_QUEUES]),
        len(rows),
        sum(row.max_offset - row.min_offset for row in rows),
        topics.route_rows(route),
        tuple(by_broker),
        compared,
        any(row.differs for row in compared),
        _groups(call, topic, told | set(known.groups if known else ())),
        _producers(call, set(brokers)),
        tuple(one.data for one in charts),
        (*problems, *asked.silent(failures, brokers)),
    )
    return Page(
        "topics/detail.html",
        topic,
        data,
        command=("topicStatus", "-t", topic),
        sheet=Sheet.of(QueueStatus, rows),
        extra={"charts_drawn": charts},
    )


async def _charts(call: Call, topic: str) -> tuple[RenderedChart, ...]:
    rates = (
        ChartLine(call.text("in"), "topic", topic, "in_rate"),
        ChartLine(call.text("out"), "topic", topic, "out_rate"),
    )
    lag = (ChartLine(call.text("lag"), "topic", topic, "lag"),)
    return (
        await drawn(
            call, "rates", call.text("Messages per second"), call.text("messages/s"), rates
        ),
        await drawn(call, "lag", call.text("Lag"), call.text("messages"), lag),
    )


async def _route(call: Call, topic: str) -> tuple[TopicRouteData, tuple[MissingPart, ...]]:
    """Return the current route of a name server, or the reason that there is none."""
    try:
        async with asyncio.timeout(DEADLINE):
            return await call.admin.topic_route(topic), ()
    except RouteNotFound:
        line = call.text("No name server has a route of it.")
        return TopicRouteData(), (MissingPart(topic, line),)
    except (MQError, TimeoutError) as error:
        line = str(error) or call.text("no answer in time")
        return TopicRouteData(), (MissingPart(call.text("name server"), line),)


async def _ask(
    call: Call, brokers: Mapping[str, BrokerRow], topic: str
) -> tuple[
    tuple[list[QueueStatus], dict[str, MQError]],
    tuple[dict[str, TopicConfig | None], dict[str, MQError]],
    tuple[dict[str, GroupList], dict[str, MQError]],
]:
    """Return queues, settings and groups at each broker, and the failures."""
    return await asyncio.gather(
        topics.status(call.admin, brokers, topic, DEADLINE),
        cluster.outcomes(
            call.admin,
            brokers,
            cluster.within(DEADLINE, lambda admin, at: topics.settings(admin, at, topic)),
        ),
        cluster.outcomes(
            call.admin,
            brokers,
            cluster.within(DEADLINE, lambda admin, at: admin.topic_consumers(at, topic)),
        ),
    )


def _groups(call: Call, topic: str, names: set[str]) -> tuple[TopicGroup, ...]:
    """Return the groups that consume it, unknown lags first, then by descending lag."""
    found = []
    for name in sorted(names):
        if not call.sees_group(name):
            continue
        group = call.cluster.snapshot.group(name)
        if group is None:
            found.append(TopicGroup(name, "unknown", None, None, None))
            continue
        part = next((one for one in group.topics if one.topic == topic), None)
        lag, rate = (part.lag, part.consume_rate) if part else (None, None)
        found.append(TopicGroup(name, group.state, group.members, lag, rate))
    return tuple(sorted(found, key=lambda one: (one.lag is not None, -(one.lag or 0), one.name)))


def _producers(call: Call, addresses: set[str]) -> tuple[TopicProducer, ...]:
    return tuple(
        TopicProducer(row.group, row.client_id, row.address, row.language, row.version)
        for row in call.cluster.snapshot.producers
        if addresses & set(row.brokers) and call.sees_group(row.group)
    )


ROUTES = (
    Route(
        "/topics/{topic}",
        show,
        Permission.READ,
        N_("A topic: queues, route, settings, groups, producers."),
        subject="topic",
        query=(SPAN,),
        data=TopicDetail,
    ),
)
