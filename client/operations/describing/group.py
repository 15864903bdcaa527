"""The overview page of a consumer group: lag, members, settings, retries and dead letters."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import MQError, RouteNotFound
from mq.client.operations import cluster
from mq.client.operations.columns import number, text
from mq.client.operations.describing import queries
from mq.client.operations.describing.queries import SettingValues
from mq.client.operations.errors import NextStep, NotFound
from mq.client.operations.subjects import group_members, groups, topics
from mq.client.operations.subjects import members as judged
from mq.client.operations.subjects.group_members import Members
from mq.client.operations.subjects.groups import Progress, QueueProgress
from mq.client.operations.subjects.members import Disagreement
from mq.protocol.names import RETRY_PREFIX, dead_letter_topic

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import ConsumerConnection, SubscriptionGroupConfig


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The progress of a group in a topic. Times are in ms: ``oldest`` is the store time of the
    oldest unconsumed message, None if there is none or it is unknown.
    """

    topic: str
    queues: int
    lag: int
    oldest: int | None
    last_consumed: int | None


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member. Values that it did not report are None, for the reason in ``problem``."""

    client_id: str = text("clientId", "Client").field()
    address: str = text("address", "Address").field()
    language: str | None = text("language", "Language").field()
    version: str = text("version", "Version").field()
    queues: int | None = number("queues", "Queues").field()
    cached: int | None = number("cachedMessages", "Cached").field()
    subscriptions: tuple[str, ...] | None = text("subscriptions", "Subscribes to").field()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """The number of dead letters of a group, and the time of the last one."""

    count: int = 0
    last: int | None = None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """The page. ``oldest`` is by topic, broker and queue, for queues with a lag. ``gone`` lists
    subscribed topics that do not exist. ``brokers`` have the group's settings.
    """

    group: str
    brokers: tuple[str, ...]
    progress: Progress
    oldest: dict[tuple[str, str, int], int]
    there: Members
    settings: tuple[SettingValues, ...]
    paused_at: tuple[str, ...]
    dead: DeadLetterSummary | None
    gone: tuple[str, ...]
    failures: tuple[str, ...]

    @property
    def connection(self) -> "ConsumerConnection | None":
        """A broker's description of how the group consumes."""
        return next(iter(self.there.connections.values()), None)

    def topics(self) -> list[TopicLag]:
        """Return the topics by name, with the group's retry topic last."""
        by_topic: dict[str, list[QueueProgress]] = {}
        for queue in self.progress.queues:
            by_topic.setdefault(queue.topic, []).append(queue)
        order = sorted(by_topic, key=lambda name: (name.startswith(RETRY_PREFIX), name))
        return [self._topic(name, by_topic[name]) for name in order]

    def _topic(self, name: str, queues: list[QueueProgress]) -> TopicLag:
        oldest = [self.oldest_in(queue) for queue in queues]
        consumed = [queue.last_consumed for queue in queues]
        return TopicLag(
            name,
            len(queues),
            sum(queue.diff for queue in queues),
            min((time for time in oldest if time is not None), default=None),
            max((time for time in consumed if time is not None), default=None),
        )

    def oldest_in(self, queue: QueueProgress) -> int | None:
        """Return the store time of the next message that the group gets from a queue."""
        return self.oldest.get((queue.topic, queue.broker_name, queue.queue_id))

    @property
    def retries(self) -> int:
        """Messages that wait for a retry."""
        return sum(row.lag for row in self.topics() if row.topic.startswith(RETRY_PREFIX))

    @property
    def oldest_of_all(self) -> int | None:
        return min(self.oldest.values(), default=None)

    def members(self) -> list[MemberRow]:
        """Return the members by client id."""
        found = []
        for name, met in self.there.met().items():
            info = self.there.said.get(name)
            if info is None:
                problem = self.there.unsaid.get(name)
                why = None if problem is None else str(problem)
                found.append(MemberRow(*met.client, None, None, None, why))
                continue
            wanted = tuple(
                f"{one.topic} {one.sub_string}"
                for one in judged.subscriptions(info)
                if not one.topic.startswith(RETRY_PREFIX)
            )
            cached = sum(held.cached_msg_count for held in info.mq_table.values())
            found.append(MemberRow(*met.client, len(info.mq_table), cached, wanted))
        return found

    def disagreements(self) -> list[Disagreement]:
        """Return the topics to which members subscribe differently."""
        return judged.disagreements(self.there.said)


