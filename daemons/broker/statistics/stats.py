"""Statistics: what the broker has done, per topic and group and in all, and how fast.

The hot path only adds to integers; rates are differences between samples taken by a timer. Messages
stored are counted by the store, a batch at a time.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mq.client.machine import clock

SAMPLE_SECONDS = 1.0
PERIODS = (10, 60, 600)  # seconds; the three rates in putTps and its like


class Sample(NamedTuple):
    """The counters at a moment."""

    seconds: float
    puts: int
    found: int
    missed: int
    transferred: int

    @property
    def asked(self) -> int:
        """Pulls in all."""
        return self.found + self.missed


class GroupCounter:
    """What one group has read of one queue."""

    __slots__ = ("behind", "messages", "pulls", "size", "waited")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0  # bytes
        self.pulls = 0  # that found something
        self.waited = 0  # milliseconds that pulls took to read from the disk
        self.behind = 0  # bytes of the log behind what the last of them found


class BrokerStats:
    """Counters of one broker since its start.

    ``stored`` gives messages stored and their bytes. ``found`` and ``missed`` are pulls that found
    messages or did not, ``transferred`` are messages read by consumers.
    """

    def __init__(self, stored: Callable[[], tuple[int, int]]) -> None:
        self._stored = stored
        self.found = 0
        self.missed = 0
        self.transferred = 0
        self.longest_read = 0  # ms that a pull has waited for the disk
        self.groups: dict[tuple[str, str, int], GroupCounter] = {}  # by topic, group, queue id
        self.sent_back: Counter[tuple[str, str]] = Counter()  # messages, by topic and group
        self.started = clock.time()
        self._samples: deque[Sample] = deque(maxlen=PERIODS[-1] + 1)
        self._group_samples: dict[tuple[str, str], deque[tuple[float, int]]] = {}
        self._take_sample()

    @property
    def puts(self) -> int:
        return self._stored()[0]

    @property
    def put_bytes(self) -> int:
        return self._stored()[1]

    def group(self, topic: str, group: str, queue_id: int) -> GroupCounter:
        """The counter of a group in a queue, to be added to."""
        counter = self.groups.get((topic, group, queue_id))
        if counter is None:
            counter = self.groups[topic, group, queue_id] = GroupCounter()
        return counter

    def group_messages(self) -> dict[tuple[str, str], int]:
        """What each group has read of each topic since the start."""
        totals: dict[tuple[str, str], int] = {}
        for (topic, group, _), counter in self.groups.items():
            totals[topic, group] = totals.get((topic, group), 0) + counter.messages
        return totals

    def forget_topic(self, topic: str) -> None:
        """Drop what was counted of a topic that was deleted."""
        self._forget(lambda of_topic, _: of_topic == topic)

    def forget_group(self, group: str) -> None:
        """Drop what was counted of a group that was deleted."""
        self._forget(lambda _, of_group: of_group == group)

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        for key in [key for key in self.groups if is_gone(*key[:2])]:
            del self.groups[key]
        for pair in [pair for pair in self.sent_back if is_gone(*pair)]:
            del self.sent_back[pair]
        for pair in [pair for pair in self._group_samples if is_gone(*pair)]:
            del self._group_samples[pair]

    def rates(self, name: str) -> str:
        """A counter's growth a second over the three periods, as Java prints them."""
        now = self._take_sample()
        return " ".join(str(self._rate(name, now, period)) for period in PERIODS)

    def group_rate(self, topic: str, group: str) -> float:
        """Messages a second that a group has read of a topic over the last minute."""
        samples = self._group_samples.get((topic, group))
        if not samples:
            return 0.0
        seconds, messages = samples[0]
        read = sum(
            counter.messages for key, counter in self.groups.items() if key[:2] == (topic, group)
        )
        passed = clock.monotonic() - seconds
        return (read - messages) / passed if passed > 0 else 0.0

    def group_rates(self, group: str, topics: Iterable[str]) -> float:
        return sum(self.group_rate(topic, group) for topic in topics)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            now = self._take_sample()
            self._samples.append(now)
            for key, messages in self.group_messages().items():
                samples = self._group_samples.get(key)
                if samples is None:
                    samples = self._group_samples[key] = deque(maxlen=60)
                samples.append((now.seconds, messages))

    def _take_sample(self) -> Sample:
        return Sample(clock.monotonic(), self.puts, self.found, self.missed, self.transferred)

    def _rate(self, name: str, now: Sample, period: int) -> float:
        oldest = now.seconds - period
        for sample in self._samples:  # the first that is inside the period
            if sample.seconds >= oldest and now.seconds > sample.seconds:
                difference = getattr(now, name) - getattr(sample, name)
                return float(difference / (now.seconds - sample.seconds))
        return 0.0
