"""Consumer groups: their members, their common settings, and their reported partitions.

The first member determines the settings of the group; members that differ are refused with codes
424 to 430 (ConsumeGroupInfo). The group is removed with its last member.

The events for members of groups, one at a time (ConsumerEventManager).

head       a member gets its first event once per connection; a later heartbeat reports its end,
           then the next event is its first
order      while any member of a group still has to release partitions, none gets others: so no
           partition is assigned before it is free
timeout    a group with unfinished events gets no new ones; after MOST_ROUNDS rounds the old ones
           are dropped, and the reports of the members are used
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from mq.client.machine import clock
from mq.protocol.tube.codes import UNDEFINED, Code, EventType
from mq.protocol.tube.strings import Partition, PartitionKey

# Rounds that a group may take for its events (TMaster.MAX_BALANCE_DELAY_TIME).
MOST_ROUNDS = 10

# Limits for the memory of all clients together. A member takes a few kilobytes.
MOST_MEMBERS = 50_000
MOST_HELD = 20_000  # partitions, by one member
#: Partitions and offsets of members, topics and filter items of groups: some hundred bytes
#: each.
MOST_KEPT = 1_000_000


@dataclass(slots=True)
class Event:
    """Partitions to release or to take, of one member."""

    round_id: int
    kind: EventType
    partitions: Sequence[Partition]
    sent_to: str = ""  # the connection on which its member got it


@dataclass(slots=True)
class _Queues:
    losses: deque[Event] = field(default_factory=deque)
    gains: deque[Event] = field(default_factory=deque)


class GroupEvents:
    """The events of one group, by member."""

    def __init__(self) -> None:
        self._members: dict[str, _Queues] = {}
        self._losing = 0  # members that still have to release partitions
        self._late_rounds = 0

    def add(
        self, member: str, round_id: int, lost: Sequence[Partition], got: Sequence[Partition]
    ) -> None:
        """Let a member release some partitions, and take others."""
        queues = self._members.setdefault(member, _Queues())
        if lost:
            kind = EventType.DISCONNECT if got else EventType.ONLY_DISCONNECT
            self._losing += not queues.losses
            queues.losses.append(Event(round_id, kind, lost))
        if got:
            kind = EventType.CONNECT if lost else EventType.ONLY_CONNECT
            queues.gains.append(Event(round_id, kind, got))

    def next(self, member: str, address: str) -> Event | None:
        """Return the event for a member, if any; it counts as sent on that connection.

        With another connection the member may not have got the last answer: it gets the event
        again. TubeMQ does not do that; then its group waits for MOST_ROUNDS. Clients that get an
        event twice ignore the finished parts.
        """
        queue = self._queue(member)
        if not queue or queue[0].sent_to == address:
            return None
        queue[0].sent_to = address
        return queue[0]

    def done(self, member: str, round_id: int, kind: int = 0) -> Event | None:
        """Remove and return the event that a member has finished. `kind` is 0 if it is not given.

        TubeMQ removes the first event for any report; here it must be a sent one, with the round
        and kind of the report: a late or repeated report does not end an event that the member has
        not seen or finished.
        """
        queue = self._queue(member)
        if not queue or not queue[0].sent_to or queue[0].round_id != round_id:
            return None
        if kind not in (0, queue[0].kind):
            return None
        event = queue.popleft()
        queues = self._members[member]
        if queue is queues.losses and not queue:
            self._losing -= 1
        if not (queues.losses or queues.gains):
            del self._members[member]
        return event

    def drop(self, member: str) -> None:
        """Remove the events of a member."""
        queues = self._members.pop(member, None)
        if queues is not None and queues.losses:
            self._losing -= 1

    def pending(self) -> Iterator[str]:
        """Yield members with unfinished events."""
        return iter(list(self._members))

    def is_busy(self, alive: Collection[str]) -> bool:
        """Return whether live members have unfinished events. Called once per round.

        Events that are older than MOST_ROUNDS are dropped.
        """
        late = [member for member in self._members if member in alive]
        if not late:
            self._late_rounds = 0
            return False
        if self._late_rounds >= MOST_ROUNDS:
            for member in late:
                self.drop(member)
            self._late_rounds = 0
            return False
        self._late_rounds += 1
        return True

    def _queue(self, member: str) -> deque[Event] | None:
        queues = self._members.get(member)
        if queues is None:
            return None
        return queues.losses if self._losing else queues.gains


class Refused(Exception):
    """A request is answered with this code and text."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class ConsumeType(Enum):
    """How a group gets its partitions; the value is the name for users."""

    NORMAL = "normal-consume"
    BOUND = "bind-consume"  # begins at offsets that it names, when all its members are present
    CLIENT_BALANCE = "client-reb"  # balances by itself


