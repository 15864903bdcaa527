"""The folder `timerlog`: one unit for each waiting message, chained by the slot in which it is due.

A unit (TimerLog of RocketMQ 5, big-endian, 52 bytes):

    size i32 | position of the slot's previous unit, -1 if none, i64 | magic i32 | write time i64
    | due after the write time, ms, i32 | physical offset i64 | size of the record i32
    | hash of the topic i32 | reserved i64

A blank fills the rest of a file: its length i32, 0 i64, its own magic i32.
"""

import logging
import struct
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from mq.client.machine import clock, files
from mq.daemons.broker.store import MappedFile, layout

log = logging.getLogger(__name__)

MAGIC = 1
MAGIC_ROLL = 2  # due later than the wheel reaches: it is put again when this slot is due
MAGIC_DELETE = 4  # withdraws another message
_MAGICS = 0xF
_BLANK_MAGIC = 0xCBD43194

_UNIT = struct.Struct(">iqiqiqiiq")
_BLANK = struct.Struct(">iqI")
UNIT_SIZE = _UNIT.size
# The longest time between the write and the delivery of a unit, in ms: an i32 holds it.
LONGEST_DELAY = (1 << 31) - 1


class Unit(NamedTuple):
    """The log's data of a message; ``written`` and ``due``, the time of its slot, are in ms."""

    previous: int
    magic: int
    written: int
    due: int
    physical: int
    size: int


class TimerLog:
    """The files of the log; ``file_size`` is their size in bytes, ``end`` the position of the next
    unit.
    """

    def __init__(self, folder: Path, file_size: int) -> None:
        self._folder = folder
        self._file_size = file_size
        self._files: dict[int, MappedFile] = {}  # by first position, in order
        self._dirty: set[int] = set()
        # also of existing files: their creator may have been killed before the sync
        self._names_synced = False
        files.make_folders(folder)
        starts = (layout.file_offset(name) for name in files.listdir(folder))
        for start in sorted(start for start in starts if start is not None):
            self._open(start)
        self.end = 0

    def recover(self, start: int) -> Iterator[tuple[int, Unit]]:
        """Yield position and unit of every whole unit from a position on; sets `end` after them.

        Clears everything after the last whole unit.
        """
        position = max(start, next(iter(self._files), 0))
        if (position - position // self._file_size * self._file_size) % UNIT_SIZE:
            position -= position % self._file_size
        self.end = yield from self._units(position)
        self._clear_after(self.end)

    def units(self) -> Iterator[tuple[int, Unit]]:
        """Yield position and unit of every unit up to `end`."""
        end = self.end
        for position, unit in self._units(next(iter(self._files), 0)):
            if position >= end:
                return
            yield position, unit

    def _units(self, position: int) -> Generator[tuple[int, Unit], None, int]:
        """Yield whole units from a position on; returns the end of the last one."""
        while (file := self._file_at(position)) is not None:
            room = file.end - position
            unit = self.unit(position)
            if unit is None:
                raw = file.read(position - file.start, _BLANK.size)
                if len(raw) == _BLANK.size and _BLANK.unpack(raw)[2] == _BLANK_MAGIC:
                    position += room
                    continue
                break
            self._dirty.add(file.start)  # a killed process may not have flushed it
            yield position, unit
            position += UNIT_SIZE
        return position

    def append(self, previous: int, magic: int, written: int, due: int, at: int, size: int) -> int:
        """Add a unit for the record of ``size`` bytes at ``at``; returns its position.

        Raises OSError.
        """
        file = self._file_at(self.end)
        if file is None:
            file = self._open(self.end - self.end % self._file_size)
        room = file.end - self.end
        if room < UNIT_SIZE + _BLANK.size:
            file.write(_BLANK.pack(room, 0, _BLANK_MAGIC), self.end - file.start)
            self._dirty.add(file.start)
            self.end = file.end
            file = self._open(self.end)
        position = self.end
        # The distance exceeds this only if the clock was set by weeks meanwhile.
        written = min(max(written, due - LONGEST_DELAY), due + LONGEST_DELAY)
        unit = _UNIT.pack(UNIT_SIZE, previous, magic, written, due - written, at, size, 0, 0)
        file.write(unit, position - file.start)
        self._dirty.add(file.start)
        self.end = position + UNIT_SIZE
        return position

    def unit(self, position: int) -> Unit | None:
        """The unit at a position, or None."""
        file = self._file_at(position)
        if file is None:
            return None
        raw = file.read(position - file.start, UNIT_SIZE)
        if len(raw) < UNIT_SIZE:
            return None
        size, previous, magic, written, delay, physical, record_size, _, _ = _UNIT.unpack(raw)
        if size != UNIT_SIZE or magic & ~_MAGICS or not magic:
            return None
        return Unit(previous, magic, written, written + delay, physical, record_size)

    def chain(self, last: int, before: int = -1) -> list[Unit]:
        """The units of a slot after ``before`` up to ``last``, in order."""
        found: list[Unit] = []
        position = last
        while position > before:
            unit = self.unit(position)
            if unit is None:
                log.error("the timer log has no unit at %d: units before it are lost", position)
                break
            found.append(unit)
            if unit.previous >= position:
                log.error("the timer log is damaged at %d: it points forward", position)
                break
            position = unit.previous
        found.reverse()
        return found

    def sync(self) -> None:
        """Flush everything to the disk, with the names of the files and of their folder.

        Raises OSError; the kernel may have dropped the pages then, so that nothing is known to be
        on the disk before a restart.
        """
        dirty, self._dirty = self._dirty, set()
        for start in dirty:
            if start in self._files:
                self._files[start].sync()
        if not self._names_synced:
            self._names_synced = True
            files.sync_folder(self._folder)
            files.sync_folder(self._folder.parent)

    def remove_older(self, seconds: float) -> None:
        """Delete files without writes in the last seconds, except the last file."""
        oldest = clock.time() - seconds
        for start in list(self._files)[:-1]:
            if self._files[start].modified_at() >= oldest:
                break
            log.info("deleting %s: everything in it was due", self._files[start].path)
            self._files.pop(start).delete()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _file_at(self, position: int) -> MappedFile | None:
        return self._files.get(position - position % self._file_size) if position >= 0 else None

    def _open(self, start: int) -> MappedFile:
        path = self._folder / layout.file_name(start)
        file = self._files[start] = MappedFile(path, start, self._file_size)
        self._names_synced = False
        return file

    def _clear_after(self, position: int) -> None:
        for start in list(self._files):
            if start > position:
                self._files.pop(start).delete()
        file = self._file_at(position)
        if file is not None:
            file.clear_after(position - file.start)
            files.fsync(file.descriptor)
