"""Overload protection: lagging groups are disabled, and the load is logged.

The guard disables groups with a large lag, because they read from the disk and evict messages that
others have in memory (BrokerController.protectBroker). The water marks are one log line per minute:
the backlog, and the delay of the event loop (BrokerController.printWaterMark; Java logs a line per
second for each of its thread pools, which do not exist here).
"""

import asyncio
import logging

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.statistics.stats import BrokerStats
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.tables.groups import Groups

log = logging.getLogger(__name__)

GUARD_SECONDS = 180.0
LINE_SECONDS = 60.0
LOOK_SECONDS = 1.0


class SlowConsumers:
    """Disables groups whose last pull was more than consumerFallbehindThreshold bytes behind."""

    def __init__(
        self,
        settings: BrokerSettings,
        stats: BrokerStats,
        groups: Groups,
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._groups = groups

    async def run(self) -> None:
        """Check every three minutes, until cancelled."""
        while True:
            await asyncio.sleep(GUARD_SECONDS)
            self.check()

    def check(self) -> list[str]:
        """Disable the groups with too large a lag; returns their names."""
        config = self._settings.broker
        if not config.disable_consume_if_consumer_read_slowly:
            return []
        if not self._settings.store.disk_fall_recorded:
            return []
        found: dict[str, int] = {}
        for (_, group, _), counter in self._stats.groups.items():
            if counter.behind > config.consumer_fallbehind_threshold:
                found[group] = max(found.get(group, 0), counter.behind)
                counter.behind = 0  # an administrator who enables the group gives it another chance
        for group, behind in found.items():
            log.warning(
                "group %s reads %d bytes before the end of the log, over the limit of %d "
                "(consumerFallbehindThreshold); disabling its consumption; enable it again with "
                "consumeEnable",
                group,
                behind,
                config.consumer_fallbehind_threshold,
            )
            self._groups.disable_consume(group)
        return list(found)


class WaterMarks:
    """Measures the delay of the event loop, and logs the backlog."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.longest_turn = 0.0  # seconds, over the last minute

    async def run(self) -> None:
        """Log a line each minute until cancelled."""
        loop = asyncio.get_running_loop()
        looks = 0
        while True:
            before = loop.time()
            await asyncio.sleep(LOOK_SECONDS)
            self.longest_turn = max(self.longest_turn, loop.time() - before - LOOK_SECONDS)
            looks += 1
            if looks * LOOK_SECONDS >= LINE_SECONDS:
                looks = 0
                log.info("%s", self.line())
                self.longest_turn = 0.0

    def line(self) -> str:
        """The current water marks. Written messages are dispatched in the same turn."""
        unflushed = self._store.log.written - self._store.log.flushed
        pulls = sum(len(queue.waiting) for queue in self._store.queues)
        return (
            f"water marks: {unflushed} bytes not flushed, 0 bytes not dispatched, {pulls} readers "
            f"wait, the event loop was up to {self.longest_turn * 1000:.0f} ms late"
        )
