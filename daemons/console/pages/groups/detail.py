"""A consumer group: queues with their clients, members, different subscriptions, settings."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from mq.client.operations import cluster
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects import group_members, groups
from mq.client.operations.subjects import members as judged
from mq.client.operations.subjects.drift import SettingRow
from mq.client.operations.subjects.group_members import Members, Subscription
from mq.client.operations.subjects.groups import QueueProgress
from mq.daemons.console.call import Call
from mq.daemons.console.charts.history_charts import (
    SPAN,
    ChartData,
    ChartLine,
    RenderedChart,
    drawn,
)
from mq.daemons.console.collector.snapshot import BrokerRow, GroupRow
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages.broker_queries import DEADLINE, MissingPart
from mq.daemons.console.pages.groups import members
from mq.daemons.console.route import N_, Page, Permission, Route, Sheet
from mq.protocol.bodies import ConsumerConnection, ConsumerRunningInfo

MOST_QUEUES = 1000  # queues on a page; its CSV has all


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member with its reported status; None if it did not answer, or was not asked."""

    client_id: str
    address: str
    language: str | None
    version: str
    brokers: tuple[str, ...]
    subscriptions: tuple[str, ...] | None
    queues: int | None
    cached: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """``known`` is the group in the snapshot, None if that is older than the group. ``lag`` is
    that of the brokers that answered. ``disagreements`` are lines. ``brokers`` are the columns of
    ``settings``. ``silent`` are the missing parts."""

    group: str
    known: GroupRow | None
    lag: int | None
    consume_tps: float | None
    queues: tuple[QueueProgress, ...]
    queue_count: int
    members: tuple[GroupMember, ...]
    consume_type: str | None
    message_model: str | None
    consume_from: str | None
    subscriptions: tuple[Subscription, ...]
    disagreements: tuple[str, ...]
    stuck: tuple[str, ...]
    brokers: tuple[str, ...]
    settings: tuple[SettingRow, ...]
    drifts: bool
    paused: bool | None
    lags: ChartData
    silent: tuple[MissingPart, ...]


async def show(call: Call) -> Page:
    """Show the replies of brokers and members within the deadline, and the snapshot."""
    group = call.path["group"]
    known = call.cluster.snapshot.group(group)
    brokers = await asked.of_group(call, group)
    (settings, unset), there, (answers, failed) = await asyncio.gather(
        cluster.outcomes(
            call.admin,
            brokers,
            cluster.within(DEADLINE, lambda admin, at: groups.settings(admin, at, group)),
        ),
        members.collect(call, brokers, group),
        groups.progress(call.admin, brokers, group, DEADLINE),
    )
    if known is None and not there.connections and not any(settings.values()) and not unset:
        raise NotFound(call.text("There is no consumer group %(name)s.", name=group))
    progress = groups.held_by(answers, judged.holders(there.said))
    queues = [row for row in progress.queues if call.sees_topic(row.topic)]
    by_broker = {brokers[at].name: one for at, one in settings.items() if one is not None}
    compared = groups.compared(by_broker)
    lags = await _lags(call, group)
    enabled = {config.consume_enable for config in by_broker.values()}
    first = next(iter(there.connections.values()), ConsumerConnection())
    data = GroupDetail(
        group,
        known,
        progress.lag if progress.queues else None,
        progress.consume_tps if progress.queues else None,
        tuple(queues[:MOST_QUEUES]),
        len(queues),
        _members(call, there, brokers),
        first.consume_type.name if first.consume_type else None,
        first.message_model.name if first.message_model else None,
        first.consume_from_where.name if first.consume_from_where else None,
        _subscriptions(call, there),
        _disagreements(call, there.said),
        tuple(
            line for name, info in there.said.items() for line in judged.stuck(name, info, call.now)
        ),
        tuple(by_broker),
        compared,
        any(row.differs for row in compared),
        (not enabled.pop()) if len(enabled) == 1 else None,
        lags.data,
        asked.silent({**unset, **there.failed, **failed}, brokers),
    )
    return Page(
        "groups/detail.html",
        group,
        data,
        command=("consumerProgress", "-g", group),
        sheet=Sheet.of(QueueProgress, queues),
        extra={"charts_drawn": (lags,)},
    )


async def _lags(call: Call, group: str) -> RenderedChart:
    line = ChartLine(call.text("lag"), "group", group, "lag")
    return await drawn(call, "lag", call.text("Lag in messages"), call.text("messages"), [line])


def _members(
    call: Call, there: Members, brokers: Mapping[str, BrokerRow]
) -> tuple[GroupMember, ...]:
    found = []
    for name, met in there.met().items():
        at = tuple(brokers[address].name for address in met.brokers)
        info = there.said.get(name)
        problem = str(there.unsaid[name]) if name in there.unsaid else None
        if info is None:
            found.append(GroupMember(*met.client, at, None, None, None, problem))
            continue
        wanted = tuple(
            f"{one.topic} {one.sub_string}"
            for one in judged.subscriptions(info)
            if call.sees_topic(one.topic)
        )
        cached = sum(held.cached_msg_count for held in info.mq_table.values())
        found.append(GroupMember(*met.client, at, wanted, len(info.mq_table), cached, None))
    return tuple(found)


def _subscriptions(call: Call, there: Members) -> tuple[Subscription, ...]:
    return tuple(one for one in group_members.subscriptions(there) if call.sees_topic(one.topic))


def _disagreements(call: Call, said: dict[str, ConsumerRunningInfo]) -> tuple[str, ...]:
    """Return a line for each member whose subscription of a topic differs from others."""
    lines = []
    for one in judged.disagreements(said):
        if not call.sees_topic(one.topic):
            continue
        for client, expression in one.wanted:
            if expression is None:
                line = N_("%(topic)s: %(client)s does not subscribe to it")
                lines.append(call.text(line, topic=one.topic, client=client))
            else:
                line = N_("%(topic)s: %(client)s subscribes to %(expression)s")
                lines.append(call.text(line, topic=one.topic, client=client, expression=expression))
    return tuple(lines)


ROUTES = (
    Route(
        "/groups/{group}",
        show,
        Permission.READ,
        N_("A consumer group: queues, members, subscriptions, settings."),
        subject="group",
        query=(SPAN,),
        data=GroupDetail,
    ),
)
