"""The backlog of the store: sends are refused while too many wait for the disk, and the load is
logged once per minute.

The water marks are one log line: the backlog, and the delay of the event loop
(BrokerController.printWaterMark; Java logs a line per second for each of its thread pools, which do
not exist here).
"""

import asyncio
import logging

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store import Appender, Flusher, MessageStore, StoreRefused
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

FLUSH_SETTING = "sendThreadPoolQueueCapacity"
FLUSH_CHECK_SECONDS = 0.05
LINE_SECONDS = 60.0
LOOK_SECONDS = 1.0


class FlushBacklog:
    """Refuses sends while too many wait for the disk (SYNC_FLUSH)."""

    def __init__(self, flusher: Flusher, appender: Appender, settings: BrokerSettings) -> None:
        self._flusher = flusher
        self._appender = appender
        self._settings = settings

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_CHECK_SECONDS)
            self.check()

    def check(self) -> None:
        """Refuse sends above the limit, and accept them again at half of it."""
        waiting = self._flusher.waiting_replies
        limit = self._settings.broker.send_thread_pool_queue_capacity
        if waiting > limit > 0:
            self._appender.refuse(
                "flush backlog",
                StoreRefused(
                    ResponseCode.SYSTEM_BUSY,
                    f"[OVERLOAD]{waiting} sends wait for the disk, over the limit of {limit} "
                    f"({FLUSH_SETTING})",
                ),
            )
        elif waiting <= limit // 2:
            self._appender.accept("flush backlog")


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