async def describe(admin: "Admin", group: str, now: int, seconds: float) -> GroupPage:
    """Collect everything that brokers and members report about a group; `now` is in ms.

    Each of them has `seconds` to answer. Raises NotFound if no answering broker has the group, with
    the brokers that do not answer as notes.
    """
    names = await queries.heads(admin)
    (settings, unset), there, (told, failed), (dead, not_dead) = await asyncio.gather(
        cluster.outcomes(
            admin,
            names,
            cluster.within(seconds, lambda each, at: groups.settings(each, at, group)),
        ),
        group_members.collect(admin, names, group, seconds),
        groups.progress(admin, names, group, seconds),
        _dead_letters(admin, group, seconds),
    )
    by_broker = {names[at]: one for at, one in settings.items() if one is not None}
    # A broker that does not know the group has no offsets of it either, which it reports as an
    # error.
    failed = {at: error for at, error in failed.items() if settings.get(at, group) is not None}
    failures = queries.silent(names, unset, failed, there.failed)
    if not (by_broker or there.connections or told.queues):
        raise _not_there(group, failures)
    oldest, untold = await _oldest(admin, told, now, seconds)
    gone = await _gone(admin, there, told)
    compared = queries.by_value(groups.compared(by_broker), by_broker)
    return GroupPage(
        group,
        tuple(by_broker),
        groups.held_by(told, judged.holders(there.said)),
        oldest,
        there,
        compared,
        _paused(by_broker),
        dead,
        gone,
        (*failures, *not_dead, *untold),
    )


def _not_there(group: str, failures: list[str]) -> NotFound:
    error = NotFound(
        f"there is no consumer group {group}" + (" at the brokers that answer" if failures else ""),
        hint=NextStep.LIST_GROUPS,
    )
    for line in failures:
        error.add_note(line)
    return error


def _paused(configs: "dict[str, SubscriptionGroupConfig]") -> tuple[str, ...]:
    return tuple(name for name, config in configs.items() if not config.consume_enable)


async def _dead_letters(
    admin: "Admin", group: str, seconds: float
) -> tuple[DeadLetterSummary | None, list[str]]:
    """Return the group's dead letters and the failed queries; None if they are unknown."""
    topic = dead_letter_topic(group)
    try:
        route = await admin.topic_route(topic)
    except RouteNotFound:
        return DeadLetterSummary(), []
    except MQError as error:
        return None, [f"dead letters: {error}"]
    names = queries.of_route(route)
    rows, failed = await topics.status(admin, names, topic, seconds)
    last = max((row.last_updated or 0 for row in rows), default=0)
    found = DeadLetterSummary(sum(row.max_offset - row.min_offset for row in rows), last or None)
    return found, [f"dead letters at {line}" for line in queries.silent(names, failed)]


async def _oldest(
    admin: "Admin", told: Progress, now: int, seconds: float
) -> tuple[dict[tuple[str, str, int], int], list[str]]:
    points = [
        (queue.topic, queue.broker_name, queue.queue_id, max(0, queue.consumer_offset))
        for queue in told.queues
        if queue.diff > 0
    ]
    return await queries.store_times(admin, points, now, seconds) if points else ({}, [])


async def _gone(admin: "Admin", there: Members, told: Progress) -> tuple[str, ...]:
    """Return the subscribed topics that do not exist."""
    wanted = {one.topic for one in group_members.subscriptions(there)}
    wanted |= {one.topic for info in there.said.values() for one in info.subscription_set}
    wanted -= {queue.topic for queue in told.queues}
    missing = sorted(topic for topic in wanted if not topic.startswith(RETRY_PREFIX))
    if not missing:
        return ()
    try:
        # One query for all: members decide how many topics they subscribe to.
        there_are = set((await admin.topic_list()).topic_list)
    except MQError:
        return ()  # unknown
    return tuple(topic for topic in missing if topic not in there_are)
