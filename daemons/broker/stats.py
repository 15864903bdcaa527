"""What the broker has done, per topic and group and in all, and how fast.

The hot path only adds to integers; rates are differences between samples taken by a timer. Messages
stored are counted by the store, a batch at a time.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

SAMPLE_SECONDS = 1.0
PERIODS = (10, 60, 600)  # seconds; the three figures in putTps and its like


class Sample(NamedTuple):
    """The counters at a moment."""

    seconds: float
    puts: int
    found: int
    missed: int
    transferred: int


class GroupCounter:
    """What one group has read of one topic."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0  # bytes


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
        self.groups: dict[tuple[str, str], GroupCounter] = {}  # by topic and group
        self.started = time.time()
        self._samples: deque[Sample] = deque(maxlen=PERIODS[-1] + 1)
        self._group_samples: dict[tuple[str, str], deque[tuple[float, int]]] = {}
        self._take_sample()

    @property
    def puts(self) -> int:
        return self._stored()[0]

    @property
    def put_bytes(self) -> int:
        return self._stored()[1]

    def group(self, topic: str, group: str) -> GroupCounter:
        """The counter of a group in a topic, to be kept and added to."""
        counter = self.groups.get((topic, group))
        if counter is None:
            counter = self.groups[topic, group] = GroupCounter()
        return counter

    def rates(self, name: str) -> str:
        """A counter's growth a second over the three periods, as Java prints them."""
        now = self._take_sample()
        return " ".join(str(self._rate(name, now, period)) for period in PERIODS)

    def group_rate(self, topic: str, group: str) -> float:
        """Messages a second that a group has read of a topic over the last minute."""
        samples = self._group_samples.get((topic, group))
        counter = self.groups.get((topic, group))
        if not samples or counter is None:
            return 0.0
        seconds, messages = samples[0]
        passed = time.monotonic() - seconds
        return (counter.messages - messages) / passed if passed > 0 else 0.0

    def group_rates(self, group: str, topics: Iterable[str]) -> float:
        return sum(self.group_rate(topic, group) for topic in topics)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            now = self._take_sample()
            self._samples.append(now)
            for key, counter in self.groups.items():
                samples = self._group_samples.get(key)
                if samples is None:
                    samples = self._group_samples[key] = deque(maxlen=60)
                samples.append((now.seconds, counter.messages))

    def _take_sample(self) -> Sample:
        return Sample(time.monotonic(), self.puts, self.found, self.missed, self.transferred)

    def _rate(self, name: str, now: Sample, period: int) -> float:
        oldest = now.seconds - period
        for sample in self._samples:  # the first that is inside the period
            if sample.seconds >= oldest and now.seconds > sample.seconds:
                difference = getattr(now, name) - getattr(sample, name)
                return float(difference / (now.seconds - sample.seconds))
        return 0.0
