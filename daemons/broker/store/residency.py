"""Residency: what of the log is in memory. The event loop must not wait for a disk.

Reading a page of the mapped log that is not in memory stops everything until a disk has given it.
So before messages are looked at, the kernel is asked whether their pages are there, and if not a
thread has them read, with what lies behind them: whoever catches up wants that next.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from mq.client.machine import clock
from mq.daemons.broker.store.commit_log import CommitLog

_RECENT = 16 * 1024 * 1024  # bytes at the end of the log that were written a moment ago
_CHUNK = 1024 * 1024  # bytes of which one tells of the others
_AHEAD = 4 * _CHUNK  # bytes that are read at once
_TRUSTED_SECONDS = 1.0  # for so long what was in memory is taken to be there


class NotInMemory(Exception):
    """A disk would have to be waited for. `offsets` are physical ones, of the bytes missed."""

    def __init__(self, offsets: Sequence[int]) -> None:
        super().__init__(f"not in memory: {offsets}")
        self.offsets = offsets


class Residency:
    """Knows which chunks of a log are in memory, as far as the kernel tells."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._present: set[int] = set()
        self._until = 0.0  # of the monotonic clock

    def require(self, *offsets: int) -> None:
        """Raise NotInMemory unless what lies at physical offsets can be read at once."""
        now = clock.monotonic()
        if now > self._until:
            self._present.clear()
            self._until = now + _TRUSTED_SECONDS
        absent = []
        for offset in offsets:
            chunk = offset // _CHUNK
            if chunk in self._present or self._log.written - offset < _RECENT:
                continue
            if self._log.is_in_memory(offset):
                self._present.add(chunk)
            else:
                absent.append(offset)
        if absent:
            raise NotInMemory(absent)

    async def bring_in(self, absent: NotInMemory) -> None:
        """Have it read, and what follows it. What is not there at all is left to who asks next."""
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._read, absent.offsets)

    def _read(self, offsets: Sequence[int]) -> None:
        end = -1
        for offset in sorted(offsets):
            file = self._log.file_at(offset)
            if offset >= end and file is not None:
                file.bring_in(offset - file.start, _AHEAD)
                end = offset + _AHEAD
