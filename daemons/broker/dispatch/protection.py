"""Overload protection: groups with a large lag are disabled, because they read from the disk and
evict messages that others have in memory (BrokerController.protectBroker).
"""

import asyncio
import logging

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.statistics.stats import BrokerStats

log = logging.getLogger(__name__)

GUARD_SECONDS = 180.0


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
