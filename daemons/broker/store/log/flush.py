"""Flush: group commit of the log to the disk.

One thread does nothing but fsync, so that the event loop never waits for a disk. At most one fsync
of the log runs at a time; it covers every batch that was written before it started. The thread
calls fdatasync on the descriptor and not mmap.flush, because the latter holds the GIL all the time.

A failed fsync is never retried: the kernel may have dropped the pages and would report success the
second time. The store then refuses messages until it is restarted and has read what is on disk.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from mq.client.machine.threads import DiskThread
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.log.append import Appender
from mq.daemons.broker.store.log.batch import Batch, log_failure
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)


class Flusher:
    """Flushes the log, and with SYNC_FLUSH lets batches wait for it.

    ``timeout`` (seconds, Java: syncFlushTimeout) is how long a sender waits before it gets
    FLUSH_DISK_TIMEOUT: stored, but not known to be on disk. Each function of ``between`` returns
    other work for the flush thread to do between two flushes, or None.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        appender: Appender,
        timeout: float,
        between: Sequence[Callable[[], Callable[[], None] | None]] = (),
    ) -> None:
        self._log = commit_log
        self._appender = appender
        self._timeout = timeout
        self._between = between
        self._thread = DiskThread("log-flush")
        self._waiting: list[Batch] = []
        # loop time by batch of _waiting that has not timed out
        self._deadlines: dict[Batch, float] = {}
        self._halt: StoreRefused | None = None  # set permanently by the first fsync that fails
        self._busy = False
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._timer: asyncio.TimerHandle | None = None
        # Called when more of the log is on the disk, before the batches are published.
        self.on_flushed: Callable[[], None] = lambda: None
        self.flushes = 0
        self.last_seconds = 0.0
        self.total_seconds = 0.0

    @property
    def halt(self) -> StoreRefused | None:
        """Why flushing stopped; None while it works."""
        return self._halt

    @property
    def waiting_replies(self) -> int:
        """The number of senders that wait for an fsync."""
        return sum(len(batch.replies) for batch in self._waiting)

    def await_flush(self, batch: Batch) -> None:
        """Publish a written batch when it is on the disk."""
        if self._halt is not None:  # an fsync failed after the batch was opened
            self._appender.publisher.fail(batch, self._halt)
            return
        loop = asyncio.get_running_loop()
        self._waiting.append(batch)
        self._deadlines[batch] = loop.time() + self._timeout
        if self._timer is None:
            self._timer = loop.call_later(self._timeout, self._time_out)
        if not self._busy:
            self.start()

    def start(self) -> None:
        """Flush the written bytes, unless a flush is running, nothing is to be flushed, or flushing
        failed.
        """
        upto = self._log.written
        if self._busy or upto == self._log.flushed or self._halt is not None:
            return
        self._busy = True
        self._idle.clear()
        files = list(self._log.unflushed(upto))
        loop = asyncio.get_running_loop()
        started = loop.time()

        def sync() -> None:
            for file in reversed(files):
                file.sync()

        def done(_: Any, error: Exception | None) -> None:
            self.last_seconds = loop.time() - started
            self.total_seconds += self.last_seconds
            self._done(upto, error)

        self._thread.submit(sync, done)
        for due in self._between:
            work = due()
            if work is not None:
                self._thread.submit(work, lambda result, error: None)

    async def drain(self, upto: int | None = None) -> bool:
        """Wait until the log is flushed up to an offset, or to its end. Returns False if flushing
        failed.
        """
        target = self._log.written if upto is None else upto
        while self._log.flushed < target and self._halt is None:
            self.start()
            await self._idle.wait()
        return self._halt is None

    async def close(self) -> None:
        """Flush the rest and end the thread."""
        if await self.drain() and self._appender.failed_writes:
            await self._sync_cleared()
        self._thread.stop()
        if self._timer is not None:
            self._timer.cancel()

    async def _sync_cleared(self) -> None:
        """Sync the last file once more after failed writes. Refused bytes may be on the disk after
        the end of the log while the zeros that replaced them are not; after a power failure the
        next start would find them.
        """
        try:
            await self._thread.run(self._log.files[-1].sync)
        except OSError as error:
            log.error("refused messages may reappear in the log after a power failure: %s", error)

    def _done(self, upto: int, error: Exception | None) -> None:
        self._busy = False
        self._idle.set()
        self.flushes += 1
        if error is not None:
            self._fail(error)
            return
        self._log.flushed = upto
        try:
            self.on_flushed()
        except Exception:
            log_failure("a callback after a flush failed")
        covered = [batch for batch in self._waiting if batch.end <= upto]
        self._waiting = self._waiting[len(covered) :]
        if self._waiting:
            self.start()  # before the replies are sent, so that the disk works meanwhile
        for batch in covered:
            self._deadlines.pop(batch, None)
            self._appender.publisher.publish(batch)

    def _fail(self, error: Exception) -> None:
        self._halt = StoreRefused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"store refused: fsync of the commit log failed: {error}; the broker takes no messages "
            f"until it is restarted",
        )
        self._appender.refuse("fsync", self._halt)
        log.critical("%s", self._halt)
        waiting, self._waiting = self._waiting, []
        self._deadlines.clear()
        for batch in waiting:
            self._appender.publisher.fail(batch, self._halt)

    def _time_out(self) -> None:
        """Fail the batches whose timeout has passed. The timer is set for the oldest batch. It is
        not moved when that batch is flushed in time; this function then sets it for the next
        one.
        """
        loop = asyncio.get_running_loop()
        self._timer = None
        timed_out = StoreRefused(
            ResponseCode.FLUSH_DISK_TIMEOUT,
            f"stored, but the disk did not confirm within {self._timeout:g} s (syncFlushTimeout)",
        )
        for batch, deadline in list(self._deadlines.items()):
            left = deadline - loop.time()
            if left > 0:
                self._timer = loop.call_later(left, self._time_out)
                return
            log.warning(
                "an fsync takes longer than %g s",
                self._timeout,
                extra={"failure": "fsyncs in time"},
            )
            del self._deadlines[batch]
            self._appender.publisher.fail(batch, timed_out)
            batch.callbacks.clear()