@dataclass(slots=True)
class Member:
    """A consumer as registered."""

    id: str
    group: str
    consume_type: ConsumeType
    topics: frozenset[str]
    conditions: Mapping[str, frozenset[str]]
    over_tls: bool = False
    address: str = ""
    session_key: str = ""
    session_time: int = 0
    source_count: int = -1
    node_id: int = -1
    selects_big: bool = True
    required: Mapping[PartitionKey, int] = field(default_factory=dict)
    # The reported partitions; None before a report or heartbeat.
    held: dict[PartitionKey, Partition] | None = None
    last_assigned: int = UNDEFINED  # for a client-balanced one: the time of its assignment, in ms
    meta_id: int = UNDEFINED  # likewise: the id of its metadata


class Group:
    """A group with members."""

    def __init__(self, founder: Member) -> None:
        self.name = founder.group
        self.consume_type = founder.consume_type
        self.topics = founder.topics
        self.conditions = founder.conditions
        self.session_key = founder.session_key
        self.session_time = founder.session_time
        self.source_count = founder.source_count
        self.selects_big = founder.selects_big
        self.members: dict[str, Member] = {}
        self.events = GroupEvents()
        self.not_allocated = True
        self.bound_rounds = 0  # of a bound group, in which it was allocated
        self.bound_checks = 0  # in which its members were not complete
        self.checked = False  # it once had enough members for its brokers
        self.check_failed = False
        self.rate = UNDEFINED  # brokers per member, at the last check
        self.fewest_members = UNDEFINED
        # Members to get other partitions (admin_rebalance_group_allocate), and for how many rounds
        # they get none; 0: at once.
        self.leaving: dict[str, int] = {}
        self.resting: dict[str, int] = {}
        self._booked: dict[PartitionKey, str] = {}
        self.meta_id = UNDEFINED  # of topics' metadata, for client-balanced members
        self.meta: dict[str, str] = {}
        self.from_max_id = UNDEFINED

    @property
    def size(self) -> int:
        """Return the number of topics and filter items, which its members share."""
        return len(self.topics) + sum(1 + len(items) for items in self.conditions.values())

    @property
    def is_waiting_bound(self) -> bool:
        """Whether it is bound and has no partitions yet (isUnReadyServerBalance)."""
        return (
            self.consume_type is ConsumeType.BOUND
            and self.not_allocated
            and bool(self._booked)
            and self.bound_rounds < 2
        )

    def join(self, member: Member) -> bool:
        """Add a member that fits (`check`); return whether it is new."""
        old = self.members.get(member.id)
        if old is not None:
            # TubeMQ keeps the old data except the address and such (updCurConsumerInfo).
            old.over_tls, old.address = member.over_tls, member.address
            old.last_assigned, old.meta_id = member.last_assigned, member.meta_id
            if member.node_id >= 0:
                old.node_id = member.node_id
            return False
        # Equal ones are stored once.
        member.topics, member.conditions = self.topics, self.conditions
        self.members[member.id] = member
        self._book(member)
        return True

    def leave(self, member_id: str) -> Member | None:
        """Remove a member."""
        self._booked = {key: m for key, m in self._booked.items() if m != member_id}
        self.leaving.pop(member_id, None)
        self.resting.pop(member_id, None)
        self.events.drop(member_id)
        return self.members.pop(member_id, None)

    def booked(self) -> dict[PartitionKey, str]:
        """For a bound group: the member that named an offset for each partition, and so gets it."""
        return dict(self._booked)

    def offset_of(self, key: PartitionKey) -> int | None:
        """Return the start of a bound group in a partition."""
        member = self.members.get(self._booked.get(key, ""))
        return member.required.get(key) if member is not None else None

    def set_meta(self, meta: Mapping[str, str], now_ms: int) -> None:
        """Set metadata of topics; its id changes with its content (updCsmTopicMetaInfo)."""
        if meta and dict(meta) != self.meta:
            # TubeMQ keeps sending removed topics, each time as if they were new.
            self.meta = dict(meta)
            self.meta_id = max(now_ms, self.meta_id + 1)

    def _book(self, member: Member) -> None:
        for key, offset in member.required.items():
            known = self.offset_of(key)
            if known is None or (offset >= known if self.selects_big else offset < known):
                self._booked[key] = member.id

    def check(self, member: Member) -> None:
        """Raises Refused if a member does not fit, with TubeMQ's order, codes and, except for
        lists, texts
        (validConsumerInfo)."""
        who = f"[Inconsistency subscribe] {member.id}"
        others = "is inconsistency with other consumers in the group"
        if member.consume_type is not self.consume_type:
            raise Refused(
                Code.CLIENT_INCONSISTENT_CONSUMETYPE,
                f"{who} using {member.consume_type.value} subscribe is inconsistency with other "
                f"consumers using {self.consume_type.value} subscribe in the group",
            )
        if self.topics and member.topics != self.topics:
            raise Refused(
                Code.CLIENT_INCONSISTENT_TOPICSET,
                f"{who} subscribed topics {_shown(member.topics)} {others}, existedTopics: "
                f"{_shown(self.topics)}",
            )
        if member.conditions != self.conditions:
            raise Refused(
                Code.CLIENT_INCONSISTENT_FILTERSET,
                f"{who} subscribe with filter condition {_conditions(member.conditions)} {others}, "
                f"existed topic conditions is {_conditions(self.conditions)}",
            )
        if self.consume_type is ConsumeType.BOUND:
            self._check_bound(member, f"{who}'s", others)
        elif self.consume_type is ConsumeType.CLIENT_BALANCE and self.source_count > 0:
            self._check_source_count(member, f"{who}'s", others)
            for other in self.members.values():
                if other.node_id == member.node_id and other.id != member.id:
                    raise Refused(
                        Code.CLIENT_DUPLICATE_INDEXID,
                        f"{who}'s nodeId value({member.node_id}) is occupied by {other.id}'s "
                        f"nodeId value({other.node_id}) in the group!",
                    )

    def _check_bound(self, member: Member, whose: str, others: str) -> None:
        if member.session_key != self.session_key:
            raise Refused(
                Code.CLIENT_INCONSISTENT_SESSIONKEY,
                f"{whose} sessionKey {others}, required is {self.session_key}, request is "
                f"{member.session_key}",
            )
        if member.selects_big != self.selects_big:
            raise Refused(
                Code.CLIENT_INCONSISTENT_SELECTBIG,
                f"{whose} isSelectBig {others}, required is {str(self.selects_big).lower()}, "
                f"request is {str(member.selects_big).lower()}",
            )
        self._check_source_count(member, whose, others)

    def _check_source_count(self, member: Member, whose: str, others: str) -> None:
        if member.source_count != self.source_count:
            raise Refused(
                Code.CLIENT_INCONSISTENT_SOURCECOUNT,
                f"{whose} sourceCount {others}, required is {self.source_count}, request is "
                f"{member.source_count}",
            )


