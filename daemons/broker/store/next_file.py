"""Next file: the one that the log goes on in, made before the last one is full.

A new file is worth nothing before its folder is on the disk, and a disk that is busy with what has
just been written takes a third of a second for that: too long for every sender to stand still.
Java makes its files beforehand, too (AllocateMappedFileService); one that was never needed may be
found behind a crash, empty, and a start takes it away.
"""

import asyncio
import contextlib
from collections import deque

from mq.client.machine import files
from mq.client.machine.threads import DiskThread
from mq.daemons.broker.store.allocation import Allocation
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.mapped_file import MappedFile

# It is made when so much of the last one is left: of a gigabyte a second's worth at least.
_LEFT = 1 / 4


class NextFile:
    """Makes the next file of a log in a thread of its own, with its first blocks."""

    def __init__(self, commit_log: CommitLog, allocation: Allocation) -> None:
        self._log = commit_log
        self._allocation = allocation
        self._thread = DiskThread("log-next")
        self._asked = -1  # where the file begins that was last asked for
        self._made: deque[MappedFile] = deque()  # the thread puts in, the loop takes out
        commit_log.take_ready = self.take

    @property
    def is_ready(self) -> bool:
        """Whether a file is there that the log has not yet."""
        return bool(self._made)

    def look(self) -> int:
        """Have the next file made if it will be needed soon; returns from which physical offset on
        to look again."""
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

        # If it cannot be made now, who needs it tries again, and tells why it cannot be.
        self._thread.submit(make, lambda result, error: None)

    def take(self, start: int) -> MappedFile | None:
        """The file that begins at an offset, if it is ready. Nobody else gets it."""
        while self._made:
            file = self._made.popleft()
            if file.start == start:
                return file
            file.close()  # it came too late: the log has one of its own for these bytes
        return None

    async def discard(self) -> None:
        """Take away a file that was made for an end of the log that is none any more.

        Not one that came too late: the log has made its own for these bytes, by the same name.
        """
        await self._thread.run(lambda: None)  # one that is being made
        while self._made:
            file = self._made.popleft()
            if self._log.file_at(file.start) is not None:
                file.close()
                continue
            file.delete()
            await asyncio.to_thread(files.sync_folder, file.path.parent)
        self._asked = -1

    def close(self) -> None:
        """End the thread, and take away a file that was not needed."""
        self._thread.stop()
        self._log.take_ready = lambda start: None
        end = self._log.files[-1].end if self._log.files else -1
        unused = self.take(end)
        if unused is not None:
            with contextlib.suppress(OSError):  # the next start does it
                unused.delete()
            unused.close()
