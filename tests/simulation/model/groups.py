"""Groups: what was delivered to the members of consumer groups, and what they finished.

Each message that is stored and that a group wants is finished by it at least once, or is a dead
letter. Offsets that are committed never pass a message that nobody of the group has had.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from math import inf

Queue = tuple[str, str, int]  # topic, broker, queue id
#: Of a member: from which offset it pulls next, by queue.
Positions = Callable[[], Iterable[tuple[Queue, int]]]

# How long a member may go on with locks that a broker has forgotten, from its start: until it
# notices that its connection is gone, or, where it may not be told, trusts the locks no more
# (client/queue_locks.py).
_NOTICES_SECONDS = 1.0
_TRUSTS_SECONDS = 30.0


@dataclass(frozen=True)
class Hand:
    """A message that a member has now."""

    offset: int
    since: float
    is_alive: Callable[[], bool]  # its process


@dataclass
class Progress:
    """How far a group is in a queue."""

    had: set[int] = field(default_factory=set)  # offsets that a listener was given, and ended with
    finished: set[int] = field(default_factory=set)  # offsets it finished without an error
    below: int = 0  # everything below was had; checked so far
    next: int = 0  # of a group in order: the first offset that is not finished
    hands: dict[str, Hand] = field(default_factory=dict)  # in order: what each member has now
    numbers: set[tuple[int, int]] = field(default_factory=set)  # what was had, by offset
    #: When a member was seen to pull from another offset, and from which.
    pulls_from: list[tuple[float, int]] = field(default_factory=list)

    def is_behind(self, offset: int, at: float) -> bool:
        """Whether it was behind the group at a moment, given to it or not, and ever since."""
        since = inf
        for seen, position in reversed(self.pulls_from):
            if position <= offset:
                break
            since = seen
        return since <= at


class Group:
    """A group of push consumers."""

    def __init__(
        self,
        name: str,
        topic: str,
        wrong: Callable[[str], None],
        *,
        tags: Collection[str] = (),
        mode: str = "concurrent",
        is_alone: bool = False,
    ) -> None:
        """``mode`` is concurrent, ordered or broadcasting. ``tags``: those it wants, else all.

        ``is_alone``: one member from before the first message to after the last.
        """
        self.name = name
        self.topic = topic
        self.tags = tuple(tags)
        self.mode = mode
        self.members: list[str] = []  # the names of the clients that are
        self.is_alone = is_alone
        self.delivered: dict[int, int] = defaultdict(int)
        self.finished: dict[int, int] = defaultdict(int)
        self.failed: dict[int, int] = defaultdict(int)
        self.times: dict[int, list[float]] = defaultdict(list)
        self.queues: dict[Queue, Progress] = defaultdict(Progress)
        self.abandoned: dict[int, int] = defaultdict(int)
        self.resets: list[float] = []
        self.positions: dict[str, Positions] = {}  # by member
        #: When members left, and had left.
        self.leaves: list[tuple[float, float]] = []
        self.gave_up_order: set[str] = set()  # brokers whose losses changed what an offset means
        #: Whether nothing was worse so far than that processes were asked to stop.
        self.is_orderly: Callable[[], bool] = lambda: False
        #: Since when a broker knows who has locked a queue: its last start but the first.
        self.locks_since: Callable[[str], float] = lambda _: -inf
        self._wrong = wrong

    def begins(
        self,
        member: str,
        number: int,
        queue: Queue,
        offset: int,
        now: float,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """A listener is given a message. ``is_alive``: whether the member's process is."""
        self.delivered[number] += 1
        self.times[number].append(now)
        progress = self.queues[queue]
        progress.numbers.add((offset, number))
        if self.mode == "ordered":
            self._check_alone(member, progress, queue)
            if offset > progress.next and not self.is_excused(queue[1]):
                self._wrong(
                    f"{self.name}: {queue} goes on at {offset}, but {progress.next} is not finished"
                )
            progress.hands[member] = Hand(offset, now, is_alive)

    def _check_alone(self, member: str, progress: Progress, queue: Queue) -> None:
        """A member has a queue for itself while the broker keeps its lock."""
        for other, hand in progress.hands.items():
            if not hand.is_alive():
                continue
            if other == member:
                self._wrong(f"{self.name}: {member} has two messages of {queue} at once")
                continue
            overlap = _NOTICES_SECONDS if self.is_orderly() else _TRUSTS_SECONDS
            if hand.since >= self.locks_since(queue[1]) + overlap:
                self._wrong(
                    f"{self.name}: {other} has {hand.offset} of {queue} since {hand.since:.6f}, "
                    f"and {member} is given another at the same time"
                )

    def ends(self, member: str, number: int, queue: Queue, offset: int, *, well: bool) -> None:
        """The listener has returned, or raised."""
        progress = self.queues[queue]
        progress.had.add(offset)
        self._lets_go(member, progress, offset)
        if not well:
            self.failed[number] += 1
            return
        self.finished[number] += 1
        progress.finished.add(offset)
        while progress.next in progress.finished:
            progress.next += 1

    def look(self, now: float) -> None:
        """See how far its members are."""
        for positions in self.positions.values():
            for queue, offset in positions():
                seen = self.queues[queue].pulls_from
                if not seen or seen[-1][1] != offset:
                    seen.append((now, offset))

    def abandons(self, member: str, number: int, queue: Queue, offset: int) -> None:
        """The listener was cancelled."""
        self.abandoned[number] += 1
        self._lets_go(member, self.queues[queue], offset)

    def _lets_go(self, member: str, progress: Progress, offset: int) -> None:
        hand = progress.hands.get(member)
        if hand is not None and hand.offset == offset:
            del progress.hands[member]

    def repeated(self, number: int, copies: int, spans: Iterable[tuple[float, float]]) -> int:
        """How often a message came too often. In ``spans`` what was finished may be forgotten."""
        due = copies + self.failed[number] + self.abandoned[number]
        extra = self.delivered[number] - due
        if extra > 0:
            all_spans = [*spans, *self.leaves]
            earlier = self.times[number][:-1]  # the last one needs no excuse
            extra -= sum(any(since <= at <= until for since, until in all_spans) for at in earlier)
        return extra

    def member_died(self, member: str) -> None:
        """What it had in hand it has no more."""
        self.positions.pop(member, None)
        for progress in self.queues.values():
            progress.hands.pop(member, None)

    def is_excused(self, broker: str) -> bool:
        """Whether offsets of a broker tell nothing any more: it lost the end of its log."""
        return broker in self.gave_up_order

    def committed(self, queue: Queue, offset: int, minimum: int) -> None:
        """A broker has this offset of the group, and nothing below ``minimum`` any more."""
        progress = self.queues[queue]
        progress.below = max(progress.below, minimum)
        if self.tags or self.mode == "broadcasting" or self.is_excused(queue[1]):
            return
        while progress.below < offset:
            if progress.below not in progress.had:
                self._wrong(
                    f"{self.name}: {offset} of {queue} is committed, but nobody has had "
                    f"{progress.below}"
                )
                progress.below = offset
                return
            progress.below += 1

    def wants(self, tag: str) -> bool:
        return not self.tags or tag in self.tags
