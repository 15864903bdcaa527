"""Asks one broker, one thing at a time: so one that hangs holds up nothing but its own rows.

    runtime     every 10 s, also while it does not answer; nothing else is asked of it then
    lists       topics, groups, producers: every 10 s, of a large broker every minute
    progress    of each group: 8 a second, each at most every 15 s; so of 500 once a minute
    members     of each group: 3 a second
    rate        what came into each topic that no group reads: 10 a second
    kept        what each topic holds: 3 a second

What is idle is asked for two or three times less often. What it costs our brokers and Java's is in
docs/decisions/0067.
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
from mq.daemons.console.collector.limits import Limits, shortened, within
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
#: A list of so many is a large one, and asked for as seldom as can be.
LARGE_LIST = 1000


@dataclass(frozen=True, slots=True)
class Budget:
    """How often one kind of look is done: each at most every `seconds`, `rate` a second of all;
    those of what is idle as many times less often as `idle` says."""

    seconds: float
    rate: float
    idle: int

    def interval(self, count: int, *, idle: bool) -> float:
        """Seconds from one look to the next where there are so many to look at."""
        return max(self.seconds, count / self.rate) * (self.idle if idle else 1)


#: Together below what `paced` lets through, so that looks are done when they are due.
BUDGETS = {
    "progress": Budget(15.0, 8.3, 2),
    "members": Budget(15.0, 2.8, 1),
    "rate": Budget(30.0, 10.0, 3),
    "kept": Budget(60.0, 3.3, 3),
}
#: A list that a broker does not know is asked for again after this long: it may be upgraded.
UNKNOWN_SECONDS = 600.0

RUNTIME, TOPICS, GROUPS, PRODUCERS = "runtime", "topics", "groups", "producers"
_MOST_KIND = 40  # characters of a topic's kind
_LISTS = (TOPICS, GROUPS, PRODUCERS)


@dataclass(frozen=True, slots=True)
class Poll:
    """One thing to ask about one topic or group."""

    what: str  # progress | members | rate | kept
    name: str


@dataclass(slots=True)
class ChangedRows:
    """What rows are to be made again."""

    topics: set[str]
    groups: set[str]


class BrokerWatch:
    """Keeps a book. `leads` says whether to ask it for more than its runtime."""

    def __init__(
        self,
        session: "PacedSession",
        book: BrokerBook,
        limits: Limits,
        timeout: float,
        leads: Callable[[BrokerBook], bool],
        changed: Callable[[ChangedRows], None],
    ) -> None:
        """`timeout` in seconds for one answer; `changed` is told after each one."""
        self.book = book
        self._session = session
        self._admin = Admin(session, timeout=timeout)
        self._limits = limits
        self._timeout = timeout
        self._leads = leads
        self._tell = changed
        self._schedule = Schedule()  # of looks
        self._due: dict[str, float] = {}  # when the runtime and each list is asked for again
        self._lists: dict[str, Callable[[], Awaitable[ChangedRows]]] = {
            RUNTIME: self._runtime,
            TOPICS: self._topics,
            GROUPS: self._groups,
            PRODUCERS: self._producers,
        }
        self._looks: dict[str, Callable[[str], Awaitable[ChangedRows]]] = {
            "progress": self._progress,
            "members": self._members,
            "rate": self._rate,
            "kept": self._kept,
        }

    async def run(self) -> None:
        """Ask, until it is cancelled."""
        now = asyncio.get_running_loop().time
        for place, name in enumerate((RUNTIME, *_LISTS)):
            self._due[name] = now() + place / 1000  # in this order
        while True:
            at, look = self._next(now())
            if at > now():
                await asyncio.sleep(at - now())
            await self._do(look)

    def _next(self, now: float) -> tuple[float, Hashable]:
        """What to do next, and when: the runtime and the lists as soon as they are due, however
        many looks have waited for longer, as they do for minutes after the start."""
        if not self._may_ask():
            return self._due[RUNTIME], RUNTIME
        name = min(self._due, key=self._due.__getitem__)
        looks = self._schedule.next()
        if self._due[name] <= now or looks is None or looks[0] >= self._due[name]:
            return self._due[name], name
        return looks

    def _may_ask(self) -> bool:
        return self.book.alive and self._leads(self.book)

    async def _do(self, look: Hashable) -> None:
        now = asyncio.get_running_loop().time
        changed = ChangedRows(set(), set())
        if isinstance(look, Poll) and not self._is_wanted(look):
            self._schedule.remove(look)  # it is gone: what is told of it would stay for ever
            return
        # If it raises what nobody expects, the others come first when this task begins again.
        self._put(look, now() + UNKNOWN_SECONDS)
        try:
            if isinstance(look, Poll):
                changed = await self._looks[look.what](look.name)
                seconds = self._seconds_to_next(look)
            else:
                changed = await self._lists[str(look)]()
                seconds = self._list_seconds(str(look))
        except (ConnectError, RequestTimeout) as error:
            self._silent(error)
            seconds = RUNTIME_SECONDS
        except BrokerError as error:
            seconds = UNKNOWN_SECONDS
            if look is RUNTIME:
                self._silent(error)
                seconds = RUNTIME_SECONDS
        except MQError as error:
            seconds = UNKNOWN_SECONDS
            unreadable = self.book.left_out.get("unreadable answers", 0)
            self.book.left_out["unreadable answers"] = unreadable + 1
            if look is RUNTIME:
                self._silent(error)
                seconds = RUNTIME_SECONDS
        self._put(look, now() + seconds)
        self._tell(changed)

    def _put(self, look: Hashable, due: float) -> None:
        if isinstance(look, Poll):
            self._schedule.put(look, due)
        else:
            self._due[str(look)] = due

    def _is_wanted(self, look: Poll) -> bool:
        about_groups = look.what in ("progress", "members")
        return look.name in (self.book.groups if about_groups else self.book.topics)

    def _silent(self, error: MQError) -> None:
        if self.book.problem is None:
            self.book.since = clock.milliseconds()
        if isinstance(error, RequestTimeout):
            self.book.problem = f"does not answer within {self._timeout:g} s"
        elif isinstance(error, ConnectError):
            self.book.problem = f"cannot be reached: {shortened(error.reason)}"
        else:
            self.book.problem = shortened(str(error))

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
        # Before topics, which are as many again: a lag is what people look for first.
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
        look = progressed(before, named, clock.milliseconds(), clock.monotonic())
        room = self._limits.queues - self.book.held + (before.size if before is not None else 0)
        if len(named) < len(found) or look.size > room:
            self.book.crowded_out.add(group)
            look = GroupProgress(look.at, look.seconds)  # part of it would be a wrong lag
        else:
            self.book.crowded_out.discard(group)
        _note(self.book, "groups' offsets", len(self.book.crowded_out))
        return ChangedRows(self.book.set_progress(group, look), {group})

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
            return ChangedRows(set(), set())  # a group's progress has the ends of its queues
        try:
            figure = await self._admin.broker_stats(self.book.address, "TOPIC_PUT_NUMS", topic)
        except NoneThere:  # nothing has come into the topic
            rate = 0.0
        else:
            rate = figure.stats_minute.tps if figure.stats_minute is not None else 0.0
            if not fits_counter(rate):
                raise BadAnswer(self.book.address, "a rate that is no number")
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

    def _seconds_to_next(self, look: Poll) -> float:
        book, name = self.book, look.name
        about_groups = look.what in ("progress", "members")
        if about_groups:
            idle = book.progress[name].idle if name in book.progress else False
        else:
            told = book.rates.get(name)
            idle = told is not None and told.rate == 0
        count = len(book.groups) if about_groups else len(book.topics)
        return BUDGETS[look.what].interval(count, idle=idle)


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
