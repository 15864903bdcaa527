"""What the console knows of a cluster at a moment: rows without behaviour, for pages to show.

The collector replaces the whole snapshot; nobody changes one. A row that has not changed is the
same object as in the snapshot before it.

unknown   None, never 0. What was known is kept when a peer falls silent, and `problem` says so.
age       `seen` is when a row's figures were answered last, in ms since 1970; None: never yet.
rates     a second, over the time between two answers.
text      names, addresses and remarks are whatever peers have sent: data, never markup.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar


@dataclass(frozen=True, slots=True)
class NameServerRow:
    """A name server that the console is given, and how many brokers it names."""

    address: str
    seen: int | None = None
    problem: str | None = None
    response_ms: float | None = None
    brokers: int | None = None
    #: Broker addresses that others name and this one does not, and the other way round.
    missing: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster of brokers by the name that they register with."""

    name: str
    brokers: tuple[str, ...]  # names
    in_rate: float | None = None  # of all masters
    out_rate: float | None = None  # of all brokers
    problem: str | None = None  # brokers that do not answer


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker process: a name and an id. Sizes in bytes."""

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
    disk_used: float | None = None  # of the disk of the log, 0 to 1
    earliest_at: int | None = None  # store time of the oldest message
    send_queue: int | None = None  # requests that wait
    pull_queue: int | None = None
    send_wait_ms: int | None = None  # how long the first of them has waited
    page_cache_busy_ms: int | None = None
    put_p99_ms: float | None = None  # Java's brokers do not tell
    memory: int | None = None
    dispatch_behind: int | None = None  # bytes of the log that are not yet in queues
    replication_behind: int | None = None  # of a slave: bytes of its master's log
    producers: int | None = None  # clients that are connected
    consumers: int | None = None
    topics: int | None = None
    groups: int | None = None

    @property
    def alive(self) -> bool:
        """Whether it answered when it was asked last."""
        return self.seen is not None and self.problem is None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic over all brokers that have it; where some are silent it is `partial`."""

    name: str
    kind: str  # normal | delay | fifo | transaction | mixed | retry | dlq | system | unspecified
    read_queues: int
    write_queues: int
    brokers: tuple[str, ...]  # names
    perm: int | None  # None where brokers differ
    order: bool = False
    seen: int | None = None  # of its figures; its settings are as old as those of its brokers
    problem: str | None = None
    partial: bool = False  # figures are of some of its brokers only
    in_rate: float | None = None
    out_rate: float | None = None  # of all groups together
    stored: int | None = None  # messages from the first that is kept to the end
    last_stored_at: int | None = None
    groups: tuple[str, ...] = ()  # those that have offsets of it
    lag: int | None = None  # of all groups together

    @property
    def queues(self) -> int:
        """Queues to read from, of all brokers."""
        return self.read_queues


@dataclass(frozen=True, slots=True)
class GroupTopicRow:
    """A group's progress in one topic, over all brokers."""

    topic: str
    lag: int | None = None
    consume_rate: float | None = None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A consumer group over all brokers that have it; where some are silent it is `partial`."""

    name: str
    system: bool = False  # one of those that brokers are born with
    state: str = "unknown"  # online | offline | unknown
    brokers: tuple[str, ...] = ()  # names
    seen: int | None = None
    problem: str | None = None
    partial: bool = False
    lag: int | None = None
    lag_rate: float | None = None  # messages that it falls behind by, a second; below 0: catches up
    #: No message has waited for longer than this; None: unknown, or nothing waits.
    oldest_age_ms: int | None = None
    consume_rate: float | None = None
    last_consumed_at: int | None = None  # store time of the newest message that was consumed
    members: int | None = None  # client ids that are connected
    model: str | None = None  # CLUSTERING | BROADCASTING
    way: str | None = None  # CONSUME_PASSIVELY (push) | CONSUME_ACTIVELY (pull) | ...
    enabled: bool | None = None  # may consume; None where brokers differ
    retry_max: int | None = None
    topics: tuple[GroupTopicRow, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A client in a group, whether it produces or consumes, over all brokers that it is at."""

    group: str
    client_id: str
    address: str
    language: str | None
    version: str | None
    brokers: tuple[str, ...]  # addresses of those that told of it
    seen: int | None = None


class ProducerRow(ClientRow):
    """A producer, as brokers list them (GET_ALL_PRODUCER_INFO)."""

    __slots__ = ()


class ConsumerRow(ClientRow):
    """A consumer, as brokers list the members of a group (GET_CONSUMER_CONNECTION_LIST)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be while the console looks on."""

    subject: str  # "name server ADDRESS", "broker NAME (ADDRESS)", "collector"
    text: str
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at a moment: `at` in ms since 1970, rows in the order of their names.

    The snapshot before the first answer has `at` 0 and no rows.
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
    #: What brokers told of themselves last, by address (GET_BROKER_RUNTIME_INFO).
    runtimes: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    @property
    def ready(self) -> bool:
        """Whether anything has been answered yet."""
        return self.at > 0

    def topic(self, name: str) -> TopicRow | None:
        """The topic of this name."""
        return _found(self.topics, name)

    def group(self, name: str) -> GroupRow | None:
        """The consumer group of this name."""
        return _found(self.groups, name)

    def broker(self, name: str, broker_id: int) -> BrokerRow | None:
        """The broker of this name and id."""
        return next((b for b in self.brokers if b.name == name and b.id == broker_id), None)

    def heads(self) -> tuple[BrokerRow, ...]:
        """Of each broker name the one to ask about topics and groups: the master, if it answers.

        Where none answers, the one with the lowest id: asking it says why.
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
