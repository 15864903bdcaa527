"""Statistics: the broker's counters, by topic and group and in total, and their rates.

The hot path only adds to integers; rates are differences between samples taken by a timer. The
store counts stored messages, a batch at a time.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mq.client.machine import clock

SAMPLE_SECONDS = 1.0
PERIODS = (10, 60, 600)  # seconds; the three rates in putTps and its like


class Sample(NamedTuple):
    """The counters at one moment."""

    seconds: float
    puts: int
    found: int
    missed: int
    transferred: int

    @property
    def asked(self) -> int:
        """The total of pulls."""
        return self.found + self.missed


class GroupCounter:
    """Counts the messages of one queue that one group has read."""

    __slots__ = ("behind", "messages", "pulls", "size", "waited")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0  # bytes
        self.pulls = 0  # that found messages
        self.waited = 0  # milliseconds that pulls waited for the disk
        self.behind = 0  # bytes of the log after the last message of the last pull


class BrokerStats:
    """Counters of one broker since its start.

    ``stored`` returns the number of stored messages and their bytes. ``found`` and ``missed`` count
    pulls that found messages or did not, ``transferred`` counts messages read by consumers.
    """

    def __init__(self, stored: Callable[[], tuple[int, int]]) -> None:
        self._stored = stored
        self.found = 0
        self.missed = 0
        self.transferred = 0
        self.longest_read = 0  # longest wait of a pull for the disk, in ms
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
        """The counter of a group in a queue; callers add to it."""
        counter = self.groups.get((topic, group, queue_id))
        if counter is None:
            counter = self.groups[topic, group, queue_id] = GroupCounter()
        return counter

    def group_messages(self) -> dict[tuple[str, str], int]:
        """The messages of each topic that each group has read since the start."""
        totals: dict[tuple[str, str], int] = {}
        for (topic, group, _), counter in self.groups.items():
            totals[topic, group] = totals.get((topic, group), 0) + counter.messages
        return totals

    def forget_topic(self, topic: str) -> None:
        """Drop the counters of a deleted topic."""
        self._forget(lambda of_topic, _: of_topic == topic)

    def forget_group(self, group: str) -> None:
        """Drop the counters of a deleted group."""
        self._forget(lambda _, of_group: of_group == group)

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        for key in [key for key in self.groups if is_gone(*key[:2])]:
            del self.groups[key]
        for pair in [pair for pair in self.sent_back if is_gone(*pair)]:
            del self.sent_back[pair]
        for pair in [pair for pair in self._group_samples if is_gone(*pair)]:
            del self._group_samples[pair]

    def rates(self, name: str) -> str:
        """A counter's growth per second over the three periods, formatted like Java's."""
        now = self._take_sample()
        return " ".join(str(self._rate(name, now, period)) for period in PERIODS)

    def group_rate(self, topic: str, group: str) -> float:
        """Messages per second of a topic that a group has read over the last minute."""
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
        for sample in self._samples:  # the first sample within the period
            if sample.seconds >= oldest and now.seconds > sample.seconds:
                difference = getattr(now, name) - getattr(sample, name)
                return float(difference / (now.seconds - sample.seconds))
        return 0.0
