"""Reads a store, this broker's or Java's, that no broker serves, without changing a byte of it.

The log is read from its first file to its last. After damage, reading continues at the next record
whose own physical offset is right, so that one damaged place does not hide the rest.
"""

import errno
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log.mapped_file import MappedSource, extent_end
from mq.daemons.broker.store.log.records import BadRecord, EndOfLog, Record, RecordSearch, read_file
from mq.daemons.open_files import most_open_files

_PIECE = 1 << 20  # bytes searched for zeros at once
_MOST_OPEN = 16_384
_MOST_WINDOWS = 4  # files whose last read part stays in memory


class OpenFiles:
    """The open files, limited to what a process may open, and the last read parts of a few of them.
    A context manager that closes all.

    A store may have more files than a process may open.
    """

    def __init__(self) -> None:
        most = min(most_open_files() // 2, _MOST_OPEN)
        self._open: deque[ReadOnlyFile] = deque(maxlen=max(2, most))
        self._windowed: deque[ReadOnlyFile] = deque(maxlen=_MOST_WINDOWS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self, file: "ReadOnlyFile") -> None:
        """Register a file that was just opened; closes the one that was opened longest ago."""
        if len(self._open) == self._open.maxlen:
            self._open.popleft().close()
        self._open.append(file)

    def keep_window(self, file: "ReadOnlyFile") -> None:
        """Register a file that now has a part in memory, and had none."""
        if len(self._windowed) == self._windowed.maxlen:
            self._windowed.popleft().forget_window()
        self._windowed.append(file)

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


class ReadOnlyFile(MappedSource):
    """A file of a store. ``start`` is the offset in its name.

    It is opened at once, so that it can be read to its end even if a broker deletes it meanwhile,
    and again if ``opened`` had to close it. It is not mapped: if another process shortens the file,
    as a broker does on a full disk, an access to the map would end this process with SIGBUS.
    """

    def __init__(self, path: Path, start: int, opened: OpenFiles) -> None:
        """Raises OSError."""
        super().__init__()
        self.path = path
        self.start = start
        self._opened = opened
        # Positions of the blocks that `read_around` could not read.
        self.unreadable: set[int] = set()
        self._descriptor = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
        opened.keep(self)
        status = files.fstat(self._descriptor)
        self.size = status.st_size
        self._identity = status.st_dev, status.st_ino, status.st_size
        # determined now, because its name may be another file's later
        self._extent_end = extent_end(self._descriptor)

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from a position on, as the file was when it was opened.

        Raises OSError if it has fewer bytes by now, or if it had to be opened again and no longer
        exists.
        """
        if self._descriptor < 0:
            self._open_again()
        left = max(0, min(size, self.size - position))
        pieces = []
        while left:
            try:
                piece = files.pread(self._descriptor, left, position)
            except OSError as error:  # this error does not name the file
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            if not piece:
                why = "made shorter while it was read, by a broker that runs or a copy: try again"
                raise OSError(errno.ESTALE, why, str(self.path))
            pieces.append(piece)
            position += len(piece)
            left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _window_opened(self) -> None:
        self._opened.keep_window(self)

    def read_around(self, position: int, size: int) -> tuple[bytes, list[int]]:
        """Read a part, with zeros for unreadable blocks; also returns the positions of these
        blocks.

        Raises as `read` for other errors.
        """
        if self._descriptor < 0:
            self._open_again()
        size = max(0, min(size, self.size - position))
        data, unreadable = files.read_around(self._descriptor, size, position)
        self.unreadable.update(unreadable)
        return data, unreadable

    def _open_again(self) -> None:
        with suppress(FileNotFoundError):
            self._descriptor = files.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            self._opened.keep(self)
            status = files.fstat(self._descriptor)
            if (status.st_dev, status.st_ino, status.st_size) == self._identity:
                return
            self.close()  # else further reads would be of another file
        why = "removed or replaced while it was read, by a broker that runs: try again"
        raise OSError(errno.ESTALE, why, str(self.path))

    def close(self) -> None:
        """Close the file. Idempotent. The next read opens it again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            files.close(descriptor)

    @property
    def end(self) -> int:
        return self.start + self.size

    @cached_property
    def data_end(self) -> int:
        """The position after the last byte that is not zero or not readable. Raises as `read` for
        other errors.
        """
        end = self._extent_end
        while end > 0:
            start = max(0, end - _PIECE)
            data, unreadable = self.read_around(start, end - start)
            found = start + len(data.rstrip(b"\0"))
            if unreadable:
                found = max(found, min(unreadable[-1] + files.BLOCK, end))
            if found > start:
                return found
            end = start
        return 0


@dataclass(frozen=True)
class Hole:
    """A part of the log without records. ``offset`` is a physical offset; sizes are in bytes."""

    path: Path
    offset: int
    size: int
    why: str


class OfflineLog:
    """The commit log of a store, as a context manager. ``opened`` has its open files; callers may
    add other files of the store.
    """

    def __init__(self, folders: list[Path]) -> None:
        """Raises OSError for a folder or file that cannot be read."""
        found = {
            offset: path
            for folder in folders
            for path in files.children(folder)
            if (offset := layout.file_offset(path.name)) is not None
        }
        self.opened = OpenFiles()
        try:
            self.files = [ReadOnlyFile(found[start], start, self.opened) for start in sorted(found)]
        except OSError:
            self.close()
            raise
        self._starts = [file.start for file in self.files]

    def __enter__(self) -> "OfflineLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.opened.close()

    @property
    def minimum(self) -> int:
        """The physical offset of the first byte that exists."""
        return self.files[0].start if self.files else 0

    @property
    def flushed(self) -> int:
        """As of a `CommitLog`; the whole log is on the disk."""
        return self.files[-1].end if self.files else 0

    @property
    def file_size(self) -> int:
        """The size of whole files."""
        return max((file.size for file in self.files), default=0)

    @property
    def data_size(self) -> int:
        """The number of bytes with data in all files."""
        return sum(file.data_end for file in self.files)

    def file_at(self, physical: int) -> ReadOnlyFile | None:
        number = bisect_right(self._starts, physical) - 1
        if number < 0 or physical >= self.files[number].end:
            return None
        return self.files[number]

    def record_at(self, physical: int) -> Record | None:
        """The record at an offset, if a whole record starts there."""
        file = self.file_at(physical)
        if file is None:
            return None
        for _ in range(2):  # a broker may have written it after the last read
            with suppress(BadRecord, EndOfLog):
                if found := next(read_file(file, physical - file.start), None):
                    return found
            file.forget_window()
        return None

    def is_blank(self, start: int, end: int) -> bool:
        """Whether a blank starts at an offset and reaches another offset."""
        file = self.file_at(start)
        if file is None or end > file.end:
            return False
        try:
            return next(read_file(file, start - file.start), None) is None
        except (BadRecord, EndOfLog):
            return False

    def raw(self, record: Record) -> bytes:
        """The bytes of a record."""
        file = self.file_at(record.physical)
        assert file is not None
        return file.read(record.physical - file.start, record.size)

    def walk(self, start: int = 0) -> Iterator[Record | Hole]:
        """Yield all records in order, each verified by its checksum, and the holes between them.

        The unwritten end of the log is not a hole.
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


def _walk_file(file: ReadOnlyFile, position: int, *, last: bool) -> Iterator[Record | Hole]:
    heads = RecordSearch(file)
    # evaluated first: a broker may append meanwhile, and later reads are no older
    _ = file.data_end
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
        found = heads.next_record(position + 1)
        stop = end if found is None else found
        yield Hole(file.path, file.start + position, stop - position, why)
        if found is None:
            return
        position = found
