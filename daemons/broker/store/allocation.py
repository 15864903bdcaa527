"""Allocation: blocks of the disk for what is written next, taken between two flushes.

A write to a hole makes the file system remember blocks that are to be found later, and for that it
waits for a flush that is finding them: a quarter of a gigabyte a second gave every sender a pause
of 20 to 60 ms with each flush. Blocks that a file has already need neither. They are taken in the
flush's own thread, because a write waits for that, too, and that waits for a flush.

A broker with little to write takes none: its files stay as small as what is in them.
"""

import contextlib
from collections.abc import Callable
from functools import partial

from mq.client.machine import clock, files
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.mapped_file import MappedFile

_LOOK_SECONDS = 0.4
_LEAST_RATE = 8 * 1024 * 1024  # bytes a second; with less a flush is over before anybody waits
_SECONDS_AHEAD = 4.0  # of writing as fast as between the last two looks
_MOST_AHEAD = 1024 * 1024 * 1024  # bytes
_MOST_OF_FREE = 1 / 16  # of what the disk has left


class Allocation:
    """Keeps blocks ahead of the end of a log that is written to fast."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._at = clock.monotonic()
        self._written = commit_log.written
        self._ahead = 0  # bytes that there should be; 0 while little is written
        self._upto = 0  # the physical offset behind what has been asked for
        self._begun = (
            -1,
            0,
        )  # by the thread that makes files: such a file's start, and that offset

    def due(self) -> Callable[[], None] | None:
        """What is to be done in the flush's thread now, if anything is."""
        now, written = clock.monotonic(), self._log.written
        if now - self._at < _LOOK_SECONDS or not self._log.files:
            return None
        rate = (written - self._written) / (now - self._at)
        self._at, self._written = now, written
        self._ahead = min(int(rate * _SECONDS_AHEAD), _MOST_AHEAD) if rate >= _LEAST_RATE else 0
        file = self._log.files[-1]
        start, begun = self._begun
        upto = max(self._upto, written, file.start, begun if start == file.start else 0)
        end = min(file.end, written + self._ahead)
        if upto >= end or upto - written >= self._ahead // 2:
            return None  # there are enough
        self._upto = end
        return partial(_take, file, upto - file.start, end - upto)

    def begin(self, file: MappedFile) -> None:
        """Take blocks for a file that nobody writes to yet, in the thread that has made it."""
        size = min(self._ahead, file.size)
        if size:
            _take(file, 0, size)
            self._begun = file.start, file.start + size


def _take(file: MappedFile, position: int, size: int) -> None:
    """Take blocks for a part of a file. If the disk has none left, a write will say so."""
    with contextlib.suppress(OSError):
        if size <= files.space(file.path.parent).free * _MOST_OF_FREE:
            files.reserve(file.descriptor, position, size)
