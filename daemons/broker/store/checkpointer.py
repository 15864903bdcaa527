"""Writes queue entries to their files, and the checkpoint up to which everything is on disk.

An item leaves its set only after its work is done: a stop may cancel a round at each await, and any
step may fail.

A failed fsync of queues or index is not retried, as in `flush.py`, because the kernel may have
dropped the pages. No checkpoint is written after that until the broker is restarted; the start then
rebuilds from the log everything that the last checkpoint does not cover.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial

from mq.client.machine import clock, files
from mq.client.machine.threads import DiskThread
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.index.index import Index, IndexFile
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.flush import Flusher
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue

log = logging.getLogger(__name__)

# A start after kill -9 reads the log again from the checkpoint: about 0.5 s for this many bytes.
CHECKPOINT_BYTES = 128 * 1024 * 1024
CHECKPOINT_SECONDS = 10.0

# Queues written in one turn of the loop, so that ten thousand queues do not block it.
_QUEUES_A_TURN = 200


class Checkpointer:
    """Tracks the queues that have entries only in memory, and writes them.

    ``interval`` (seconds, Java: flushIntervalConsumeQueue) is the pause between two rounds.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        index: Index | None,
        checkpoint: Checkpoint,
        flusher: Flusher,
        interval: float,
    ) -> None:
        self.dirty: dict[ConsumeQueue, object] = {}  # written in this order
        self.last_timestamp: Callable[[], int] = lambda: 0
        # Whether the index has all published messages.
        self.is_indexed: Callable[[], bool] = lambda: True
        # Returns the confirm offset; None if consumers may read everything.
        self.confirmed: Callable[[], int] | None = None
        self._log = commit_log
        self._index = index
        self._checkpoint = checkpoint
        self._flusher = flusher
        self._interval = interval
        self._thread = DiskThread("checkpoint")
        self._unsynced: set[str] = set()  # str and not Path: there are tens of thousands
        self._synced_index: IndexFile | None = None  # the newest file that was fsynced
        self._halt: OSError | None = None  # set permanently by the first fsync that fails
        self._last = clock.monotonic()
        self.turn = asyncio.Lock()  # one round, checkpoint or truncation of the log at a time

    @property
    def recovered_end(self) -> int | None:
        """`Checkpoint.recovered_end`, which the next checkpoint keeps."""
        return self._checkpoint.recovered_end

    def lost_after(self, end: int) -> None:
        """Note that the log lost the records after an offset."""
        self._checkpoint.recovered_end = end

    @property
    def safe_offset(self) -> int:
        """The offset up to which the checkpoint on disk covers log, queues and index."""
        return self._checkpoint.safe_offset

    async def run(self) -> None:
        """Work until cancelled. Disk errors are logged, and the next round retries."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._round()
            except OSError as error:
                log.error("cannot write queues and checkpoint: %s; retrying", error)

    async def close(self) -> None:
        """Write a last checkpoint and end the thread. `safe_offset` shows whether it was saved."""
        try:
            if await self._flusher.drain():
                await self.checkpoint()
        except OSError as error:
            log.error("cannot write the last checkpoint: %s", error)
        finally:
            self._thread.stop()

    async def _round(self) -> None:
        size = self._log.written - self._checkpoint.safe_offset
        due = clock.monotonic() - self._last >= CHECKPOINT_SECONDS or size >= CHECKPOINT_BYTES
        if due and size and self._halt is None:
            await self.checkpoint()
        elif self.dirty:
            async with self.turn:
                await self._persist()

    async def _persist(self) -> None:
        """Write the entries of all dirty queues.

        A queue that cannot be written stays dirty; the others are written nevertheless. Raises the
        first OSError after all queues have been tried.
        """
        failed: OSError | None = None
        for number, queue in enumerate(list(self.dirty), 1):
            before = queue.persisted
            try:
                queue.persist()
                self.dirty.pop(queue, None)
            except OSError as error:
                failed = failed or error
            finally:
                self._unsynced.update(queue.sync_paths(before))
                if queue.files.renamed:
                    # The names of new files and folders have to survive a power failure, too.
                    self._unsynced.update(queue.files.folders)
                    queue.files.renamed = False
            if number % _QUEUES_A_TURN == 0:
                await asyncio.sleep(0)
        if failed is not None:
            raise failed

    async def checkpoint(self) -> None:
        """Flush log, queues and index to the disk, and save the offset up to which that is done.

        Does nothing while the log cannot be flushed or the index is incomplete. Raises OSError; the
        checkpoint on disk then is the previous one, which is still valid.
        """
        async with self.turn:
            await self._checkpoint_now()

    async def _checkpoint_now(self) -> None:
        upto = self._log.written
        timestamp = self.last_timestamp()
        # The flush comes first: entries that wait for it are in no dirty queue before they are
        # published.
        if not await self._flusher.drain(upto) or not self.is_indexed():
            return
        await self._persist()
        if self._index is not None and self._index.renamed:
            self._unsynced.add(str(self._index.folder))
            self._index.renamed = False
        paths = frozenset(self._unsynced)
        index_files = self._unsynced_index_files()
        index_timestamp = self._checkpoint.index_timestamp
        if len(index_files) > 1:  # as Java: the end of the last full file
            index_timestamp = index_files[-2].end_timestamp
        checkpoint = self._checkpoint.moved(timestamp, index_timestamp, upto)
        if self.confirmed is not None:
            checkpoint.confirm_offset = min(self.confirmed(), upto)

        def sync() -> None:
            self._sync_files(paths)
            for file in index_files:
                self._sync(file.sync)
            checkpoint.save()

        await self._thread.run(sync)
        self._unsynced.difference_update(paths)
        if index_files:
            self._synced_index = index_files[-1]
        self._checkpoint = checkpoint
        self._last = clock.monotonic()

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from the checkpoint that is now on disk."""
        self._checkpoint = checkpoint

    async def lower(self, offset: int) -> None:
        """Lower the checkpoint to an offset. The caller holds `turn`. Raises OSError."""
        if self._checkpoint.safe_offset > offset:
            checkpoint = self._checkpoint.moved(0, 0, offset)
            checkpoint.confirm_offset = min(checkpoint.confirm_offset, offset)
            await self._thread.run(checkpoint.save)
            self._checkpoint = checkpoint

    def _unsynced_index_files(self) -> list[IndexFile]:
        """The last two files, as in Java, and all created since the last checkpoint."""
        if self._index is None:
            return []
        self._index.save_headers()
        all_files = self._index.files
        known = all_files.index(self._synced_index) if self._synced_index in all_files else 0
        return all_files[max(0, min(known, len(all_files) - 2)) :]

    def _sync_files(self, paths: Iterable[str]) -> None:
        """Runs in the thread. Raises OSError."""
        for path in paths:
            try:
                descriptor = files.open(path, os.O_RDONLY)
            except FileNotFoundError:  # its topic was deleted in the meantime
                continue
            try:
                self._sync(partial(files.fdatasync, descriptor))
            finally:
                files.close(descriptor)

    def _sync(self, sync: Callable[[], None]) -> None:
        if self._halt is not None:
            raise self._halt
        try:
            sync()
        except OSError as error:
            self._halt = OSError(
                error.errno,
                f"fsync of queues or index failed: {error.strerror}; no checkpoint is written "
                f"until the broker is restarted, and that start reads more of the log",
            )
            log.critical("%s", self._halt)
            raise self._halt from error
