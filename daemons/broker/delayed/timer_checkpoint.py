"""The file `config/timercheck`: the progress of the timer (TimerCheckpoint of RocketMQ 5).

Seven i64, big-endian: read time (ms), flushed position of the timer log, offset in the queue of
rmq_sys_wheel_timer, the same offset of the master, and a data version (state, timestamp, counter).
"""

import struct
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.state_file import write_atomically

_LAYOUT = struct.Struct(">7q")
_PAGE = 4096

FILE_NAME = "timercheck"  # in the folder config
# Next to it, in the same format, while this broker takes over from another one: the progress of
# that.
INHERITED_NAME = "timerinherited"
CONTENT_SIZE = _LAYOUT.size


def read_values(content: bytes) -> tuple[int, ...] | None:
    """The numbers of a checkpoint; None if the content is too short."""
    return _LAYOUT.unpack_from(content) if len(content) >= CONTENT_SIZE else None


def padded(content: bytes) -> bytes:
    """The file with this content, padded to a page as by Java."""
    return content + bytes(_PAGE - len(content))


class TimerCheckpoint:
    """``read_time`` in ms: every slot before it has been delivered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.read_time = 0
        self.log_position = 0
        self.queue_offset = 0
        self._counter = 0
        try:
            raw = files.read_bytes(path)
        except FileNotFoundError:
            return
        values = read_values(raw)
        if values is not None:
            self.read_time, self.log_position, offset, master_offset, _, _, self._counter = values
            self.queue_offset = min(offset, master_offset)

    def save(self, read_time: int, log_position: int, queue_offset: int) -> None:
        """Write the file. Raises OSError."""
        self._counter += 1
        now = clock.milliseconds()
        raw = _LAYOUT.pack(
            read_time, log_position, queue_offset, queue_offset, 0, now, self._counter
        )
        write_atomically(self._path, padded(raw))
        self.read_time, self.log_position = read_time, log_position
        self.queue_offset = queue_offset
