"""Reads a store, this broker's or Java's, that no broker serves, without changing a byte of it.

The log is read from its first file to its last. After damage, reading continues at the next record
whose own physical offset is right, so that one damaged place does not hide the rest.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log.records import BadRecord, EndOfLog, Record, read_file
from mq.daemons.broker.store.log.resync import RecordSearch
from mq.daemons.broker.store.tools.read_only import OpenFiles, ReadOnlyFile


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
