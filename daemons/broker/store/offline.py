"""A store that no broker serves, read without changing a byte of it: ours or Java's.

The log is read from its first file to its last. Where something is not a record, reading goes on at
the next one that says it lies where it lies, so that one damaged place does not hide the others.
"""

import errno
import mmap
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.mapped_file import extent_end
from mq.daemons.broker.store.records import BadRecord, EndOfLog, Record, read_file
from mq.daemons.open_files import most_open_files
from mq.protocol.record import AT, MAGICS, SMALLEST_RECORD, struct_of

_MAGIC_AT = AT["magic"]
_PHYSICAL = struct_of("physical_offset")
_PIECE = 1 << 20  # bytes looked at in one go for zeros
_MOST_MAPS = 16_384


class Maps:
    """Files that are mapped: as many as a process may have, the last that were asked for.

    A store may have more files than a process may open (each map holds a descriptor) or map
    (vm.max_map_count is 65,530 by default).
    """

    def __init__(self) -> None:
        most = min(most_open_files() // 2, _MOST_MAPS)
        self._mapped: deque[ReadOnlyFile] = deque(maxlen=max(2, most))

    def keep(self, file: "ReadOnlyFile") -> None:
        """Of a file that was mapped now; the one that was mapped longest ago is mapped no more."""
        if len(self._mapped) == self._mapped.maxlen:
            self._mapped.popleft().forget_map()
        self._mapped.append(file)

    def close(self) -> None:
        while self._mapped:
            self._mapped.pop().forget_map()


class ReadOnlyFile:
    """A file of a store as memory; `start` is the offset that it is named after.

    It is mapped at once, so that what a broker removes meanwhile can be read to its end, and once
    more where `maps` had to forget it. A part of its `view` stays whole for who has it.
    """

    def __init__(self, path: Path, start: int, maps: Maps) -> None:
        """Raises OSError."""
        self.path = path
        self.start = start
        self._maps = maps
        with files.opened(path, os.O_RDONLY) as descriptor:
            status = files.fstat(descriptor)
            self.size = status.st_size
            self._identity = status.st_dev, status.st_ino, status.st_size
            self._extent_end = extent_end(descriptor)  # later its name may be another file's
            self._view: memoryview | None = self._mapped(descriptor)
        maps.keep(self)

    @property
    def view(self) -> memoryview:
        """All of it, read-only. Raises OSError where it had to be mapped again, and is gone."""
        if self._view is None:
            self._view = self._mapped_again()
            self._maps.keep(self)
        return self._view

    def _mapped(self, descriptor: int) -> memoryview:
        return memoryview(files.map_to_read(descriptor, self.size) if self.size else b"")

    def _mapped_again(self) -> memoryview:
        with suppress(FileNotFoundError), files.opened(self.path, os.O_RDONLY) as descriptor:
            status = files.fstat(descriptor)
            if (status.st_dev, status.st_ino, status.st_size) == self._identity:
                return self._mapped(descriptor)
        why = "removed or replaced while it was read, by a broker that runs: try again"
        raise OSError(errno.ESTALE, why, str(self.path))

    def forget_map(self) -> None:
        """Map it anew when it is asked for; the memory goes with the last part of it in use."""
        self._view = None

    @property
    def end(self) -> int:
        return self.start + self.size

    def find(self, part: bytes, position: int) -> int:
        """Where bytes that do not end in zeros are next, -1 if nowhere."""
        view = self.view
        assert isinstance(view.obj, mmap.mmap | bytes)
        return view.obj.find(part, position, self.data_end)

    @cached_property
    def data_end(self) -> int:
        """The position behind the last byte that is not zero."""
        end = self._extent_end
        while end > 0:
            start = max(0, end - _PIECE)
            piece = bytes(self.view[start:end]).rstrip(b"\0")
            if piece:
                return start + len(piece)
            end = start
        return 0


@dataclass(frozen=True)
class Hole:
    """A part of the log that is no record. `offset` is a physical one; sizes are in bytes."""

    path: Path
    offset: int
    size: int
    why: str


class OfflineLog:
    """The commit log of a store, in a context manager. Files are mapped read-only by `maps`, which
    other files of the store may share."""

    def __init__(self, folders: list[Path]) -> None:
        """Raises OSError for a folder or file that cannot be read."""
        found = {
            offset: path
            for folder in folders
            for path in files.children(folder)
            if (offset := layout.file_offset(path.name)) is not None
        }
        self.maps = Maps()
        self.files = [ReadOnlyFile(found[start], start, self.maps) for start in sorted(found)]
        self._starts = [file.start for file in self.files]

    def __enter__(self) -> "OfflineLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.maps.close()

    @property
    def minimum(self) -> int:
        """The physical offset of the first byte that is there."""
        return self.files[0].start if self.files else 0

    @property
    def file_size(self) -> int:
        """The size that files have, if they are whole."""
        return max((file.size for file in self.files), default=0)

    @property
    def data_size(self) -> int:
        """Bytes that hold something, of all files together."""
        return sum(file.data_end for file in self.files)

    def file_at(self, physical: int) -> ReadOnlyFile | None:
        number = bisect_right(self._starts, physical) - 1
        if number < 0 or physical >= self.files[number].end:
            return None
        return self.files[number]

    def record_at(self, physical: int) -> Record | None:
        """The record at an offset, if one begins there and is whole."""
        file = self.file_at(physical)
        if file is None:
            return None
        try:
            return next(read_file(file, physical - file.start), None)
        except (BadRecord, EndOfLog):
            return None

    def raw(self, record: Record) -> bytes:
        """The bytes of a record."""
        file = self.file_at(record.physical)
        assert file is not None
        at = record.physical - file.start
        return bytes(file.view[at : at + record.size])

    def walk(self, start: int = 0) -> Iterator[Record | Hole]:
        """Every record in its order, each verified with its checksum, and what lies between.

        What was never written, at the end of the log, is no hole.
        """
        for number, file in enumerate(self.files):
            if file.end <= start:
                continue
            if number and self.files[number - 1].end != file.start:
                before = self.files[number - 1]
                short = before.size < self.file_size
                why = "the file is shorter than others" if short else "a file is missing"
                yield Hole(before.path, before.end, file.start - before.end, why)
            last = not any(later.data_end for later in self.files[number + 1 :])
            yield from _walk_file(file, max(start - file.start, 0), last=last)
        if self.files and self.files[-1].size < self.file_size:
            file = self.files[-1]
            yield Hole(file.path, file.end, 0, "the file is shorter than others")


class _Heads:
    """Where records may begin in a file: their magics, asked for from its beginning to its end.

    Each byte is looked at once for each magic, however many places there are: a body may be made
    of nothing but one magic, and the other one be nowhere.
    """

    def __init__(self, file: ReadOnlyFile) -> None:
        self._file = file
        self._next = dict.fromkeys(MAGICS, -1)  # a place that was found, or the end of the file

    def next(self, position: int) -> int | None:
        """The first place from a position on, which never goes back."""
        for magic, place in self._next.items():
            if place < position:
                found = self._file.find(magic, position)
                self._next[magic] = found if found >= 0 else self._file.size
        place = min(self._next.values())
        return place if place < self._file.size else None


def _walk_file(file: ReadOnlyFile, position: int, *, last: bool) -> Iterator[Record | Hole]:
    heads = _Heads(file)
    while position < file.size:
        try:
            for record in read_file(file, position):
                position = record.physical - file.start + record.size
                yield record
            return
        except EndOfLog:
            if last and file.data_end <= position:
                return
            why = "zeros where a record should be"
        except BadRecord as error:
            why = str(error)
        end = max(file.data_end, position + 1) if last else file.size
        found = _next_record(file, heads, position + 1)
        stop = end if found is None else found
        yield Hole(file.path, file.start + position, stop - position, why)
        if found is None:
            return
        position = found


def _next_record(file: ReadOnlyFile, heads: _Heads, position: int) -> int | None:
    """Where the next whole record begins: its magic and its own offset say so."""
    at = position + _MAGIC_AT
    while (place := heads.next(at)) is not None:
        start = place - _MAGIC_AT
        at = place + 1
        if start + SMALLEST_RECORD > file.size:
            return None
        (physical,) = _PHYSICAL.unpack_from(file.view, start)
        if physical != file.start + start:
            continue
        try:
            if next(read_file(file, start), None) is not None:
                return start
        except (BadRecord, EndOfLog):
            continue
    return None
