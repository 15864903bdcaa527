"""Preallocation: files, disk blocks and memory pages are prepared before the log needs them.

`NextFile` creates the next file of the log before the last one is full.

A new file is of no use before its folder is synced. A disk that is busy with recent writes takes a
third of a second for that, for which all senders would wait. Java creates its files beforehand, too
(AllocateMappedFileService). After a crash an unused next file may exist, empty; the start deletes
it.

`Allocation` allocates disk blocks in front of the end of the log, between two flushes.

A write to a hole makes the file system reserve blocks, and the write then waits for a running flush
that assigns blocks: at 250 MB/s, each flush paused all senders for 20 to 60 ms. A write to
allocated blocks does not wait. The allocation itself waits for a running flush, too, and writes
wait for the allocation; therefore it runs in the flush thread, between flushes.

A broker that writes little allocates nothing, so its files stay as small as their content.

`Prefault` prepares the memory pages that are written next, if page faults are slow.

A virtual machine may have to wait for its host at the first touch of memory that the host has
reclaimed or never assigned. Then six of ten samples of a broker that writes fast are in the copy
into such pages, and a gigabyte takes 2 s of processor time instead of 0.2 s. If the kernel reads
the hole after the end of the log, a thread waits for these pages instead, without the GIL. With
fast page faults that would cost more than it saves, so the cost of the writes and that of the
thread are measured (docs/decisions/0013).
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from functools import partial

from mq.client.machine import clock, files
from mq.client.machine.threads import DiskThread
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


# The next file is created when this part of the last one is left: with files of 1 GiB, at least the
# writes of one second.
_LEFT = 1 / 4


class NextFile:
    """Creates the next file of a log in its own thread, and allocates its first blocks."""

    def __init__(self, commit_log: CommitLog, allocation: Allocation) -> None:
        self._log = commit_log
        self._allocation = allocation
        self._thread = DiskThread("log-next")
        self._asked = -1  # start of the file that was requested last
        self._made: deque[MappedFile] = deque()  # the thread appends, the event loop removes
        commit_log.take_ready = self.take

    @property
    def is_ready(self) -> bool:
        """Whether a file is ready that the log does not use yet."""
        return bool(self._made)

    def check(self) -> int:
        """Request the next file if it will be needed soon. Returns the physical offset at which to
        check again.
        """
        last = self._log.files[-1]
        due = last.end - int(last.size * _LEFT)
        if self._log.position < due:
            return due
        if last.end != self._asked:
            self._asked = last.end
            self._make(last.end)
        return last.end

    def _make(self, start: int) -> None:
        def make() -> None:
            file = self._log.make_file(start)
            self._allocation.begin(file)
            self._made.append(file)

        # If it fails, `add_file` tries again and raises the reason.
        self._thread.submit(make, lambda result, error: None)

    def take(self, start: int) -> MappedFile | None:
        """Return the file that starts at an offset if it is ready, and pass ownership to the
        caller.
        """
        while self._made:
            file = self._made.popleft()
            if file.start == start:
                return file
            file.close()  # too late: the log already has a file for these bytes
        return None

    async def discard(self) -> None:
        """Delete a prepared file that no longer follows the end of the log, which was truncated.

        A file that came too late is only closed: the log has created its own with the same name.
        """
        await self._thread.run(lambda: None)  # wait for a file that is being created
        while self._made:
            file = self._made.popleft()
            if self._log.file_at(file.start) is not None:
                file.close()
                continue
            file.delete()
            await asyncio.to_thread(files.sync_folder, file.path.parent)
        self._asked = -1

    def close(self) -> None:
        """End the thread, and delete an unused file."""
        self._thread.stop()
        self._log.take_ready = lambda start: None
        end = self._log.files[-1].end if self._log.files else -1
        unused = self.take(end)
        if unused is not None:
            with contextlib.suppress(OSError):  # the next start deletes it
                unused.delete()
            unused.close()


_PIECE = 1024 * 1024  # bytes of one request to the kernel
_AHEAD = 16 * _PIECE  # bytes to keep prepared after the end of the log
_STEP = 4 * _PIECE  # bytes written between two checks
# A copy into prepared memory takes 0.2 to 0.3 ns a byte; into memory that a host must assign first,
# 2 ns.
_DEAR = 0.8e-9  # seconds of processor time for a byte
_MIN_MEASURED = 256 * 1024  # bytes; with fewer small writes the calls cost more than the copy


class Prefault:
    """Keeps pages after the end of the last log file prepared while page faults are slow."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._thread = DiskThread("log-prefault")
        self._upto = 0  # physical offset up to which pages were requested
        self.is_on = False
        self.is_busy = False  # the thread is working

    def check(self) -> int:
        """Request pages if that pays. Returns the physical offset at which to check again."""
        position = self._log.position
        if not self.is_on:
            self.is_on = self._log.cost_of_writes(_MIN_MEASURED) > _DEAR
        if self.is_on and not self.is_busy:
            self._begin(position)
        return position + _STEP

    def _begin(self, position: int) -> None:
        file = self._log.files[-1]
        begin = max(self._upto, position, file.start)
        end = min(position + _AHEAD, file.end)
        if end - begin < _PIECE:
            return
        descriptor, start = file.descriptor, file.start

        def touch() -> float:
            begun = clock.thread_time()
            for at in range(begin - start, end - start, _PIECE):
                files.posix_fadvise(descriptor, at, _PIECE, os.POSIX_FADV_WILLNEED)
            return (clock.thread_time() - begun) / (end - begin)

        def done(cost: float | None, error: Exception | None) -> None:
            self.is_busy = False
            self.is_on = cost is not None and cost > _DEAR

        self.is_busy = True
        self._upto = end
        self._thread.submit(touch, done)

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._thread.stop()
