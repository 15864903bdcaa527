"""Overload protection: groups that are far behind are disabled, and the log tells of the load.

The guard keeps groups that are far behind from consuming: they read from the disk what others would
have in memory (BrokerController.protectBroker). The water marks are a line in the log once a
minute: how much waits, and how late the loop is (BrokerController.printWaterMark; Java has a line a
second for each of its thread pools, of which there are none here).
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
        """Look every three minutes, until cancelled."""
        while True:
            await asyncio.sleep(GUARD_SECONDS)
            self.look()

    def look(self) -> list[str]:
        """Disable the groups that are too far behind now; returns their names."""
        config = self._settings.broker
        if not config.disable_consume_if_consumer_read_slowly:
            return []
        if not self._settings.store.disk_fall_recorded:
            return []
        found: dict[str, int] = {}
        for (_, group, _), counter in self._stats.groups.items():
            if counter.behind > config.consumer_fallbehind_threshold:
                found[group] = max(found.get(group, 0), counter.behind)
                counter.behind = 0  # whoever allows the group again gives it another chance
        for group, behind in found.items():
            log.warning(
                "group %s reads %d bytes behind the end of the log, over the limit of %d "
                "(consumerFallbehindThreshold): its consumption is disabled; allow it again with "
                "consumeEnable",
                group,
                behind,
                config.consumer_fallbehind_threshold,
            )
            self._groups.disable_consume(group)
        return list(found)


class WaterMarks:
    """Measures how late the loop is, and logs what waits."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.longest_turn = 0.0  # seconds, of the last minute

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
        """The water marks as they stand. What is written is dispatched in the same turn."""
        unflushed = self._store.log.written - self._store.log.flushed
        pulls = sum(len(queue.waiting) for queue in self._store.queues)
        return (
            f"water marks: {unflushed} bytes not flushed, 0 bytes not dispatched, {pulls} readers "
            f"wait, the loop was up to {self.longest_turn * 1000:.0f} ms late"
        )
