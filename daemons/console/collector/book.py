"""The replies of one broker, with their times: the source of rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mq.daemons.console.collector.offsets_text import TopicBounds
from mq.daemons.console.collector.progress import GroupProgress
from mq.daemons.console.collector.snapshot import ConsumerRow, ProducerRow


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's settings at a broker; `kind` is its message.type of 5.x, or empty."""

    read_queues: int
    write_queues: int
    perm: int
    order: bool
    kind: str


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group's settings at a broker."""

    enabled: bool
    retry_max: int


@dataclass(frozen=True, slots=True)
class TopicRate:
    """Messages per second into a topic over the last minute, and the time of the report."""

    at: int
    rate: float


@dataclass(frozen=True, slots=True)
class RetainedMessages:
    """The messages of a topic at a broker, and the time of the report."""

    at: int
    bounds: TopicBounds


@dataclass(frozen=True, slots=True)
class Members:
    """The connected members of a group at a broker, and how the group consumes."""

    at: int
    clients: tuple[ConsumerRow, ...] = ()
    model: str | None = None
    way: str | None = None
    more: int = 0  # clients over the limit


@dataclass(slots=True)
class BrokerBook:
    """A broker: its registration and its replies. Times are in ms since 1970.

    `problem` is the reason why the last request failed; `since` when that began, or when the broker
    was found.
    """

    cluster: str
    name: str
    id: int
    address: str
    since: int
    seen: int | None = None
    problem: str | None = None
    listed: bool = True  # whether a name server has it now
    response_ms: float | None = None
    runtime: Mapping[str, str] = field(default_factory=dict)
    runtime_seconds: float = 0.0  # monotonic
    in_bytes_rate: float | None = None
    topics: dict[str, TopicSettings] = field(default_factory=dict)
    groups: dict[str, GroupSettings] = field(default_factory=dict)
    rates: dict[str, TopicRate] = field(default_factory=dict)
    kept: dict[str, RetainedMessages] = field(default_factory=dict)
    progress: dict[str, GroupProgress] = field(default_factory=dict)
    held: int = 0  # entries of all progress in total
    crowded_out: set[str] = field(default_factory=set)  # groups whose progress is over the limit
    members: dict[str, Members] = field(default_factory=dict)
    producers: tuple[ProducerRow, ...] | None = None
    readers: dict[str, set[str]] = field(default_factory=dict)  # group names by topic
    left_out: dict[str, int] = field(default_factory=dict)  # counts over the limits, by kind

    @property
    def alive(self) -> bool:
        return self.seen is not None and self.problem is None

    def set_progress(self, group: str, found: GroupProgress) -> set[str]:
        """Store a group's progress; returns the topics that it is, or was, about."""
        before = self.progress.get(group)
        old = set(before.topics) if before is not None else set()
        self.held += found.size - (before.size if before is not None else 0)
        self.progress[group] = found
        for topic in old - found.topics.keys():
            self._unread(topic, group)
        for topic in found.topics:
            self.readers.setdefault(topic, set()).add(group)
        return old | found.topics.keys()

    def set_topics(self, table: Mapping[str, TopicSettings]) -> set[str]:
        """Store the topics; returns the changed ones."""
        changed = _changed(self.topics, table)
        self.topics = dict(table)
        for topic in changed - table.keys():
            self.rates.pop(topic, None)
            self.kept.pop(topic, None)
        return changed

    def set_groups(self, table: Mapping[str, GroupSettings]) -> tuple[set[str], set[str]]:
        """Store the groups; returns the changed ones, and the affected topics."""
        changed = _changed(self.groups, table)
        self.groups = dict(table)
        topics: set[str] = set()
        for group in changed - table.keys():
            old = self.progress.pop(group, None)
            self.held -= old.size if old is not None else 0
            self.members.pop(group, None)
            self.crowded_out.discard(group)
            for topic in old.topics if old is not None else ():
                self._unread(topic, group)
                topics.add(topic)
        return changed, topics

    def readers_of(self, topic: str) -> Iterable[str]:
        """Return the groups that have offsets of a topic here."""
        return self.readers.get(topic, ())

    def _unread(self, topic: str, group: str) -> None:
        readers = self.readers.get(topic)
        if readers is not None:
            readers.discard(group)
            if not readers:
                del self.readers[topic]


def _changed(old: Mapping[str, object], new: Mapping[str, object]) -> set[str]:
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
