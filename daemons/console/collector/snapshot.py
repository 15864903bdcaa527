"""The console's data about a cluster at one moment: plain rows for pages.

The collector replaces the whole snapshot; rows are immutable. An unchanged row is the same object
as in the previous snapshot.

    unknown  None, never 0. Known values are kept when a peer stops answering, with a `problem`.
    age      `seen` is when a row's values were last received, in ms since 1970; None: never.
    rates    per second, over the time between two replies.
    text     names, addresses and remarks come from peers: data, never markup.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar


@dataclass(frozen=True, slots=True)
class NameServerRow:
    """A name server of the console's configuration, and the number of its brokers."""

    address: str
    seen: int | None = None
    problem: str | None = None
    response_ms: float | None = None
    brokers: int | None = None
    # Broker addresses that only others have, and that only this one has.
    missing: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster of brokers by its registered name."""

    name: str
    brokers: tuple[str, ...]  # names
    in_rate: float | None = None  # of all masters
    out_rate: float | None = None  # of all brokers
    problem: str | None = None  # brokers that do not answer


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker process: a name and an id. Sizes are in bytes."""

    cluster: str
    name: str
    id: int
    address: str
    role: str  # master | slave | acting master
    seen: int | None = None
    problem: str | None = None
    response_ms: float | None = None
    version: str | None = None
    started_at: int | None = None
    in_rate: float | None = None
    out_rate: float | None = None
    in_bytes_rate: float | None = None
    in_today: int | None = None
    out_today: int | None = None
    in_yesterday: int | None = None
    out_yesterday: int | None = None
    disk_used: float | None = None  # usage of the log's disk, 0 to 1
    earliest_at: int | None = None  # store time of the oldest message
    send_queue: int | None = None  # waiting requests
    pull_queue: int | None = None
    send_wait_ms: int | None = None  # waiting time of the first one
    page_cache_busy_ms: int | None = None
    put_p99_ms: float | None = None  # not reported by Java's brokers
    memory: int | None = None
    dispatch_behind: int | None = None  # bytes of the log that are not in queues yet
    replication_behind: int | None = None  # of a slave: bytes of its master's log that it lacks
    producers: int | None = None  # connected clients
    consumers: int | None = None
    topics: int | None = None
    groups: int | None = None

    @property
    def alive(self) -> bool:
        """Whether it answered the last request."""
        return self.seen is not None and self.problem is None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic over all brokers that have it; if some do not answer, it is `partial`."""

    name: str
    kind: str  # normal | delay | fifo | transaction | mixed | retry | dlq | system | unspecified
    read_queues: int
    write_queues: int
    brokers: tuple[str, ...]  # names
    perm: int | None  # None if brokers differ
    order: bool = False
    seen: int | None = None  # time of its values; its settings are as old as those of its brokers
    problem: str | None = None
    partial: bool = False  # the values are of some of its brokers only
    in_rate: float | None = None
    out_rate: float | None = None  # of all groups in total
    stored: int | None = None  # messages from the first one kept to the end
    last_stored_at: int | None = None
    groups: tuple[str, ...] = ()  # groups with offsets
    lag: int | None = None  # of all groups in total

    @property
    def queues(self) -> int:
        """Readable queues, over all brokers."""
        return self.read_queues


@dataclass(frozen=True, slots=True)
class GroupTopicRow:
    """A group's progress in one topic, over all brokers."""

    topic: str
    lag: int | None = None
    consume_rate: float | None = None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A consumer group over all brokers that have it; if some do not answer, it is `partial`."""

    name: str
    system: bool = False  # one that brokers predefine
    state: str = "unknown"  # online | offline | unknown
    brokers: tuple[str, ...] = ()  # names
    seen: int | None = None
    problem: str | None = None
    partial: bool = False
    lag: int | None = None
    lag_rate: float | None = None  # growth of the lag in messages per second; negative: it shrinks
    # No message has waited longer; None: unknown, or no lag.
    oldest_age_ms: int | None = None
    consume_rate: float | None = None
    last_consumed_at: int | None = None  # store time of the newest consumed message
    members: int | None = None  # connected client ids
    model: str | None = None  # CLUSTERING | BROADCASTING
    way: str | None = None  # CONSUME_PASSIVELY (push) | CONSUME_ACTIVELY (pull) | ...
    enabled: bool | None = None  # may consume; None if brokers differ
    retry_max: int | None = None
    topics: tuple[GroupTopicRow, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client in a group, producer or consumer, over all its brokers."""

    group: str
    client_id: str
    address: str
    language: str | None
    version: str | None
    brokers: tuple[str, ...]  # addresses of the brokers that reported it
    seen: int | None = None


class ProducerRow(ClientRow):
    """A producer, as listed by brokers (GET_ALL_PRODUCER_INFO)."""

    __slots__ = ()


class ConsumerRow(ClientRow):
    """A consumer, as listed by brokers (GET_CONSUMER_CONNECTION_LIST)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """A current problem."""

    subject: str  # "name server ADDRESS", "broker NAME (ADDRESS)", "collector"
    text: str
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at one moment: `at` is in ms since 1970, rows are sorted by name.

    The snapshot before the first reply has `at` 0 and no rows.
    """

    at: int = 0
    name_servers: tuple[NameServerRow, ...] = ()
    clusters: tuple[ClusterRow, ...] = ()
    brokers: tuple[BrokerRow, ...] = ()  # by cluster, name, id
    topics: tuple[TopicRow, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    producers: tuple[ProducerRow, ...] = ()  # by group, client id
    consumers: tuple[ConsumerRow, ...] = ()
    problems: tuple[Problem, ...] = ()
    # The last runtime information of brokers, by address (GET_BROKER_RUNTIME_INFO).
    runtimes: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    @property
    def ready(self) -> bool:
        """Whether any reply has been received."""
        return self.at > 0

    def topic(self, name: str) -> TopicRow | None:
        """Return the topic of this name."""
        return _found(self.topics, name)

    def group(self, name: str) -> GroupRow | None:
        """Return the consumer group of this name."""
        return _found(self.groups, name)

    def broker(self, name: str, broker_id: int) -> BrokerRow | None:
        """Return the broker of this name and id."""
        return next((b for b in self.brokers if b.name == name and b.id == broker_id), None)

    def heads(self) -> tuple[BrokerRow, ...]:
        """Return for each broker name the broker to ask: the master, if it answers.

        If none answers, it is the one with the lowest id: asking it shows the reason.
        """
        found: dict[str, BrokerRow] = {}
        for broker in self.brokers:  # in the order of ids
            known = found.get(broker.name)
            if known is None or (broker.alive and not known.alive):
                found[broker.name] = broker
        return tuple(found.values())


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Row = TypeVar("Row", bound=_Named)


def _found(rows: Sequence[Row], name: str) -> Row | None:
    place = bisect_left(rows, name, key=lambda row: row.name)
    if place < len(rows) and rows[place].name == name:
        return rows[place]
    return None
