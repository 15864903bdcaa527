"""What had been put and got at the last two midnights: clusterList -m shows days from that.

After a start both are 0 until the first midnight (BrokerStats.record).
"""

import asyncio
import datetime

from mq.client.machine import clock
from mq.daemons.broker.statistics.stats import BrokerStats


class DayTotals:
    """Messages put and got, (puts, gets), as counted since the start."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats
        self.yesterday_morning = (0, 0)
        self.today_morning = (0, 0)

    def now(self) -> tuple[int, int]:
        return self._stats.puts, self._stats.transferred

    def turn_of_day(self) -> None:
        """It is midnight."""
        self.yesterday_morning = self.today_morning
        self.today_morning = self.now()

    async def run(self) -> None:
        """Take notice of every midnight until cancelled."""
        while True:
            await asyncio.sleep(
                seconds_to_midnight(datetime.datetime.fromtimestamp(clock.time()).astimezone())
            )
            self.turn_of_day()


def seconds_to_midnight(now: datetime.datetime) -> float:
    """How long this local day still is; days of 23 and 25 hours included."""
    tomorrow = now.date() + datetime.timedelta(days=1)
    midnight = datetime.datetime.combine(tomorrow, datetime.time()).astimezone()
    return max(1.0, (midnight - now).total_seconds())
