"""Samples a cluster: reads its counters from all brokers in parallel.

Peers that do not answer are part of the sample: a failed broker stays visible for as long as the
view runs, also after name servers have removed it.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from mq.cli.top.subjects import Subject
from mq.client.admin import Admin
from mq.client.errors import ConnectError, ConsumerNotOnline, MQError, RequestTimeout
from mq.client.operations.cluster_snapshot import BrokerSnapshot, Collection, registered
from mq.protocol import names
from mq.protocol.bodies import ClusterInfo, ConsumeStats

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller

T = TypeVar("T")

UP = "up"
_LISTS_SECONDS = 10.0  # lists of clients and topics change slowly and are expensive


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one broker at one moment; `seconds` are monotonic."""

    seconds: float
    values: dict[Hashable, int]


@dataclass(slots=True)
class BrokerSample(BrokerSnapshot):
    """A broker. `connected` are the numbers of connected producers and consumers, None if not known
    yet.
    """

    connected: tuple[int | None, int | None] = (None, None)

    @property
    def state(self) -> str:
        """`up`, or the reason why it does not answer, in one word."""
        return _why(self.error)[0]

    @property
    def problem(self) -> str:
        """The reason in detail."""
        return _why(self.error)[1]


@dataclass(slots=True)
class SnodeSample:
    """A snode, as in `BrokerSample`."""

    address: str
    cluster: str
    response_seconds: float = 0.0
    state: str = UP
    problem: str = ""


@dataclass(slots=True)
class TopicSample:
    """A topic: the ends of its queues by broker, and the number of its messages."""

    ends: dict[str, Counters] = field(default_factory=dict)
    stored: int = 0


@dataclass(slots=True)
class GroupSample:
    """A group: by broker, for each (topic, queue id), the queue's end and the committed offset."""

    ends: dict[str, Counters] = field(default_factory=dict)
    places: dict[str, Counters] = field(default_factory=dict)
    members: int | None = None


@dataclass(slots=True)
class ClusterSample:
    """All samples. `bytes_in` are bytes per second by topic, from the brokers' last minute."""

    seconds: float
    brokers: dict[str, BrokerSample]
    topics: dict[str, TopicSample] = field(default_factory=dict)
    groups: dict[str, GroupSample] = field(default_factory=dict)
    snodes: dict[str, SnodeSample] = field(default_factory=dict)
    bytes_in: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


