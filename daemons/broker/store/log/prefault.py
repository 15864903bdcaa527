"""Prefault: a thread prepares the memory pages that are written next, if page faults are slow.

A virtual machine may have to wait for its host at the first touch of memory that the host has
reclaimed or never assigned. Then six of ten samples of a broker that writes fast are in the copy
into such pages, and a gigabyte takes 2 s of processor time instead of 0.2 s. If the kernel reads
the hole after the end of the log, a thread waits for these pages instead, without the GIL. With
fast page faults that would cost more than it saves, so the cost of the writes and that of the
thread are measured (docs/decisions/0013).
"""

import os

from mq.client.machine import clock, files
from mq.client.machine.threads import DiskThread
from mq.daemons.broker.store.log.commit_log import CommitLog

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
