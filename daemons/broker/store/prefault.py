"""Prefault: where memory is dear, a thread touches the pages that are written next.

A virtual machine may have to wait for its host at the first touch of memory that the host has taken
back, or never gave: then six of ten samples of a broker that writes fast are the copy into such
pages, and a gigabyte takes 2 s of the processor instead of 0.2. Having the kernel read the hole
ahead of the log lets a thread wait for them, without the GIL. Where memory is had at once that
would cost more than it saves, so what writes take is measured, and what the thread takes
(docs/decisions/0013).
"""

import os

from mq.client.machine import clock, files
from mq.client.machine.threads import DiskThread
from mq.daemons.broker.store.commit_log import CommitLog

_PIECE = 1024 * 1024  # bytes that the kernel is asked for at once
_AHEAD = 16 * _PIECE  # bytes that there should be
_STEP = 4 * _PIECE  # bytes written between two looks
# A copy into memory that is there takes 0.2 to 0.3 ns a byte, into what a host must give first 2.
_DEAR = 0.8e-9  # seconds of the processor for a byte
_LEAST_MEASURED = 256 * 1024  # bytes; in a few small writes the calls count for more than the copy


class Prefault:
    """Keeps pages of the last log file ready ahead of the writes, while those would wait."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._thread = DiskThread("log-prefault")
        self._upto = 0  # the physical offset behind what has been asked for
        self.is_on = False
        self.is_busy = False  # the thread is

    def look(self) -> int:
        """Have pages made ready if that pays; returns from which physical offset on to look
        again."""
        position = self._log.position
        if not self.is_on:
            self.is_on = self._log.cost_of_writes(_LEAST_MEASURED) > _DEAR
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
