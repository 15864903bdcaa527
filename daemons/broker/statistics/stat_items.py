"""Statistics of VIEW_BROKER_STATS_DATA: messages stored and read over a minute, an hour and a day.

Names, keys and windows are those of Java's BrokerStatsManager and StatsItem: a sample every 10 s,
10 minutes and hour, of which 7, 7 and 25 are kept; a value is the last sample minus the first. The
sampled counters are those that the store and the pulls maintain anyway. A batch counts as one put
for each message, while Java counts one.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

from mq.client.machine import clock
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.store import Queues
from mq.protocol import names
from mq.protocol.bodies import BrokerStatsData, BrokerStatsItem

# The counted total, and the number of calls.
Total = tuple[int, int]
# The name of a statistic, and its key: a topic, topic@group, topic@queue …
Key = tuple[str, str]


# The broker's own records about messages; Java never counts them as puts.
_INTERNAL_TOPICS = (names.REVIVE_TOPIC_PREFIX, names.TRANSACTION_OPERATION_TOPIC)


class Window(NamedTuple):
    """The sampling interval in seconds, and the number of samples kept."""

    seconds: int
    most: int


MINUTE, HOUR, DAY = range(3)
WINDOWS = (Window(10, 7), Window(600, 7), Window(3600, 25))


class _Item:
    """The samples of one statistic by window, aligned at their ends with the common times."""

    __slots__ = ("base", "last", "samples")

    def __init__(self) -> None:
        self.base: Total = (0, 0)  # the totals of counters that have been replaced
        self.last: Total = (0, 0)
        self.samples: tuple[list[Total], ...] = tuple([] for _ in WINDOWS)

    def update(self, total: Total) -> Total:
        """Add a counter's current value; a lower value means that the counter restarted."""
        if total[0] < self.last[0]:
            self.base = (self.base[0] + self.last[0], self.base[1] + self.last[1])
        self.last = total
        return self.base[0] + total[0], self.base[1] + total[1]


# Counters read between two pauses: well under a millisecond.
A_STEP = 200


class StatItems:
    """Samples of all statistics. ``totals`` returns the current counters."""

    def __init__(
        self,
        totals: Callable[[], Mapping[Key, Total]],
        settings: BrokerSettings,
        clock: Callable[[], float] = clock.time,
    ) -> None:
        self._totals = totals
        self._settings = settings
        self._clock = clock
        self._items: dict[Key, _Item] = {}
        self._times: tuple[list[float], ...] = tuple([] for _ in WINDOWS)

    async def run(self) -> None:
        """Take samples until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number, window in enumerate(WINDOWS):
                tasks.create_task(self._run_window(number, window), name=f"samples {window}")

    async def _run_window(self, number: int, window: Window) -> None:
        while True:
            self.sample(number)
            await asyncio.sleep(window.seconds)

    def sample(self, number: int) -> None:
        """Sample every statistic for a window."""
        window = WINDOWS[number]
        now = self._clock()
        times = self._times[number]
        if not times:
            times.append(now - window.seconds)
        times.append(now)
        del times[: -window.most]
        totals = self._totals()
        for key in totals.keys() - self._items.keys():
            self._items[key] = _Item()
        for key, item in list(self._items.items()):
            total = totals.get(key)
            if total is None:
                # autoDeleteUnusedStats decides whether the stats of deleted topics and groups are
                # deleted or stay.
                if self._settings.broker.auto_delete_unused_stats:
                    del self._items[key]
                    continue
                total = item.last
            samples = item.samples[number]
            if not samples:
                samples.append((0, 0))
            samples.append(item.update(total))
            del samples[: -window.most]

    def minute_rate(self, name: str, key: str) -> float:
        """The growth per second over the last minute; 0 if there are no samples yet."""
        item = self._items.get((name, key))
        if item is None:
            return 0.0
        return _item_of(self._times[MINUTE], item.samples[MINUTE]).tps

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """A statistic over the three windows; None if it was never counted."""
        item = self._items.get((name, key))
        if item is None:
            if (name, key) not in self._totals():
                return None
            item = _Item()  # counted, but not sampled yet
        items = [
            _item_of(times, samples)
            for times, samples in zip(self._times, item.samples, strict=True)
        ]
        return BrokerStatsData(
            stats_minute=items[MINUTE], stats_hour=items[HOUR], stats_day=items[DAY]
        )


def _item_of(times: list[float], samples: list[Total]) -> BrokerStatsItem:
    """The sum, the rate per second and the average per call of a window's samples."""
    if len(samples) < 2:
        return BrokerStatsItem()
    difference = samples[-1][0] - samples[0][0]
    calls = samples[-1][1] - samples[0][1]
    seconds = times[-1] - times[-len(samples)]
    return BrokerStatsItem(
        sum=difference,
        tps=difference / seconds if seconds > 0 else 0.0,
        avgpt=difference / calls if calls > 0 else 0.0,
    )


def totals(queues: Queues, stats: BrokerStats, settings: BrokerSettings) -> dict[Key, Total]:
    """The counters of a broker, under the names of BrokerStatsManager."""
    counting = totals_with_pauses(queues, stats, settings)
    while True:
        try:
            next(counting)
        except StopIteration as end:
            found: dict[Key, Total] = end.value
            return found


def totals_with_pauses(
    queues: Queues, stats: BrokerStats, settings: BrokerSettings
) -> Generator[None, None, dict[Key, Total]]:
    """Like `totals`, with pauses in which other work may run."""
    detailed = settings.broker.enable_detail_stat
    found: dict[Key, Total] = {}
    internal = 0

    def add(name: str, key: str, value: int, calls: int) -> None:
        old_value, old_calls = found.get((name, key), (0, 0))
        found[name, key] = (old_value + value, old_calls + calls)

    for number, queue in enumerate(list(queues), 1):
        if number % A_STEP == 0:
            yield
        if not queue.puts:
            continue
        add("TOPIC_PUT_NUMS", queue.topic, queue.puts, queue.puts)
        if queue.topic.startswith(_INTERNAL_TOPICS):
            internal += queue.puts
        add("TOPIC_PUT_SIZE", queue.topic, queue.put_bytes, queue.puts)
        if detailed:
            key = f"{queue.topic}@{queue.queue_id}"
            add("QUEUE_PUT_NUMS", key, queue.puts, queue.puts)
            add("QUEUE_PUT_SIZE", key, queue.put_bytes, queue.puts)
    for number, ((topic, group, queue_id), counter) in enumerate(list(stats.groups.items()), 1):
        if number % A_STEP == 0:
            yield
        if not counter.pulls:
            continue
        pulls = counter.pulls
        add("GROUP_GET_NUMS", f"{topic}@{group}", counter.messages, pulls)
        add("GROUP_GET_SIZE", f"{topic}@{group}", counter.size, pulls)
        if detailed:
            key = f"{topic}@{queue_id}@{group}"
            add("QUEUE_GET_NUMS", key, counter.messages, pulls)
            add("QUEUE_GET_SIZE", key, counter.size, pulls)
            add("GROUP_GET_LATENCY", f"{queue_id}@{topic}@{group}", counter.waited, pulls)
        else:
            add("GROUP_GET_LATENCY", f"{topic}@{group}", counter.waited, pulls)
    for (topic, group), count in stats.sent_back.items():
        add("SNDBCK_PUT_NUMS", f"{topic}@{group}", count, count)
    cluster = settings.broker.broker_cluster_name
    if stats.puts:
        add("BROKER_PUT_NUMS", cluster, stats.puts - internal, 0)
    if stats.transferred:
        add("BROKER_GET_NUMS", cluster, stats.transferred, 0)
    return found
