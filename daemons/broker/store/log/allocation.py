"""Preallocation of disk blocks in front of the end of the commit log, between two flushes.

A write to a hole makes the file system reserve blocks, and the write then waits for a running flush
that assigns blocks: at 250 MB/s, each flush paused all senders for 20 to 60 ms. A write to
allocated blocks does not wait. The allocation itself waits for a running flush, too, and writes
wait for the allocation; therefore it runs in the flush thread, between flushes.

A broker that writes little allocates nothing, so its files stay as small as their content.
"""

import contextlib
from collections.abc import Callable
from functools import partial

from mq.client.machine import clock, files
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import MappedFile

_INTERVAL_SECONDS = 0.4
_MIN_RATE = 8 * 1024 * 1024  # bytes/s; below this rate a flush ends before a sender has to wait
_SECONDS_AHEAD = 4.0  # allocated in front of the end, at the write rate of the last interval
_MAX_AHEAD = 1024 * 1024 * 1024  # bytes
_MAX_OF_FREE = 1 / 16  # of the free space of the disk


class Allocation:
    """Keeps blocks allocated in front of the end of a log that is written to fast."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._at = clock.monotonic()
        self._written = commit_log.written
        self._ahead = 0  # bytes to keep allocated in front of the end; 0 at a low write rate
        self._upto = 0  # physical offset up to which allocation was requested
        # Set by the thread that creates files: the start of the newest file and the physical
        # offset up to which it is allocated.
        self._begun = -1, 0

    def due(self) -> Callable[[], None] | None:
        """Return the allocation that the flush thread has to do now, or None."""
        now, written = clock.monotonic(), self._log.written
        if now - self._at < _INTERVAL_SECONDS or not self._log.files:
            return None
        rate = (written - self._written) / (now - self._at)
        self._at, self._written = now, written
        self._ahead = min(int(rate * _SECONDS_AHEAD), _MAX_AHEAD) if rate >= _MIN_RATE else 0
        file = self._log.files[-1]
        start, begun = self._begun
        upto = max(self._upto, written, file.start, begun if start == file.start else 0)
        end = min(file.end, written + self._ahead)
        if upto >= end or upto - written >= self._ahead // 2:
            return None
        self._upto = end
        return partial(_allocate, file, upto - file.start, end - upto)

    def begin(self, file: MappedFile) -> None:
        """Allocate blocks for a new file that is not written to yet, in the thread that created
        it."""
        size = min(self._ahead, file.size)
        if size:
            _allocate(file, 0, size)
            self._begun = file.start, file.start + size


def _allocate(file: MappedFile, position: int, size: int) -> None:
    """Allocate blocks for a part of a file. Errors are ignored: on a full disk the write fails."""
    with contextlib.suppress(OSError):
        if size <= files.space(file.path.parent).free * _MAX_OF_FREE:
            files.reserve(file.descriptor, position, size)
