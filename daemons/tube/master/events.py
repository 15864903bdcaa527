"""The events for members of groups, one at a time (ConsumerEventManager).

head       a member gets its first event once per connection; a later heartbeat reports its end,
           then the next event is its first
order      while any member of a group still has to release partitions, none gets others: so no
           partition is assigned before it is free
timeout    a group with unfinished events gets no new ones; after MOST_ROUNDS rounds the old ones
           are dropped, and the reports of the members are used
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from mq.protocol.tube.codes import EventType
from mq.protocol.tube.strings import Partition

# Rounds that a group may take for its events (TMaster.MAX_BALANCE_DELAY_TIME).
MOST_ROUNDS = 10


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
