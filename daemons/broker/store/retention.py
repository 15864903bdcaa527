"""Retention: deletes old log files, and refuses messages before the disk is full.

A log file is deleted when it has not been written to for fileReservedTime, at the hour of
deleteWhen or when the disk is fuller than diskMaxUsedSpaceRatio; above diskSpaceCleanForciblyRatio
at any age; and never before a checkpoint covers the queues of its messages. Queue and index files
are deleted after all their messages. (Java: DefaultMessageStore.CleanCommitLogService and
CleanConsumeQueueService.)
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.checkpointer import Checkpointer
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.index.index import Index
from mq.daemons.broker.store.log.append import Appender
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.queue.queues import Queues
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

FIRST_AFTER = 60.0  # seconds after the start, as in Java
MOST_FILES_A_ROUND = 10
# The rounds that one request to delete covers (CleanCommitLogService.MAX_MANUAL_DELETE_FILE_TIMES).
ROUNDS_OF_A_REQUEST = 20


class Retention:
    """Keeps the disk from filling up. ``config`` is called each round, so that changes take effect
    at once.

    ``clock`` returns seconds since 1970, ``ratio`` the used percentage of the disk with a folder.
    """

    def __init__(
        self,
        config: Callable[[], MessageStoreConfig],
        root: Path,
        commit_log: CommitLog,
        queues: Queues,
        index: Index | None,
        appender: Appender,
        checkpointer: Checkpointer,
        *,
        clock: Callable[[], float] = clock.time,
        ratio: Callable[[Path], int] | None = None,
    ) -> None:
        self.deleted_files = 0
        self._config = config
        self._queue_folder = layout.consume_queue_path(root)
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._appender = appender
        self._checkpointer = checkpointer
        self._clock = clock
        self._ratio = ratio or used_ratio
        self._cleaned_minimum = commit_log.minimum
        self._requested_rounds = 0
        self._turn = asyncio.Lock()  # one round at a time: it awaits between check and deletion
        self._unsynced: Path | None = None  # folder of a deleted file, before it is synced

    async def run(self) -> None:
        """Work until cancelled. Disk errors are logged, and the next round retries."""
        started = clock.monotonic()
        while True:
            try:
                self.check_disk()
                if clock.monotonic() - started >= FIRST_AFTER:
                    await self.clean()
            except OSError as error:
                log.error("cannot delete old files: %s; retrying", error)
            await asyncio.sleep(self._config().clean_resource_interval / 1000)

    def check_disk(self) -> None:
        """Refuse messages above diskSpaceWarningLevelRatio; accept them again below it.

        Both disks count: that of the log and that of the queues.
        """
        self._check("disk", self.commit_log_ratio())
        self._check("disk of the consume queues", self._ratio(self._queue_folder))

    def _check(self, disk: str, used: int) -> None:
        limit = self._config().disk_space_warning_level_ratio
        if used <= limit:
            self._appender.accept(disk)
            return
        refusal = StoreRefused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"store refused: {disk} {used} % full, limit {limit} % (diskSpaceWarningLevelRatio)",
        )
        if self._appender.refusal is None:
            log.error("%s", refusal)
        self._appender.refuse(disk, refusal)

    async def clean(self, *, manual: bool = False) -> int:
        """Delete the files that may be deleted now; returns the number of deleted log files.

        ``manual`` is for a request: the hour does not count, in this round and the following ones.
        """
        if manual:
            self._requested_rounds = ROUNDS_OF_A_REQUEST
        async with self._turn:
            return await self._clean()

    async def _clean(self) -> int:
        requested = self._requested_rounds > 0
        self._requested_rounds -= requested
        deleted = await self._clean_log(requested)
        if self._log.minimum > self._cleaned_minimum:
            minimum = self._log.minimum
            await self._clean_derived()
            # not before: a later round does what failed or was cancelled
            self._cleaned_minimum = minimum
        return deleted

    def commit_log_ratio(self) -> int:
        """The used percentage of the emptiest disk with a folder of the log."""
        return min(self._ratio(path) for path in self._log.paths)

    async def _clean_log(self, requested: bool) -> int:
        config = self._config()
        fullest = max(self.commit_log_ratio(), self._ratio(self._queue_folder))
        forced = config.clean_file_forcibly_enable and (
            fullest > config.disk_space_clean_forcibly_ratio
        )
        hour = time.localtime(self._clock()).tm_hour
        due = hour in map(int, filter(str.strip, config.delete_when.split(";")))
        if not (due or requested or forced or fullest > config.disk_max_used_space_ratio):
            return 0
        oldest = self._clock() - config.file_reserved_time * 3600
        deleted = 0
        while len(self._log.files) > 1 and deleted < MOST_FILES_A_ROUND:
            file = self._log.files[0]
            if file.end > self._log.flushed or not (forced or file.modified_at() < oldest):
                break
            if not await self._is_covered(file.end):
                break
            await self._sync_deleted()  # of a round that failed or was cancelled
            log.info("deleting %s: %s", file.path, "the disk is full" if forced else "expired")
            self._unsynced = self._log.remove_first().path.parent
            deleted += 1
            self.deleted_files += 1
            await self._sync_deleted()
            await asyncio.sleep(config.delete_commit_log_files_interval / 1000)
        return deleted

    async def _sync_deleted(self) -> None:
        """Sync the folder of a deleted file, so that a power failure does not restore it. Raises
        OSError.
        """
        if self._unsynced is not None:
            await asyncio.to_thread(files.sync_folder, self._unsynced)
            self._unsynced = None

    async def _is_covered(self, end: int) -> bool:
        """Whether a checkpoint covers the queues up to an offset. If a power failure loses the last
        entries of a queue, only the log shows which queue offsets were assigned.
        """
        if end > self._checkpointer.safe_offset:
            try:
                await self._checkpointer.checkpoint()
            except OSError as error:
                log.error("cannot delete log files before queues are written: %s", error)
        return end <= self._checkpointer.safe_offset

    async def _clean_derived(self) -> None:
        """Delete the expired files of queues and index. Raises OSError for a queue after trying all
        others.
        """
        minimum = self._log.minimum
        stuck: OSError | None = None
        for number, queue in enumerate(list(self._queues), 1):
            for work in (queue.remove_files_before, queue.set_minimum):
                try:
                    work(minimum)
                except OSError as error:
                    stuck = error
            if number % 200 == 0:
                await asyncio.sleep(0)
        if self._index is not None:
            self._index.remove_before(minimum)
        if stuck is not None:
            raise stuck


def used_ratio(path: Path) -> int:
    """The used percentage of a disk for this user, rounded up (UtilAll.getDiskPartition…)."""
    status = files.statvfs(path)
    used = status.f_blocks - status.f_bfree
    return math.ceil(used * 100 / max(used + status.f_bavail, 1))
