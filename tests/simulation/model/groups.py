"""Groups: the messages delivered to members of consumer groups, and consumed by them.

A group consumes each stored message that it wants at least once, or it becomes a dead letter.
Committed offsets never pass a message that no member has received.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from math import inf

Queue = tuple[str, str, int]  # topic, broker, queue id
# Of a member: the next offset to pull, by queue.
Positions = Callable[[], Iterable[tuple[Queue, int]]]

# Seconds after a broker's start for which a member may use locks that the broker has forgotten:
# until it notices the lost connection, or, if it is not notified, stops trusting the locks
# (client/reader/queue_locks.py).
_NOTICES_SECONDS = 1.0
_TRUSTS_SECONDS = 30.0


@dataclass(frozen=True)
class Hand:
    """A message in flight at a member."""

    offset: int
    since: float
    is_alive: Callable[[], bool]  # whether its process is alive


@dataclass
class Progress:
    """The progress of a group in a queue."""

    had: set[int] = field(default_factory=set)  # offsets whose listener has returned or raised
    finished: set[int] = field(default_factory=set)  # offsets consumed without an error
    below: int = 0  # all offsets below were received; checked so far
    next: int = 0  # for an ordered group: the first offset that is not consumed
    # for an ordered group: the message in flight of each member
    hands: dict[str, Hand] = field(default_factory=dict)
    numbers: set[tuple[int, int]] = field(default_factory=set)  # received messages, by offset
    # When a member was seen to pull from another offset, and from which.
    pulls_from: list[tuple[float, int]] = field(default_factory=list)

    def is_behind(self, offset: int, at: float) -> bool:
        """Whether an offset was before the group's position at a moment, received or not, and ever
        since.
        """
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
        """``mode`` is concurrent, ordered or broadcasting. ``tags``: the subscribed ones, else all.

        ``is_alone``: one member from before the first message to after the last.
        """
        self.name = name
        self.topic = topic
        self.tags = tuple(tags)
        self.mode = mode
        self.members: list[str] = []  # the names of its clients
        self.is_alone = is_alone
        self.delivered: dict[int, int] = defaultdict(int)
        self.finished: dict[int, int] = defaultdict(int)
        self.failed: dict[int, int] = defaultdict(int)
        self.times: dict[int, list[float]] = defaultdict(list)
        self.queues: dict[Queue, Progress] = defaultdict(Progress)
        self.abandoned: dict[int, int] = defaultdict(int)
        self.resets: list[float] = []
        self.positions: dict[str, Positions] = {}  # by member
        # When members left, and had left.
        self.leaves: list[tuple[float, float]] = []
        self.gave_up_order: set[str] = set()  # brokers whose losses changed the meaning of offsets
        # Whether there were only orderly stops so far.
        self.is_orderly: Callable[[], bool] = lambda: False
        # Since when a broker knows the locks: its last start, except the first.
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
        """A listener gets a message. ``is_alive``: whether the member's process is alive."""
        self.delivered[number] += 1
        self.times[number].append(now)
        progress = self.queues[queue]
        progress.numbers.add((offset, number))
        if self.mode == "ordered":
            self._check_alone(member, progress, queue)
            if offset > progress.next and not self.is_excused(queue[1]):
                self._wrong(
                    f"{self.name}: {queue} is at {offset}, but {progress.next} is not consumed"
                )
            progress.hands[member] = Hand(offset, now, is_alive)

    def _check_alone(self, member: str, progress: Progress, queue: Queue) -> None:
        """A member owns a queue alone while the broker keeps its lock."""
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
        """The listener has returned or raised."""
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
        """Read the progress of its members."""
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
        """How often a message was delivered too often; ``spans`` may be forgotten."""
        due = copies + self.failed[number] + self.abandoned[number]
        extra = self.delivered[number] - due
        if extra > 0:
            all_spans = [*spans, *self.leaves]
            earlier = self.times[number][:-1]  # the last one needs no excuse
            extra -= sum(any(since <= at <= until for since, until in all_spans) for at in earlier)
        return extra

    def member_died(self, member: str) -> None:
        """Drop its messages in flight."""
        self.positions.pop(member, None)
        for progress in self.queues.values():
            progress.hands.pop(member, None)

    def is_excused(self, broker: str) -> bool:
        """Whether offsets of a broker mean nothing any more: it lost the end of its log."""
        return broker in self.gave_up_order

    def committed(self, queue: Queue, offset: int, minimum: int) -> None:
        """A broker has this offset of the group, and no message below ``minimum`` any more."""
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
