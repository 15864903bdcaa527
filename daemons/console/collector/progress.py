"""The progress of a group at one broker between two polls: rates, and how long messages wait."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from sys import intern

from mq.daemons.console.collector.offsets_text import QueueProgress

# Consumers commit offsets every 5 s: a shorter time between polls gives no rates.
SHORTEST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """A group in a topic at one broker: sums over its queues, and their growth per second."""

    queues: int
    end: int
    place: int
    in_rate: float | None = None
    consume_rate: float | None = None

    @property
    def lag(self) -> int:
        """The lag in messages, as in `mq consumerProgress`."""
        return self.end - self.place


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group at one broker at one poll: `at` is in ms since 1970, `seconds` monotonic.

    `waiting` are the queues with a lag, each with a time (ms) before which none of its waiting
    messages was stored; 0 if unknown.
    """

    at: int
    seconds: float
    topics: Mapping[str, TopicProgress] = field(default_factory=dict)
    consumed_at: int = 0
    lag_rate: float | None = None
    waiting: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """The lag in messages, over all topics."""
        return sum(one.lag for one in self.topics.values())

    @property
    def size(self) -> int:
        """The number of entries."""
        return len(self.topics) + len(self.waiting)

    @property
    def idle(self) -> bool:
        """Whether no message was sent or consumed since the previous poll."""
        return all(one.in_rate == 0 and one.consume_rate == 0 for one in self.topics.values())

    @property
    def oldest_at(self) -> int | None:
        """The time before which no waiting message was stored; None: unknown, or no lag."""
        oldest = min(self.waiting.values(), default=0)
        return oldest if oldest > 0 else None


def progressed(
    before: GroupProgress | None, found: Iterable[QueueProgress], at: int, seconds: float
) -> GroupProgress:
    """Return the next progress of a group, with rates since the previous one."""
    passed = 0.0 if before is None else seconds - before.seconds
    sums: dict[str, list[int]] = {}
    waiting: dict[tuple[str, int], int] = {}
    consumed_at = 0
    for queue in found:
        topic = intern(queue.topic)
        total = sums.get(topic)
        if total is None:
            total = sums[topic] = [0, 0, 0]
        total[0] += 1
        total[1] += queue.end
        total[2] += queue.place
        consumed_at = max(consumed_at, queue.consumed_at)
        if queue.lag > 0:
            key = (topic, queue.queue)
            waiting[key] = max(queue.consumed_at, _floor(before, key))
    topics = {name: _topic(before, name, total, passed) for name, total in sums.items()}
    lag_rate = None
    if before is not None and passed >= SHORTEST_SECONDS and before.topics.keys() == topics.keys():
        lag_rate = (sum(one.lag for one in topics.values()) - before.lag) / passed
    return GroupProgress(at, seconds, topics, consumed_at, lag_rate, waiting)


def _floor(before: GroupProgress | None, key: tuple[str, int]) -> int:
    """Return a time before which none of the waiting messages of a queue was stored."""
    if before is None or key[0] not in before.topics:
        return 0
    return before.waiting.get(key, before.at)


def _topic(
    before: GroupProgress | None, name: str, total: list[int], passed: float
) -> TopicProgress:
    queues, end, place = total
    old = before.topics.get(name) if before is not None else None
    if old is None or old.queues != queues or passed < SHORTEST_SECONDS:
        return TopicProgress(queues, end, place)
    # Smaller than before: the topic was recreated, or the group was reset.
    return TopicProgress(
        queues,
        end,
        place,
        in_rate=(end - old.end) / passed if end >= old.end else None,
        consume_rate=(place - old.place) / passed if place >= old.place else None,
    )
