"""Pulls of what is not in memory: the loop must not wait for a disk."""

import asyncio
from collections.abc import Callable, Coroutine

from mq.client.cancellation import end_with
from mq.client.machine import clock
from mq.daemons.broker.handlers.pull_reply import request_of
from mq.daemons.broker.reading.long_polling import COST
from mq.daemons.broker.statistics.stats import BrokerStats, GroupCounter
from mq.daemons.channel import Channel


class ColdPulls:
    """Pulls that wait until what they get has been read."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait for reads from the disk that are under way."""
        while self._tasks:  # a pull may have to wait once more
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def wait(
        self,
        reading: Coroutine[None, None, None],
        header: dict[str, object],
        channel: Channel,
        size: int,
        counter: GroupCounter,
        again: Callable[[], None],
    ) -> None:
        """Call ``again`` once all is read, unless the peer has gone; if that fails, answer so. The
        reply may have so many bytes."""
        task = asyncio.ensure_future(self._wait(reading, header, channel, size, counter, again))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        end_with(task, reading)

    async def _wait(
        self,
        reading: Coroutine[None, None, None],
        header: dict[str, object],
        channel: Channel,
        size: int,
        counter: GroupCounter,
        again: Callable[[], None],
    ) -> None:
        began = clock.monotonic()
        pending_bytes = COST + size
        channel.reserve(pending_bytes)
        try:
            await reading
        except Exception as error:
            channel.reply_error(request_of(header), error)
            return
        finally:
            channel.reserve(-pending_bytes)
            waited = int((clock.monotonic() - began) * 1000)
            counter.waited += waited
            self._stats.longest_read = max(self._stats.longest_read, waited)
        if channel.stalled:  # with many of them, replies that nobody reads would pile up
            channel.postpone(again)
        elif not channel.closed:
            again()
