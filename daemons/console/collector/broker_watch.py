"""Polls one broker, one request at a time: a hanging broker delays only its own rows.

    runtime     every 10 s, also while it does not answer; then it is the only request
    lists       topics, groups, producers: every 10 s, for a large broker every minute
    progress    of each group: 8 per second, each at most every 15 s; so 500 groups once a minute
    members     of each group: 3 per second
    rate        messages into each topic without groups: 10 per second
    kept        the messages of each topic: 3 per second

Idle topics and groups are polled two or three times less often. docs/decisions/0067 has the cost
for our brokers and Java's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mq.client.admin import Admin
from mq.client.errors import (
    BadAnswer,
    BrokerError,
    ConnectError,
    ConsumerNotOnline,
    MQError,
    NoneThere,
    RequestTimeout,
)
from mq.client.machine import clock
from mq.client.operations.broker_stats import fits_counter, growth
from mq.client.operations.connections import client_of
from mq.daemons.console.collector import offsets_text
from mq.daemons.console.collector.book import (
    BrokerBook,
    GroupSettings,
    Members,
    RetainedMessages,
    TopicRate,
    TopicSettings,
)
from mq.daemons.console.collector.limits import Limits, problem, within
from mq.daemons.console.collector.progress import GroupProgress, progressed
from mq.daemons.console.collector.schedule import Schedule
from mq.daemons.console.collector.snapshot import ClientRow, ConsumerRow, ProducerRow
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

if TYPE_CHECKING:
    from mq.daemons.console.collector.paced import PacedSession
    from mq.protocol.bodies import Connection, ProducerInfo, TopicConfig

RUNTIME_SECONDS = 10.0
LIST_SECONDS = (10.0, 60.0)
# A list of this length is large, and polled at the longest interval.
LARGE_LIST = 1000


@dataclass(frozen=True, slots=True)
class Budget:
    """The frequency of one kind of poll.

    Each subject is polled at most every `seconds`, all together `rate` per second; idle ones `idle`
    times less often.
    """

    seconds: float
    rate: float
    idle: int

    def interval(self, count: int, *, idle: bool) -> float:
        """Return the seconds between polls of one of `count` subjects."""
        return max(self.seconds, count / self.rate) * (self.idle if idle else 1)


# The sum is below the limit of `paced`, so that polls are not delayed.
BUDGETS = {
    "progress": Budget(15.0, 8.3, 2),
    "members": Budget(15.0, 2.8, 1),
    "rate": Budget(30.0, 10.0, 3),
    "kept": Budget(60.0, 3.3, 3),
}
# A list that a broker does not support is requested again after this time: it may be upgraded.
UNKNOWN_SECONDS = 600.0

RUNTIME, TOPICS, GROUPS, PRODUCERS = "runtime", "topics", "groups", "producers"
_MOST_KIND = 40  # characters of a topic's kind
_LISTS = (TOPICS, GROUPS, PRODUCERS)


@dataclass(frozen=True, slots=True)
class Poll:
    """One request about one topic or group."""

    what: str  # progress | members | rate | kept
    name: str


@dataclass(slots=True)
class ChangedRows:
    """The rows that must be remade."""

    topics: set[str]
    groups: set[str]


class BrokerWatch:
    """Updates a book. `leads` returns whether to request more than the runtime."""

    def __init__(
        self,
        session: "PacedSession",
        book: BrokerBook,
        limits: Limits,
        timeout: float,
        leads: Callable[[BrokerBook], bool],
        changed: Callable[[ChangedRows], None],
    ) -> None:
        """`timeout` is in seconds, for one reply; `changed` is called after each one."""
        self.book = book
        self._session = session
        self._admin = Admin(session, timeout=timeout)
        self._limits = limits
        self._timeout = timeout
        self._leads = leads
        self._notify = changed
        self._schedule = Schedule()  # polls of topics and groups
        self._due: dict[str, float] = {}  # when the runtime and each list are requested again
        self._lists: dict[str, Callable[[], Awaitable[ChangedRows]]] = {
            RUNTIME: self._runtime,
            TOPICS: self._topics,
            GROUPS: self._groups,
            PRODUCERS: self._producers,
        }
        self._polls: dict[str, Callable[[str], Awaitable[ChangedRows]]] = {
            "progress": self._progress,
            "members": self._members,
            "rate": self._rate,
            "kept": self._kept,
        }

    async def run(self) -> None:
        """Poll until cancelled."""
        now = asyncio.get_running_loop().time
        for place, name in enumerate((RUNTIME, *_LISTS)):
            self._due[name] = now() + place / 1000  # in this order
        while True:
            at, poll = self._next(now())
            if at > now():
                await asyncio.sleep(at - now())
            await self._do(poll)

    def _next(self, now: float) -> tuple[float, Hashable]:
        """Return the next poll and its time.

        The runtime and the lists precede other polls, however long these are overdue, as they are
        for minutes after the start.
        """
        if not self._may_ask():
            return self._due[RUNTIME], RUNTIME
        name = min(self._due, key=self._due.__getitem__)
        poll = self._schedule.next()
        if self._due[name] <= now or poll is None or poll[0] >= self._due[name]:
            return self._due[name], name
        return poll

    def _may_ask(self) -> bool:
        return self.book.alive and self._leads(self.book)

    async def _do(self, poll: Hashable) -> None:
        now = asyncio.get_running_loop().time
        changed = ChangedRows(set(), set())
        if isinstance(poll, Poll) and not self._is_wanted(poll):
            self._schedule.remove(poll)  # it was deleted: a reply about it would stay forever
            return
        # After an unexpected error, other polls come first when this task is restarted.
        self._put(poll, now() + UNKNOWN_SECONDS)
        try:
            if isinstance(poll, Poll):
                changed = await self._polls[poll.what](poll.name)
                seconds = self._seconds_to_next(poll)
            else:
                changed = await self._lists[str(poll)]()
                seconds = self._list_seconds(str(poll))
        except (ConnectError, RequestTimeout) as error:
            self._silent(error)
            seconds = RUNTIME_SECONDS
        except BrokerError as error:
            seconds = UNKNOWN_SECONDS
            if poll is RUNTIME:
                self._silent(error)
                seconds = RUNTIME_SECONDS
        except MQError as error:
            seconds = UNKNOWN_SECONDS
            unreadable = self.book.left_out.get("unreadable answers", 0)
            self.book.left_out["unreadable answers"] = unreadable + 1
            if poll is RUNTIME:
                self._silent(error)
                seconds = RUNTIME_SECONDS
        self._put(poll, now() + seconds)
        self._notify(changed)

    def _put(self, poll: Hashable, due: float) -> None:
        if isinstance(poll, Poll):
            self._schedule.put(poll, due)
        else:
            self._due[str(poll)] = due

    def _is_wanted(self, poll: Poll) -> bool:
        about_groups = poll.what in ("progress", "members")
        return poll.name in (self.book.groups if about_groups else self.book.topics)

    def _silent(self, error: MQError) -> None:
        if self.book.problem is None:
            self.book.since = clock.milliseconds()
        self.book.problem = problem(error, self._timeout)

    async def _runtime(self) -> ChangedRows:
        began = clock.monotonic()
        table = await self._admin.broker_runtime_info(self.book.address)
        ended = clock.monotonic()
        book = self.book
        held, more = within(table, self._limits.figures, self._limits.name)
        _note(book, "figures", more)
        if book.runtime:
            passed = ended - book.runtime_seconds
            book.in_bytes_rate = growth("putMessageSizeTotal", held, book.runtime, passed)
        book.runtime = held
        book.runtime_seconds = ended
        book.response_ms = round((ended - began) * 1000, 1)
        book.seen = clock.milliseconds()
        book.problem = None
        return ChangedRows(set(), set())

    async def _topics(self) -> ChangedRows:
        table = (await self._admin.topic_configs(self.book.address)).topic_config_table
        held, more = within(table, self._limits.topics, self._limits.name)
        _note(self.book, "topics", more)
        changed = self.book.set_topics({name: _topic(one) for name, one in held.items()})
        now = asyncio.get_running_loop().time()
        self._schedule.add((Poll("rate", name) for name in held), now)
        self._schedule.add((Poll("kept", name) for name in held), now)
        return ChangedRows(changed, set())

    async def _groups(self) -> ChangedRows:
        table = (await self._admin.subscription_groups(self.book.address)).subscription_group_table
        held, more = within(table, self._limits.groups, self._limits.name)
        _note(self.book, "groups", more)
        groups, topics = self.book.set_groups(
            {n: GroupSettings(one.consume_enable, one.retry_max_times) for n, one in held.items()}
        )
        # Before the topics, which are equally many: users look for lags first.
        now = asyncio.get_running_loop().time() - LIST_SECONDS[1]
        self._schedule.add((Poll("progress", name) for name in held), now)
        self._schedule.add((Poll("members", name) for name in held), now)
        return ChangedRows(topics, groups)

    async def _producers(self) -> ChangedRows:
        address = self.book.address
        at = clock.milliseconds()
        groups = (await self._admin.producers(address)).data
        rows = (
            _producer(group, one, address, at)
            for group, clients in groups.items()
            for one in clients
        )
        held = tuple(islice(filter(self._is_short, rows), self._limits.clients))
        _note(self.book, "producers", sum(map(len, groups.values())) - len(held))
        self.book.producers = held
        return ChangedRows(set(), set())

    def _is_short(self, row: ClientRow) -> bool:
        return max(map(len, (row.group, row.client_id, row.address))) <= self._limits.name

    async def _progress(self, group: str) -> ChangedRows:
        fields = {"consumerGroup": group}
        response = await self._ask(RequestCode.GET_CONSUME_STATS, fields)
        found = offsets_text.progress(response.body, self.book.address)
        before = self.book.progress.get(group)
        named = [one for one in found if len(one.topic) <= self._limits.name]
        new = progressed(before, named, clock.milliseconds(), clock.monotonic())
        room = self._limits.queues - self.book.held + (before.size if before is not None else 0)
        if len(named) < len(found) or new.size > room:
            self.book.crowded_out.add(group)
            new = GroupProgress(new.at, new.seconds)  # a part of it would be a wrong lag
        else:
            self.book.crowded_out.discard(group)
        _note(self.book, "groups' offsets", len(self.book.crowded_out))
        return ChangedRows(self.book.set_progress(group, new), {group})

    async def _members(self, group: str) -> ChangedRows:
        at = clock.milliseconds()
        try:
            found = await self._admin.consumer_connection(self.book.address, group)
        except ConsumerNotOnline:
            self.book.members[group] = Members(at)
            return ChangedRows(set(), {group})
        others = sum(len(m.clients) for name, m in self.book.members.items() if name != group)
        rows = (_consumer(group, one, self.book.address, at) for one in found.connection_set)
        held = tuple(islice(filter(self._is_short, rows), max(0, self._limits.clients - others)))
        self.book.members[group] = Members(
            at,
            held,
            found.message_model and found.message_model.name,
            found.consume_type and found.consume_type.name,
            more=len(found.connection_set) - len(held),
        )
        _note(self.book, "consumers", sum(one.more for one in self.book.members.values()))
        return ChangedRows(set(), {group})

    async def _rate(self, topic: str) -> ChangedRows:
        if any(True for _ in self.book.readers_of(topic)):
            return ChangedRows(set(), set())  # a group's progress contains the ends of its queues
        try:
            figure = await self._admin.broker_stats(self.book.address, "TOPIC_PUT_NUMS", topic)
        except NoneThere:  # no messages were sent to the topic
            rate = 0.0
        else:
            rate = figure.stats_minute.tps if figure.stats_minute is not None else 0.0
            if not fits_counter(rate):
                raise BadAnswer(self.book.address, "a rate that is not a number")
        self.book.rates[topic] = TopicRate(clock.milliseconds(), rate)
        return ChangedRows({topic}, set())

    async def _kept(self, topic: str) -> ChangedRows:
        response = await self._ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        found = offsets_text.bounds(response.body, self.book.address)
        self.book.kept[topic] = RetainedMessages(clock.milliseconds(), found)
        return ChangedRows({topic}, set())

    async def _ask(self, code: RequestCode, fields: dict[str, str]) -> Command:
        return await self._session.call(self.book.address, Command(code, fields), self._timeout)

    def _list_seconds(self, name: str) -> float:
        if name == RUNTIME:
            return RUNTIME_SECONDS
        book = self.book
        counts = {TOPICS: len(book.topics), GROUPS: len(book.groups),
                  PRODUCERS: len(book.producers or ())}  # fmt: skip
        shortest, longest = LIST_SECONDS
        return min(longest, shortest + (longest - shortest) * counts[name] / LARGE_LIST)

    def _seconds_to_next(self, poll: Poll) -> float:
        book, name = self.book, poll.name
        about_groups = poll.what in ("progress", "members")
        if about_groups:
            idle = book.progress[name].idle if name in book.progress else False
        else:
            known = book.rates.get(name)
            idle = known is not None and known.rate == 0
        count = len(book.groups) if about_groups else len(book.topics)
        return BUDGETS[poll.what].interval(count, idle=idle)


def _note(book: BrokerBook, what: str, more: int) -> None:
    if more > 0:
        book.left_out[what] = more
    else:
        book.left_out.pop(what, None)


def _topic(config: "TopicConfig") -> TopicSettings:
    attributes = config.attributes or {}
    return TopicSettings(
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.order,
        str(attributes.get("message.type", ""))[:_MOST_KIND].lower(),
    )


def _producer(group: str, one: "ProducerInfo", broker: str, at: int) -> ProducerRow:
    client = client_of(one)
    return ProducerRow(
        group, client.client_id, client.address, client.language, client.version, (broker,), at
    )


def _consumer(group: str, one: "Connection", broker: str, at: int) -> ConsumerRow:
    client = client_of(one)
    return ConsumerRow(
        group, client.client_id, client.address, client.language, client.version, (broker,), at
    )
