"""Inheritance: takes over the timer of the previous master when a slave becomes master.

A slave has the messages of rmq_sys_wheel_timer in its log, but neither wheel nor timer log: it
keeps a copy of its master's checkpoint, in the same file. Started as a master it finds a checkpoint
without a wheel, and reads the whole queue again, skipping messages that the master had delivered by
then. Until everything has been read and saved, that checkpoint stays next to the new one: after a
kill the broker starts from it again.

A message that is due later than the wheel reaches is replaced by another one after a while (the
master "rolls" it): the first one is skipped when that has happened. The exact time of that is not
stored, so a message that may just have been rolled is rather taken twice than not at all.
"""

import asyncio
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.broker.clock_steps import is_future
from mq.daemons.broker.delayed import timer_checkpoint
from mq.daemons.state_file import write_atomically

# How much later than its store time a message may have been put into the master's wheel.
LATE_ENQUEUE_MS = 60_000
# How far a master's clock may be ahead of this one; a later time is invalid.
_AHEAD_MS = 3_600_000

TIMER_LOG = "timerlog"  # in the root of the store
TIMER_WHEEL = "timerwheel"


def remove_files(root: Path) -> None:
    """Delete wheel and log, so that everything is read again from the queue. Raises OSError."""
    if files.exists(root / TIMER_WHEEL):
        files.remove(root / TIMER_WHEEL)
        files.sync_folder(root)
    # A power failure may have removed the name of the wheel alone. Units of a remaining log would
    # count as being in the wheel.
    if files.exists(root / TIMER_LOG):
        files.remove_tree(root / TIMER_LOG)
        files.sync_folder(root)


class TimerCopy:
    """A slave's copy of its master's checkpoint, in the store at `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._content: bytes | None = None

    async def take(self, content: bytes) -> None:
        """Save a checkpoint from a reply to GET_TIMER_CHECK_POINT.

        Raises OSError, and ValueError for an invalid one.
        """
        if content == self._content:
            return
        values = timer_checkpoint.read_values(content)
        if values is None or min(values[:4]) < 0:
            raise ValueError("the timer's checkpoint is malformed")
        if values[0] > clock.milliseconds() + _AHEAD_MS:
            raise ValueError(f"the master's timer is at {values[0]}, too far in the future")
        await asyncio.to_thread(self._write, content[: timer_checkpoint.CONTENT_SIZE])
        self._content = content

    def forget(self) -> None:
        """Note that the file no longer has the content that was taken."""
        self._content = None

    def _write(self, content: bytes) -> None:
        # These are of a former master, which has become a slave: they would lack later messages.
        # Without them its own checkpoint counts like another broker's.
        if files.exists(self._root / TIMER_WHEEL):
            files.remove(self._root / TIMER_WHEEL)
            files.sync_folder(self._root)
        files.remove_tree(self._root / TIMER_LOG)
        path = self._root / "config" / timer_checkpoint.FILE_NAME
        write_atomically(path, timer_checkpoint.padded(content))
        inherited = path.with_name(timer_checkpoint.INHERITED_NAME)  # of an older takeover
        for old in (inherited, inherited.with_name(inherited.name + ".bak")):
            files.remove(old)


def delivered_until(read_time: int) -> int:
    """The time up to which a master with this read time has surely delivered, both in ms: if its
    clock was ahead, messages up to the read time may still be due.
    """
    now = clock.milliseconds()
    return now if is_future(read_time, now) else read_time


class Inheritance:
    """Decides which messages of the timer's queue the previous master has delivered."""

    def __init__(self, read_time: int, queue_offset: int, longest_wait: int) -> None:
        """The master had delivered every slot before ``read_time`` (ms), and read the queue up to
        ``queue_offset``. It rolls a message after ``longest_wait`` ms.
        """
        self._read_time = read_time
        self.queue_offset = queue_offset
        self._longest_wait = longest_wait

    def has_delivered(self, queue_offset: int, stored: int, due: int) -> bool:
        """Whether the master has delivered a message that was stored in the queue at ``stored`` and
        is due at ``due``, both in ms.
        """
        if due - stored >= self._longest_wait:
            due = stored + self._longest_wait + LATE_ENQUEUE_MS  # it has rolled by then
        return queue_offset < self.queue_offset and due < self._read_time
