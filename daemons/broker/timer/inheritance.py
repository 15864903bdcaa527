"""What a broker inherits of its master's timer when it is made master itself.

A slave has the messages of rmq_sys_wheel_timer in its log, and neither wheel nor timer log: it
keeps a copy of its master's checkpoint, in the same file. Started as a master it finds a checkpoint
and no wheel, and reads the whole queue again. What the master had delivered by then is left out.
Until all of it has been read and saved, that checkpoint stays beside the new one: behind a kill the
broker begins with it again.

Of a message that is due further off than the wheel reaches the master puts another one in its place
after a while (it "rolls"): the first one is left out when that has happened. When exactly it did is
not written anywhere, so what may just have been rolled is taken twice rather than not at all.
"""

import asyncio
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.broker.clock_steps import is_future
from mq.daemons.broker.timer import checkpoint
from mq.daemons.state_file import write_atomically

# How much later than it was stored a message may have been put into the wheel of the master.
LATE_ENQUEUE_MS = 60_000
# A master's clock may be ahead of this one's so far; what is beyond that is no time.
_AHEAD_MS = 3_600_000

TIMER_LOG = "timerlog"  # in the root of the store
TIMER_WHEEL = "timerwheel"


def remove_files(root: Path) -> None:
    """Remove wheel and log, so that everything is read again from the queue. Raises OSError."""
    if files.exists(root / TIMER_WHEEL):
        files.remove(root / TIMER_WHEEL)
        files.sync_folder(root)
    # A power cut may have removed the name of the wheel alone. Units of the log that is left would
    # count as in the wheel.
    if files.exists(root / TIMER_LOG):
        files.remove_tree(root / TIMER_LOG)
        files.sync_folder(root)


class TimerCopy:
    """A slave's copy of the checkpoint of its master, in the store at `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._content: bytes | None = None

    async def take(self, content: bytes) -> None:
        """Keep a checkpoint as GET_TIMER_CHECK_POINT answers it.

        Raises OSError; and ValueError for one that cannot be a master's.
        """
        if content == self._content:
            return
        values = checkpoint.read_values(content)
        if values is None or min(values[:4]) < 0:
            raise ValueError("the timer's checkpoint is malformed")
        if values[0] > clock.milliseconds() + _AHEAD_MS:
            raise ValueError(f"the master's timer has come to {values[0]}, which is far from now")
        await asyncio.to_thread(self._write, content[: checkpoint.CONTENT_SIZE])
        self._content = content

    def forget(self) -> None:
        """What is in the file is not what was taken any more."""
        self._content = None

    def _write(self, content: bytes) -> None:
        # Those of a former master, which has become a slave: they would not hold what has come
        # since. Without them its own checkpoint says the same as another's.
        if files.exists(self._root / TIMER_WHEEL):
            files.remove(self._root / TIMER_WHEEL)
            files.sync_folder(self._root)
        files.remove_tree(self._root / TIMER_LOG)
        path = self._root / "config" / checkpoint.FILE_NAME
        write_atomically(path, checkpoint.padded(content))
        inherited = path.with_name(checkpoint.INHERITED_NAME)  # of an older one
        for old in (inherited, inherited.with_name(inherited.name + ".bak")):
            files.remove(old)


def delivered_until(read_time: int) -> int:
    """Up to which time a master that had read up to one has surely delivered, both in ms: if its
    clock was ahead, messages up to there may be due yet."""
    now = clock.milliseconds()
    return now if is_future(read_time, now) else read_time


class Inheritance:
    """Which messages of the timer's queue another broker, the master before, has delivered."""

    def __init__(self, read_time: int, queue_offset: int, longest_wait: int) -> None:
        """It had delivered every slot before ``read_time`` (ms), and read the queue up to
        ``queue_offset``. It lets a message wait for ``longest_wait`` ms, and then rolls it."""
        self._read_time = read_time
        self.queue_offset = queue_offset
        self._longest_wait = longest_wait

    def has_delivered(self, queue_offset: int, stored: int, due: int) -> bool:
        """Of a message that was stored in the queue at a time (ms) and is due at another."""
        if due - stored >= self._longest_wait:
            due = stored + self._longest_wait + LATE_ENQUEUE_MS  # it has rolled by then
        return queue_offset < self.queue_offset and due < self._read_time
