"""Writing queue entries to their files, and the checkpoint that says up to where all is on disk."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.flush import DiskThread, Flusher
from mq.daemons.broker.store.index import Index

log = logging.getLogger(__name__)

# A start after kill -9 reads again what came after the checkpoint: about 0.5 s for this many bytes.
CHECKPOINT_BYTES = 128 * 1024 * 1024
CHECKPOINT_SECONDS = 10.0

# Queues written in one turn of the loop, so that ten thousand of them do not hold it up.
_QUEUES_A_TURN = 200


class Checkpointer:
    """Knows which queues have entries that are only in memory, and writes them.

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
        self.dirty: set[ConsumeQueue] = set()
        self.last_timestamp: Callable[[], int] = lambda: 0
        self._log = commit_log
        self._index = index
        self._checkpoint = checkpoint
        self._flusher = flusher
        self._interval = interval
        self._thread = DiskThread("checkpoint")
        self._unsynced: set[Path] = set()
        self._last = time.monotonic()

    async def run(self) -> None:
        """Work until cancelled. A disk that fails is reported and tried again."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._round()
            except OSError as error:
                log.error("queues and checkpoint cannot be written now: %s", error)

    async def close(self) -> None:
        """Write a last checkpoint and end the thread."""
        try:
            if await self._flusher.drain():
                await self.checkpoint()
        except OSError as error:
            log.error("the last checkpoint cannot be written: %s", error)
        self._thread.stop()

    async def _round(self) -> None:
        behind = self._log.written - self._checkpoint.safe_offset
        due = time.monotonic() - self._last >= CHECKPOINT_SECONDS or behind >= CHECKPOINT_BYTES
        if due and behind:
            await self.checkpoint()
        elif self.dirty:
            await self._persist()

    async def _persist(self) -> None:
        queues, self.dirty = self.dirty, set()
        try:
            for number, queue in enumerate(queues, 1):
                before = queue.persisted
                try:
                    if queue.persist():
                        # Files and folders that are new have to survive as names, too.
                        folder = queue.folder
                        self._unsynced.update((folder, folder.parent, folder.parent.parent))
                finally:
                    self._unsynced.update(queue.sync_paths(before))
                if number % _QUEUES_A_TURN == 0:
                    await asyncio.sleep(0)
        except OSError:
            self.dirty |= queues
            raise

    async def checkpoint(self) -> None:
        """Bring log, queues and index to the disk, and write down up to where.

        Raises OSError; the checkpoint on disk then is the one before, which is still true.
        """
        upto = self._log.written
        timestamp = self.last_timestamp()
        # First: what waits for this flush is in no queue that is dirty before it is published.
        if not await self._flusher.drain(upto):
            return
        await self._persist()
        paths, self._unsynced = self._unsynced, set()
        index_files = []
        if self._index is not None:
            self._index.save_headers()
            index_files = self._index.files[-2:]
        index_timestamp = self._checkpoint.index_timestamp
        if len(index_files) > 1:  # as Java: the end of the last full file
            index_timestamp = index_files[0].end_timestamp
        checkpoint = self._checkpoint.moved(timestamp, index_timestamp, upto)

        def sync() -> None:
            _sync_files(paths)
            for file in index_files:
                file.sync()
            checkpoint.save()

        try:
            await self._thread.run(sync)
        except OSError:
            self._unsynced |= paths
            raise
        self._checkpoint = checkpoint
        self._last = time.monotonic()


def _sync_files(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:  # its topic was deleted meanwhile
            continue
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
