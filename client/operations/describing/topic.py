"""The overview page of a topic: route, settings, queues, rates, groups, and its oldest message."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import BrokerError, NoneThere, RouteNotFound
from mq.client.operations import cluster
from mq.client.operations.columns import number, text
from mq.client.operations.describing import queries
from mq.client.operations.describing.queries import SettingValues
from mq.client.operations.errors import NextStep, NotFound
from mq.client.operations.subjects import group_members, groups, topics
from mq.client.operations.subjects.topics import QueueStatus, RouteRow

if TYPE_CHECKING:
    from mq.client.admin import Admin

# Groups of a topic that are queried individually; of others only the names are shown.
MOST_GROUPS = 100
_AT_ONCE = 8  # groups that are queried concurrently


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group that reads the topic. None means unknown."""

    group: str = text("group", "Consumer group").field()
    members: int | None = number("members", "Members").field()
    lag: int | None = number("lag", "Lag").field()
    out_rate: float | None = number("outTps", "Out/s").field()


@dataclass(frozen=True, slots=True)
class TopicPage:
    """The page. ``oldest`` is the store time of the oldest message of each queue, in ms, by broker
    and queue. ``in_rate`` is messages per second over the last minute; None if no broker reports
    it.
    """

    topic: str
    route: tuple[RouteRow, ...]
    settings: tuple[SettingValues, ...]
    queues: tuple[QueueStatus, ...]
    oldest: dict[tuple[str, int], int]
    in_rate: float | None
    groups: tuple[GroupRow, ...]
    failures: tuple[str, ...]

    @property
    def messages(self) -> int:
        return sum(queue.max_offset - queue.min_offset for queue in self.queues)

    @property
    def oldest_of_all(self) -> int | None:
        return min(self.oldest.values(), default=None)

    @property
    def newest(self) -> int | None:
        known = [queue.last_updated for queue in self.queues if queue.last_updated is not None]
        return max(known, default=None)


async def describe(admin: "Admin", topic: str, now: int, seconds: float) -> TopicPage:
    """Collect everything that name servers and brokers report about a topic; `now` is in ms.

    Each of them has `seconds` to answer. Raises NotFound for a topic that no name server knows.
    """
    try:
        route = await admin.topic_route(topic)
    except RouteNotFound:
        raise NotFound(f"there is no topic {topic}", hint=NextStep.LIST_TOPICS) from None
    names = queries.of_route(route)
    (rows, failed), (settings, unset), (readers, unread), rate = await asyncio.gather(
        topics.status(admin, names, topic, seconds),
        cluster.outcomes(
            admin, names, cluster.within(seconds, lambda each, at: topics.settings(each, at, topic))
        ),
        cluster.outcomes(
            admin, names, cluster.within(seconds, lambda each, at: each.topic_consumers(at, topic))
        ),
        _rate(admin, names, "TOPIC_PUT_NUMS", topic, seconds),
    )
    failures = queries.silent(names, failed, unset, unread)
    points = [
        (topic, row.broker_name, row.queue_id, row.min_offset)
        for row in rows
        if row.max_offset > row.min_offset
    ]
    times, untold = await queries.store_times(admin, points, now, seconds) if points else ({}, [])
    by_broker = {names[at]: one for at, one in settings.items() if one is not None}
    wanted = sorted({name for found in readers.values() for name in found.group_list})
    # Without those that did not answer, which would delay each batch of groups.
    answering = {
        at: name
        for at, name in names.items()
        if at in readers or isinstance(unread[at], BrokerError)
    }
    return TopicPage(
        topic,
        topics.route_rows(route),
        queries.by_value(topics.compared(by_broker), by_broker),
        tuple(rows),
        {(broker, queue_id): time for (_, broker, queue_id), time in times.items()},
        rate,
        await _groups(admin, answering, topic, wanted, seconds),
        (*failures, *untold),
    )


async def _rate(
    admin: "Admin", addresses: Iterable[str], figure: str, key: str, seconds: float
) -> float | None:
    """Return messages per second over the brokers that report it, None if none does. A broker that
    has not counted any reports that it has no such statistic.
    """
    done, failed = await cluster.outcomes(
        admin,
        addresses,
        cluster.within(seconds, lambda each, at: each.broker_stats(at, figure, key)),
    )
    if not done and not any(isinstance(error, NoneThere) for error in failed.values()):
        return None
    return round(sum(one.stats_minute.tps for one in done.values() if one.stats_minute), 2)


async def _groups(
    admin: "Admin", names: Mapping[str, str], topic: str, wanted: list[str], seconds: float
) -> tuple[GroupRow, ...]:
    """Return the groups, those with the largest lag first."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(group: str) -> GroupRow:
        async with gate:
            (told, failed), there, rate = await asyncio.gather(
                groups.progress(admin, names, group, seconds, topic=topic),
                group_members.collect(admin, names, group, seconds, 0),
                _rate(admin, names, "GROUP_GET_NUMS", f"{topic}@{group}", seconds),
            )
        unknown = bool(failed) and not told.queues
        return GroupRow(group, len(there.met()), None if unknown else told.lag, rate)

    found = await asyncio.gather(*map(one, wanted[:MOST_GROUPS]))
    rest = [GroupRow(group, None, None, None) for group in wanted[MOST_GROUPS:]]
    order = sorted(found, key=lambda row: (row.lag is not None, -(row.lag or 0), row.group))
    return (*order, *rest)
