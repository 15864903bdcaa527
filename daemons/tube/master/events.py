"""What members of groups are asked to do, one thing at a time (ConsumerEventManager).

head       a member is told of its first event once by each connection; it says in a later
           heartbeat that it is done, then the next one is its first
order      while any member of a group still has to let something go, none is told to take
           anything: so no partition is taken before it is free
patience   a group whose events are not done gets no new ones; after so many rounds the old ones
           are dropped, and what the members then say they hold counts
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from mq.protocol.tube.codes import EventType
from mq.protocol.tube.strings import Partition

#: Rounds that a group may take to do what it was asked (TMaster.MAX_BALANCE_DELAY_TIME).
MOST_ROUNDS = 10


@dataclass(slots=True)
class Event:
    """Partitions to let go or to take, of one member."""

    round_id: int
    kind: EventType
    partitions: Sequence[Partition]
    sent_to: str = ""  # by which connection its member was told of it


@dataclass(slots=True)
class _Queues:
    losses: deque[Event] = field(default_factory=deque)
    gains: deque[Event] = field(default_factory=deque)


class GroupEvents:
    """The events of one group, by member."""

    def __init__(self) -> None:
        self._members: dict[str, _Queues] = {}
        self._losing = 0  # how many still have to let something go
        self._late_rounds = 0

    def add(
        self, member: str, round_id: int, lost: Sequence[Partition], got: Sequence[Partition]
    ) -> None:
        """Ask a member to let some partitions go, and to take others."""
        queues = self._members.setdefault(member, _Queues())
        if lost:
            kind = EventType.DISCONNECT if got else EventType.ONLY_DISCONNECT
            self._losing += not queues.losses
            queues.losses.append(Event(round_id, kind, lost))
        if got:
            kind = EventType.CONNECT if lost else EventType.ONLY_CONNECT
            queues.gains.append(Event(round_id, kind, got))

    def next(self, member: str, address: str) -> Event | None:
        """What to tell a member now, if anything; it counts as told, by the connection from there.

        One that asks by another connection may not have got the answer that the last one had: it is
        told again. TubeMQ does not; then its group waits for MOST_ROUNDS. Clients that have been
        told twice take and let go only what they have not.
        """
        queue = self._queue(member)
        if not queue or queue[0].sent_to == address:
            return None
        queue[0].sent_to = address
        return queue[0]

    def done(self, member: str, round_id: int, kind: int = 0) -> Event | None:
        """A member has done what it was told; which that was. `kind` is 0 where it does not say.

        TubeMQ takes the first event out whatever the member names; here it has to be one that was
        told, of the round and the kind that are named: an answer that is late, or comes twice,
        does not end an event that the member has not seen yet, or not done.
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
        """Forget what was asked of a member."""
        queues = self._members.pop(member, None)
        if queues is not None and queues.losses:
            self._losing -= 1

    def pending(self) -> Iterator[str]:
        """Members that have not done everything."""
        return iter(list(self._members))

    def is_busy(self, alive: Collection[str]) -> bool:
        """Called once in a round: whether members that live still have to do something.

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
