"""Creates the next file of the log before the last one is full.

A new file is of no use before its folder is synced. A disk that is busy with recent writes takes a
third of a second for that, for which all senders would wait. Java creates its files beforehand, too
(AllocateMappedFileService). After a crash an unused next file may exist, empty; the start deletes
it.
"""

import asyncio
import contextlib
from collections import deque

from mq.client.machine import files
from mq.client.machine.threads import DiskThread
from mq.daemons.broker.store.log.allocation import Allocation
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import MappedFile

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
