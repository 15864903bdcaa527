"""The commit log: all messages of all topics in the order of arrival.

Physical offsets run through all files; a file is named after its first offset. A record lies in one
file; a blank record fills the rest of a file. Four offsets, each at or before the previous one:

    position   where the next record will be written
    written    handed to the kernel: survives the death of this process
    flushed    fsynced: survives the death of the machine
    minimum    the oldest byte that still exists

Only `append.py` moves position and written, only `flush.py` moves flushed.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreLoadError
from mq.daemons.broker.store.log.mapped_file import MappedFile, ReadFailures, data_end
from mq.protocol.record import (
    AT,
    BLANK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_START,
    SMALLEST_RECORD,
    host_sizes,
    shift,
)

log = logging.getLogger(__name__)

_MEASURED = 16  # one write of this many is timed: the clock costs as much as a small write


class CommitLog:
    """The files of the log, found by offset.

    ``paths`` are the folders over which the log is spread: file n is created in folder n modulo
    their number, in sorted order (Java: MultiPathMappedFileQueue). ``file_size`` is the size of
    each file in bytes.
    """

    def __init__(self, paths: Sequence[Path], file_size: int) -> None:
        self.paths = sorted(paths)
        self.file_size = file_size
        self.files: list[MappedFile] = []
        self.failures = ReadFailures()
        # Returns the file that starts at an offset if it was created beforehand, else None.
        self.take_ready: Callable[[int], MappedFile | None] = lambda start: None
        # Called when a file was deleted or closed, because memory that is still mapped keeps the
        # file on disk, and when the log was truncated, because other records may take the place.
        self.on_removed: list[Callable[[], None]] = []
        self.position = 0
        self.written = 0
        self.flushed = 0
        self._writes = 0
        self._measured_bytes = 0
        self._measured_seconds = 0.0  # of processor time

    def load(self, *, crashed: bool = False) -> None:
        """Open the existing files. ``crashed``: their last user did not close them.

        Raises StoreLoadError if a file is missing or does not have the configured size. After a
        crash the last file may be shorter, because earlier versions shortened the file in `cut`,
        where the process may have ended. Such a file ends in a record; a file that was created with
        another size ends in zeros or in a blank.
        """
        found: list[tuple[int, Path]] = []
        for folder in self.paths:
            files.make_folders(folder)
            for path in files.children(folder):
                start = layout.file_offset(path.name)
                if start is not None and files.is_file(path):
                    found.append((start, path))
        found.sort()
        while found and files.size(found[-1][1]) == 0:
            # A crash between the creation of the file and the setting of its length.
            files.unlink(found.pop()[1])
        for number, (start, path) in enumerate(found):
            size = files.size(path)
            is_cut = crashed and number == len(found) - 1 and size < self.file_size
            if size != self.file_size and not (is_cut and _ends_in_record(path, size)):
                raise StoreLoadError(
                    f"{path} has {size} bytes, mappedFileSizeCommitLog is {self.file_size}: "
                    f"start with the size with which the store was created"
                )
            if number and start != found[number - 1][0] + self.file_size:
                raise StoreLoadError(
                    f"the log has a gap before {path}: put the missing file back, or move the "
                    f"files before the gap away"
                )
            self.files.append(MappedFile(path, start, self.file_size, self.failures))
        self.set_end(self.files[-1].end if self.files else 0)

    @property
    def minimum(self) -> int:
        return self.files[0].start if self.files else 0

    def set_end(self, offset: int) -> None:
        """Set the end of the log, all of which is on disk."""
        self.position = self.written = self.flushed = offset

    def reaches(self, offset: int) -> bool:
        """Whether `cut` would change anything."""
        last = self.files[-1] if self.files else None
        if last is None or offset >= last.end:
            return False
        position = max(offset - last.start, 0)
        is_whole_file = position == 0 and last.start > self.minimum
        return is_whole_file or data_end(last.descriptor, position) > position

    def cut(self, offset: int) -> None:
        """Truncate the log at an offset, so that stale bytes can never be read as a record.

        The truncation survives a power failure: a file that reappeared would follow the records
        written here since. Raises OSError.
        """
        self._notify_removed()
        while self.files and self.files[-1].start >= offset and self.files[-1].start > self.minimum:
            file = self.files.pop()
            file.delete()
            files.sync_folder(file.path.parent)
        if self.files and offset < self.files[-1].end:
            last = self.files[-1]
            position = max(offset, last.start) - last.start
            if data_end(last.descriptor, position) > position:
                last.clear_after(position)
                files.fsync(last.descriptor)  # fdatasync need not flush the truncated part
        self.set_end(offset)

    def begin_at(self, offset: int) -> None:
        """Restart a log without records at an offset, where a file starts. Raises OSError."""
        if not self.files or self.files[0].start != offset:
            while self.files:
                files.sync_folder(self.remove_first().path.parent)
            self.set_end(offset)
            self.add_file()
        self.set_end(offset)

    def file_at(self, offset: int) -> MappedFile | None:
        """The file that holds an offset, or None."""
        if not self.files:
            return None
        number = (offset - self.files[0].start) // self.file_size
        return self.files[number] if 0 <= number < len(self.files) else None

    def add_file(self) -> MappedFile:
        """Add the file that follows the last, created beforehand or now. Raises OSError."""
        start = self.files[-1].end if self.files else self.position - self.position % self.file_size
        file = self.take_ready(start) or self.make_file(start)
        self.files.append(file)
        return file

    def make_file(self, start: int) -> MappedFile:
        """Create the file that starts at an offset, without adding it to the log.

        May run in any thread. An existing file stays as it is. Name and length of the file are
        synced to the disk: a file that a power failure left empty, with another file after it,
        would be a hole in the log. Raises OSError.
        """
        folder = self.paths[start // self.file_size % len(self.paths)]
        path = folder / layout.file_name(start)
        file = MappedFile(path, start, self.file_size, self.failures)
        try:
            files.fsync(file.descriptor)
            files.sync_folder(folder)
        except OSError:
            file.close()
            raise
        return file

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Write bytes at an offset of the last file. Raises OSError, after which a part may be
        written.
        """
        file = self.files[-1]
        self._writes += 1
        if self._writes % _MEASURED:
            file.write(data, offset - file.start)
            return
        begun = clock.thread_time()
        file.write(data, offset - file.start)
        self._measured_seconds += clock.thread_time() - begun
        self._measured_bytes += len(data)

    def cost_of_writes(self, least: int) -> float:
        """Processor seconds for each byte written since the last call; 0 while fewer than ``least``
        bytes were measured.
        """
        if self._measured_bytes < least:
            return 0.0
        cost = self._measured_seconds / self._measured_bytes
        self._measured_bytes, self._measured_seconds = 0, 0.0
        return cost

    def remove_first(self) -> MappedFile:
        """Delete the oldest file and return it, closed. Raises OSError; the file then still exists.

        The caller syncs its folder before it deletes the next file: if a power failure brought one
        file back but not the file after it, the log would have a gap.
        """
        file = self.files[0]
        file.delete()
        self.files.pop(0)
        self._notify_removed()
        return file

    def _notify_removed(self) -> None:
        for callback in self.on_removed:
            callback()

    def read(self, offset: int, size: int) -> bytes | None:
        """The bytes at an offset; None if they do not exist. Raises OSError."""
        file = self.file_at(offset)
        if file is None or offset + size > min(file.end, self.written):
            return None
        return file.read(offset - file.start, size)

    def is_in_memory(self, offset: int) -> bool:
        """Whether the byte at an offset can be read without waiting for a disk, or does not
        exist."""
        file = self.file_at(offset)
        return file is None or file.is_in_memory(offset - file.start)

    def record_at(self, offset: int) -> bytes | None:
        """The record that starts at an offset, or None. Raises OSError."""
        size = self._record_size(self.read(offset, RECORD_START.size))
        return None if size is None else self.read(offset, size)

    def _record_size(self, start: bytes | None) -> int | None:
        """The size in the first bytes of a record; None if they do not start a record."""
        if start is None:
            return None
        size, magic, _ = RECORD_START.unpack_from(start)
        if magic not in (MAGIC_V1, MAGIC_V2) or size < SMALLEST_RECORD:
            return None
        return int(size)

    def store_timestamp(self, offset: int) -> int:
        """The store timestamp of the record at an offset, in ms; 0 if there is no record. Raises
        OSError.
        """
        head = self.read(offset, SMALLEST_RECORD)
        if head is None or self._record_size(head) is None:
            return 0
        return record_store_timestamp(head)

    def readable_timestamp(self, offset: int) -> int:
        """As `store_timestamp`, but 0 if the disk cannot be read."""
        try:
            return self.store_timestamp(offset)
        except OSError:  # it was already counted and logged
            return 0

    def unflushed(self, upto: int) -> Iterator[MappedFile]:
        """The files that hold bytes between flushed and an offset."""
        for file in reversed(self.files):
            if file.end <= self.flushed:
                break
            if file.start < upto:
                yield file

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.files.clear()
        self._notify_removed()


def _ends_in_record(path: Path, size: int) -> bool:
    with files.opened(path, os.O_RDONLY) as descriptor:
        end = files.pread(descriptor, BLANK.size, max(0, size - BLANK.size))
    return any(end) and end != BLANK.pack(BLANK.size, MAGIC_BLANK)


def record_store_host(record: bytes | memoryview) -> bytes:
    """The address and port of the broker that stored a whole record."""
    (sys_flag,) = layout.INT.unpack_from(record, AT["sys_flag"])
    at = AT["store_host"] + shift("store_host", sys_flag)
    return bytes(record[at : at + host_sizes(sys_flag)[1]])


def record_store_timestamp(record: bytes | memoryview) -> int:
    """The store timestamp of a record in ms; its first SMALLEST_RECORD bytes suffice."""
    (sys_flag,) = layout.INT.unpack_from(record, AT["sys_flag"])
    at = AT["store_timestamp"] + shift("store_timestamp", sys_flag)
    timestamp: int = layout.LONG.unpack_from(record, at)[0]
    return timestamp