class Groups:
    """All groups with members, by name. A member's id is in one group at most."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._of_member: dict[str, str] = {}
        self._kept = 0  # see MOST_KEPT
        self.most_members = MOST_MEMBERS

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(sorted(self._groups.values(), key=lambda one: one.name))

    def get(self, name: str) -> Group | None:
        return self._groups.get(name)

    def members(self) -> int:
        return len(self._of_member)

    def join(self, member: Member) -> Group:
        """Add a member to its group, which may be new. Raises Refused."""
        before = self._of_member.get(member.id)
        if before is None and len(self._of_member) >= self.most_members:
            raise Refused(
                Code.SERVICE_UNAVAILABLE, f"there are {self.most_members} consumers already"
            )
        known = self._groups.get(member.group)
        group = Group(member) if known is None else known
        group.check(member)  # a refused member stays in its present group
        kept = group.size if known is None else 0
        if member.id not in group.members:
            kept += len(member.required)
        if self._kept + kept > MOST_KEPT:
            raise Refused(
                Code.SERVICE_UNAVAILABLE, "consumers name more topics and offsets than can be kept"
            )
        if before is not None and before != member.group:
            self.leave(before, member.id)  # TubeMQ would keep it in both groups, and confuse them
        group.join(member)
        self._kept += kept
        self._groups[group.name] = group
        self._of_member[member.id] = group.name
        return group

    def leave(self, name: str, member_id: str) -> Member | None:
        """Remove a member, and with the last one the group."""
        group = self._groups.get(name)
        if group is None:
            return None
        member = group.leave(member_id)
        if member is not None:
            self._kept -= len(member.held or ()) + len(member.required)
            del self._of_member[member_id]
        if not group.members:
            self._kept -= group.size
            del self._groups[name]
        return member

    def hold(self, member: Member, partitions: Mapping[PartitionKey, Partition]) -> bool:
        """Record the partitions of a member; return whether they are new. Raises Refused if too
        many.
        """
        before = member.held or {}
        kept = self._kept - len(before) + len(partitions)
        if len(partitions) > MOST_HELD or kept > MOST_KEPT:
            raise Refused(
                Code.BAD_REQUEST, f"{len(partitions)} partitions are more than one may report"
            )
        self._kept = kept
        member.held = dict(partitions)
        return before.keys() != partitions.keys()

    def clear(self) -> None:
        """Remove all: another master has them now."""
        self._groups.clear()
        self._of_member.clear()
        self._kept = 0


def now_ms() -> int:
    return clock.milliseconds()


def _shown(names: frozenset[str]) -> str:
    return f"[{', '.join(sorted(names))}]"


def _conditions(conditions: Mapping[str, frozenset[str]]) -> str:
    inner = ", ".join(f"{topic}={_shown(conditions[topic])}" for topic in sorted(conditions))
    return f"{{{inner}}}"
