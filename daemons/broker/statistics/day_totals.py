"""Totals at the last two midnights, from which clusterList -m computes values per day.

After a start both are 0 until the first midnight (BrokerStats.record).
"""

import asyncio
import datetime

from mq.client.machine import clock
from mq.daemons.broker.statistics.stats import BrokerStats


class DayTotals:
    """Messages stored and read, (puts, gets), counted since the start."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats
        self.yesterday_morning = (0, 0)
        self.today_morning = (0, 0)

    def now(self) -> tuple[int, int]:
        return self._stats.puts, self._stats.transferred

    def day_changed(self) -> None:
        """Record the totals at midnight."""
        self.yesterday_morning = self.today_morning
        self.today_morning = self.now()

    async def run(self) -> None:
        """Record the totals at every midnight until cancelled."""
        while True:
            await asyncio.sleep(
                seconds_to_midnight(datetime.datetime.fromtimestamp(clock.time()).astimezone())
            )
            self.day_changed()


def seconds_to_midnight(now: datetime.datetime) -> float:
    """The seconds until this local day ends; handles days of 23 and 25 hours."""
    tomorrow = now.date() + datetime.timedelta(days=1)
    midnight = datetime.datetime.combine(tomorrow, datetime.time()).astimezone()
    return max(1.0, (midnight - now).total_seconds())