class Watcher:
    """Samples a cluster repeatedly."""

    def __init__(self, session: "Caller", timeout: float, *, system: bool = False) -> None:
        """`timeout` is in seconds, for each reply except the first one of a name server.

        Nothing can be sampled without that one, so it has the session's timeout. `system` includes
        topics and groups of the system.
        """
        self._session = session
        self._admin = Admin(session, timeout=timeout)
        self._system = system
        self._collection = Collection(self._admin)
        self._known: dict[str, BrokerSample] = {}
        self._snodes: dict[str, tuple[str, str]] = {}  # address and cluster, by name
        self._listed: dict[tuple[str, str], float] = {}  # when a broker was asked for a list
        self._topics: dict[str, list[str]] = {}  # by broker
        self._connected: dict[str, tuple[int | None, int | None]] = {}  # by broker
        self._members: dict[tuple[str, str], set[str]] = {}  # by (broker, group)
        self._ends: dict[tuple[str, str], int] = {}  # by (topic, broker), in the last sample
        self._hidden: frozenset[str] = frozenset()

    async def sample(
        self, subject: Subject, wanted: Callable[[str], bool] = lambda name: True
    ) -> ClusterSample:
        """Sample a subject; of topics only those that are `wanted`.

        Raises MQError only if no name server has ever answered.
        """
        sample = ClusterSample(time.monotonic(), {})
        await self._find_brokers(sample)
        await self._collection.runtime(sample.brokers.values())
        sample.failures += [
            f"{one.name} ({one.address}): {one.problem}"
            for one in sample.brokers.values()
            if one.state != UP
        ]
        if subject is Subject.SNODES:
            await self._sample_snodes(sample)
            return sample
        masters = [one.address for one in _leaders(sample)]
        if subject is Subject.BROKERS:
            await self._sample_connections(sample, masters)
            return sample
        await self._sample_groups(sample, masters)
        if subject is Subject.TOPICS:
            await self._sample_topics(sample, masters, wanted)
        else:
            await self._find_members(sample, self._due("members", masters))
        for name, group in sample.groups.items():
            found = [self._members[at, name] for at in masters if (at, name) in self._members]
            group.members = len(set().union(*found)) if found else None
        if not self._system:
            # Brokers predefine groups for tools that are mostly unused.
            sample.groups = {
                name: group
                for name, group in sample.groups.items()
                if group.members or _has_topics(group)
            }
        return sample

    async def _find_brokers(self, sample: ClusterSample) -> None:
        try:
            admin = self._admin if self._known else Admin(self._session)
            info = await admin.cluster_info()
        except MQError as error:
            if not self._known:
                raise
            sample.failures.append(str(error))
            info = ClusterInfo()
        for name, snode in (info.snode_table or {}).items():
            self._snodes[name] = snode.address, snode.cluster_name
        for one in registered(info):
            self._known[one.address] = BrokerSample(one.name, one.id, one.address, one.cluster)
        order = sorted(self._known.values(), key=lambda one: (one.cluster, one.name, one.broker_id))
        sample.brokers = {
            one.address: BrokerSample(one.name, one.broker_id, one.address, one.cluster)
            for one in order
        }
        clusters = {one.cluster for one in order}
        replies = {f"{cluster}_REPLY_TOPIC" for cluster in clusters}
        self._hidden = frozenset(one.name for one in order) | clusters | replies

    async def _sample_snodes(self, sample: ClusterSample) -> None:
        sample.snodes = {name: SnodeSample(*where) for name, where in self._snodes.items()}
        await self._collection.each(
            sample.snodes, lambda name: self._ask_snode(sample.snodes[name])
        )
        sample.failures += [
            f"{name} ({one.address}): {one.problem}"
            for name, one in sample.snodes.items()
            if one.state != UP
        ]

    async def _ask_snode(self, snode: SnodeSample) -> None:
        before = time.monotonic()
        try:
            await self._admin.reach_snode(snode.address)
        except MQError as error:
            snode.state, snode.problem = _why(error)
        snode.response_seconds = time.monotonic() - before

    async def _sample_connections(self, sample: ClusterSample, masters: list[str]) -> None:
        await asyncio.gather(*map(self._count_connections, self._due("connections", masters)))
        for address, broker in sample.brokers.items():
            broker.connected = self._connected.get(address, (None, None))

    async def _count_connections(self, address: str) -> None:
        """Count producers and consumers by client id; a client may be in many groups."""
        producers: int | None = None
        try:
            groups = (await self._admin.producers(address)).data.values()
            producers = len({one.client_id for group in groups for one in group})
        except MQError:
            pass  # a release without this request
        try:
            known = (await self._admin.subscription_groups(address)).subscription_group_table
        except MQError:
            self._connected[address] = producers, None
            return
        consumers: set[str] = set()

        async def add(group: str) -> None:
            consumers.update(await self._members_at(address, group))

        await self._collection.each(known, add)
        self._connected[address] = producers, len(consumers)

    async def _members_at(self, address: str, group: str) -> set[str]:
        try:
            connection = await self._admin.consumer_connection(address, group)
        except ConsumerNotOnline:
            return set()
        return {member.client_id for member in connection.connection_set}

    async def _find_members(self, sample: ClusterSample, masters: list[str]) -> None:
        async def ask(where: tuple[str, str]) -> None:
            self._members[where] = await self._members_at(*where)

        pairs = [(at, name) for name in sample.groups for at in masters]
        await self._collection.each(pairs, ask)

    async def _sample_groups(self, sample: ClusterSample, masters: list[str]) -> None:
        async def ask(address: str) -> None:
            timeout = self._session.timeout  # the broker iterates all of its groups
            stats = await self._admin.broker_consume_stats(address, timeout=timeout)
            seconds = time.monotonic()
            for item in stats.consume_stats_list:
                for group, parts in item.items():
                    if self._system or not names.is_system_group(group):
                        known = sample.groups.setdefault(group, GroupSample())
                        _add_group(known, address, seconds, parts)

        _, errors = await self._collection.each(masters, ask)
        sample.failures += map(str, errors.values())

    async def _sample_topics(
        self, sample: ClusterSample, masters: list[str], wanted: Callable[[str], bool]
    ) -> None:
        await self._collection.each(self._due("topics", masters), self._find_topics)

        async def ask(where: tuple[str, str]) -> None:
            topic, address = where
            table = (await self._admin.topic_stats(address, topic)).offset_table
            known = sample.topics.setdefault(topic, TopicSample())
            known.stored += sum(at.max_offset - at.min_offset for at in table.values())
            ends: dict[Hashable, int] = {
                queue.queue_id: at.max_offset for queue, at in table.items()
            }
            known.ends[address] = Counters(time.monotonic(), ends)
            end = sum(at.max_offset for at in table.values())
            before, self._ends[where] = self._ends.get(where, end), end
            if end != before:
                await self._ask_bytes(sample, topic, address)

        pairs = [(t, at) for at in masters for t in self._topics.get(at, ()) if wanted(t)]
        await self._collection.each(pairs, ask)

    async def _ask_bytes(self, sample: ClusterSample, topic: str, address: str) -> None:
        """Add the bytes of the last minute; brokers have no permanent count of a topic's bytes."""
        figure = (await self._admin.broker_stats(address, "TOPIC_PUT_SIZE", topic)).stats_minute
        if figure is not None:
            sample.bytes_in[topic] = sample.bytes_in.get(topic, 0.0) + figure.tps

    async def _find_topics(self, address: str) -> None:
        table = (await self._admin.topic_configs(address)).topic_config_table
        self._topics[address] = [
            topic
            for topic in sorted(table)
            if self._system or not (names.is_system_topic(topic) or topic in self._hidden)
        ]

    def _due(self, what: str, addresses: list[str]) -> list[str]:
        """Return the brokers whose list must be fetched again."""
        now = time.monotonic()
        never = now - _LISTS_SECONDS
        due = [a for a in addresses if now - self._listed.get((what, a), never) >= _LISTS_SECONDS]
        self._listed.update(dict.fromkeys([(what, address) for address in due], now))
        return due


