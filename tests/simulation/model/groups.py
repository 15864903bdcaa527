"""Groups: what was delivered to the members of consumer groups, and what they finished.

Each message that is stored and that a group wants is finished by it at least once, or is a dead
letter. Offsets that are committed never pass a message that nobody of the group has had.
"""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

Queue = tuple[str, str, int]  # topic, broker, queue id


@dataclass
class Progress:
    """How far a group is in a queue."""

    had: set[int] = field(default_factory=set)  # offsets that a listener was given, and ended with
    finished: set[int] = field(default_factory=set)  # offsets it finished without an error
    below: int = 0  # everything below was had; checked so far
    next: int = 0  # of a group in order: the first offset that is not finished
    running: str = ""  # of a group in order: the member that has a message now
    numbers: set[tuple[int, int]] = field(default_factory=set)  # what was had, by offset


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
        self.is_alone = is_alone
        self.delivered: dict[int, int] = defaultdict(int)
        self.finished: dict[int, int] = defaultdict(int)
        self.failed: dict[int, int] = defaultdict(int)
        self.times: dict[int, list[float]] = defaultdict(list)
        self.queues: dict[Queue, Progress] = defaultdict(Progress)
        self.resets: list[float] = []
        self.gave_up_order: set[str] = set()  # brokers whose losses changed what an offset means
        #: Whether nothing has gone wrong so far: then locks of queues keep their promise.
        self.is_calm: Callable[[], bool] = lambda: False
        self._wrong = wrong

    def begins(self, member: str, number: int, queue: Queue, offset: int, now: float) -> None:
        """A listener is given a message."""
        self.delivered[number] += 1
        self.times[number].append(now)
        progress = self.queues[queue]
        progress.numbers.add((offset, number))
        if self.mode == "ordered":
            if progress.running.partition("#")[0] == member:
                self._wrong(f"{self.name}: {member} has two messages of {queue} at once")
            elif progress.running and self.is_calm():
                self._wrong(f"{self.name}: {progress.running} and {member} have {queue} at once")
            if offset > progress.next and not self.is_excused(queue[1]):
                self._wrong(
                    f"{self.name}: {queue} goes on at {offset}, but {progress.next} is not finished"
                )
            progress.running = f"{member}#{offset}"

    def ends(self, member: str, number: int, queue: Queue, offset: int, *, well: bool) -> None:
        """The listener has returned, or raised."""
        progress = self.queues[queue]
        progress.had.add(offset)
        if progress.running == f"{member}#{offset}":
            progress.running = ""
        if not well:
            self.failed[number] += 1
            return
        self.finished[number] += 1
        progress.finished.add(offset)
        while progress.next in progress.finished:
            progress.next += 1

    def member_died(self, member: str) -> None:
        """What it had in hand it has no more."""
        for progress in self.queues.values():
            if progress.running.partition("#")[0] == member:
                progress.running = ""

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
