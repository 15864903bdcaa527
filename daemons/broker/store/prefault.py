"""Prefault: pages for what is written next, made ready by a thread of their own.

A write to a part of the log that was never touched makes the kernel find, clear and map a page for
every four kilobytes, while the event loop waits: on virtual machines that costs more than the copy
itself. Reading the hole beforehand has the kernel do it in another thread, without the GIL, and
takes neither disk space nor a write.
"""

import contextlib

from mq.client.machine import files
from mq.client.machine.threads import DiskThread
from mq.daemons.broker.store.commit_log import CommitLog

STEP = 4 * 1024 * 1024  # bytes made ready at a time: some 30 ms of the highest rate
_AT_ONCE = 1024 * 1024


class Prefault:
    """Keeps between one and two steps of the last log file in memory ahead of the writes."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._thread = DiskThread("log-ahead")
        self._buffer = bytearray(_AT_ONCE)
        self._ready = 0  # the physical offset behind what has been made ready

    def ask(self) -> int:
        """Make more of the last file ready, in the thread; returns from which offset to ask on."""
        file = self._log.files[-1]
        position = self._log.position
        begin = self._ready if position <= self._ready <= file.end else position
        end = min(position + 2 * STEP, file.end)
        self._ready = end
        descriptor, start = file.descriptor, file.start

        def read() -> None:
            with contextlib.suppress(OSError):  # the file was closed meanwhile
                for at in range(begin - start, end - start, _AT_ONCE):
                    files.preadv(descriptor, [self._buffer], at)

        self._thread.submit(read, lambda result, error: None)
        return end if end == file.end else end - STEP

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._thread.stop()