def _leaders(sample: ClusterSample) -> list[BrokerSample]:
    """Return for each name the broker to ask about topics and groups: the master if it answers."""
    found: dict[str, BrokerSample] = {}
    for broker in sample.brokers.values():  # in the order of ids
        if broker.state == UP:
            found.setdefault(broker.name, broker)
    return list(found.values())


def _has_topics(group: GroupSample) -> bool:
    """Return whether the group has ever consumed a topic."""
    return any(counters.values for counters in group.places.values())


def _add_group(group: GroupSample, address: str, seconds: float, parts: list[ConsumeStats]) -> None:
    ends: dict[Hashable, int] = {}
    places: dict[Hashable, int] = {}
    for part in parts:
        for queue, at in part.offset_table.items():
            key = (queue.topic, queue.queue_id)
            ends[key], places[key] = at.broker_offset, at.consumer_offset
    group.ends[address] = Counters(seconds, ends)
    group.places[address] = Counters(seconds, places)


def _why(error: MQError | None) -> tuple[str, str]:
    """Return the state of a peer in one word, and in detail."""
    if error is None:
        return UP, ""
    if isinstance(error, ConnectError):
        return "unreachable", "unreachable"
    if isinstance(error, RequestTimeout):
        return "silent", f"silent: {error}"
    return "refusing", str(error)
