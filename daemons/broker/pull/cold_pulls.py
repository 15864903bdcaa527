"""Pulls of messages that are not in memory: the event loop must not wait for a disk."""

import asyncio
from collections.abc import Callable, Coroutine

from mq.client.machine import clock
from mq.client.transport.tasks import end_with
from mq.daemons.broker.pull.long_polling import COST
from mq.daemons.broker.pull.pull_reply import request_of
from mq.daemons.broker.statistics.stats import BrokerStats, GroupCounter
from mq.daemons.channel import Channel


class ColdPulls:
    """Pulls that wait until their messages have been read from the disk."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait for disk reads in progress."""
        while self._tasks:  # a pull may have to wait a second time
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
        """Call ``again`` after the read, unless the peer has disconnected; if the read fails, reply
        with the error. ``size`` bytes are reserved for the reply.
        """
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
        if channel.stalled:  # otherwise many replies that the peer does not read would accumulate
            channel.postpone(again)
        elif not channel.closed:
            again()
