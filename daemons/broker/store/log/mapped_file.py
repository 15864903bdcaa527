"""Files of a fixed size: written with pwrite, read through a read-only mapping.

Java writes through the mapping, too. A store to a mapped page of a sparse file on a full disk ends
the process with SIGBUS, which CPython cannot catch; pwrite returns ENOSPC instead, and writes a
batch in one call without page faults. The kernel keeps file and mapping consistent
(docs/decisions/).

A load from a mapped page that the disk cannot read is a SIGBUS, too. So only pages that were read
into memory just before are read through the mapping (`MappedFile.admit`).

`MappedSource` reads a file from start to end with system calls, with one part of it in memory at a
time.
"""

import errno
import logging
import mmap
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from mq.client.machine import files

log = logging.getLogger(__name__)

_CREATED_MODE = 0o644
_READ_AT_ONCE = 1024 * 1024  # bytes; smaller reads would need more disk requests


def _extents(descriptor: int, position: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of the parts of a file that are not holes, from a position on.

    Raises OSError.
    """
    try:
        while True:
            start = files.lseek(descriptor, position, os.SEEK_DATA)
            position = files.lseek(descriptor, start, os.SEEK_HOLE)
            yield start, position
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: only a hole is left
            raise


def extent_end(descriptor: int, position: int = 0) -> int:
    """One past the last byte of a file, from a position on, that is not in a hole.

    A file of the log has its full length from the start.
    """
    return max((end for _, end in _extents(descriptor, position)), default=position)


def data_end(descriptor: int, position: int = 0) -> int:
    """One past the last byte of a file, from a position on, that is not zero.

    Returns the position if there is none. Zeros may be a hole or written: Java can fill its files
    with zeros beforehand (warmMapedFileEnable), and a power failure leaves zeros where data had not
    reached the disk. A block that cannot be read counts as data.
    """
    for start, stop in reversed(list(_extents(descriptor, position))):
        while stop > start:
            begin = max(start, stop - _READ_AT_ONCE)
            data, unreadable = files.read_around(descriptor, stop - begin, begin)
            end = begin + len(data.rstrip(b"\0"))
            if unreadable:
                end = max(end, min(unreadable[-1] + files.BLOCK, stop))
            if end > begin:
                return end
            stop = begin
    return position


class ReadFailures:
    """Counts and logs failed reads of the disk."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, path: Path, offset: int, error: OSError) -> None:
        """Count a failed read at an offset, which is a physical offset for the commit log."""
        self.count += 1
        log.error(
            "%s cannot be read at offset %d: %s; the disk has failed there",
            path,
            offset,
            error.strerror,
            extra={"failure": f"reads of {path}"},
        )


class MappedFile:
    """One file of a log. It has its full length, as a hole, from its creation."""

    __slots__ = ("_map", "_view", "descriptor", "end", "failures", "path", "size", "start")

    def __init__(
        self, path: Path, start: int, size: int, failures: ReadFailures | None = None
    ) -> None:
        """``failures`` counts the failed reads."""
        self.failures = failures or ReadFailures()
        self.path = path
        self.start = start
        self.end = start + size
        self.size = size
        self.descriptor = _open_sized(path, size)
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None

    @property
    def view(self) -> memoryview:
        """The whole file as memory. Only parts that `admit` has read into memory may be accessed.

        Elsewhere a failing disk ends the process with SIGBUS. Slices stay valid after the file is
        closed or deleted.
        """
        if self._view is None:
            self._view = memoryview(self._mapped())
        return self._view

    def _mapped(self) -> mmap.mmap:
        if self._map is None:
            self._map = files.map_to_read(self.descriptor, self.size)
        return self._map

    def admit(self, position: int, size: int) -> bool:
        """Read a part of the file into memory, so that it may be accessed in `view`.

        Returns False if the disk cannot read it. Waits for the disk if the part is not in memory.
        """
        try:
            files.populate(self._mapped(), position, size)
        except OSError as error:
            if error.errno == errno.EFAULT:
                return False
            try:  # an older kernel
                return len(files.read_all(self.descriptor, size, position)) == size
            except OSError:
                return False
        return True

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write all of data at a position in the file. Raises OSError, after which a part may be
        written.
        """
        files.write_all(self.descriptor, data, position)

    def read(self, position: int, size: int) -> bytes:
        """Read with a system call, so that other threads run while the disk works.

        Raises OSError, also if the file is closed meanwhile, because its descriptor may then
        already belong to another file.
        """
        try:
            data = files.read_all(self.descriptor, size, position)
        except OSError as error:
            raise self._failed(error, position) from None
        if self.descriptor < 0:
            raise OSError(errno.EBADF, "closed while it was read", str(self.path))
        return data

    def _failed(self, error: OSError, position: int) -> OSError:
        if error.errno in files.UNREADABLE:
            self.failures.note(self.path, self.start + position, error)
        return OSError(error.errno, error.strerror, str(self.path))

    def read_part(self, position: int, size: int) -> bytes:
        """As `read`, but ends before the first block that cannot be read. Empty if that is the
        first one.
        """
        try:
            return files.pread(self.descriptor, size, position)
        except OSError as error:
            failed = self._failed(error, position)
            if failed.errno in files.UNREADABLE:
                return b""
            raise failed from None

    def read_if_in_memory(self, position: int, size: int) -> bytes | None:
        """Read without waiting for a disk; None if a part is not in memory."""
        buffer = bytearray(size)
        try:
            count = files.preadv(self.descriptor, (buffer,), position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            # tmpfs does not support the flag: it is always in memory
            if error.errno != errno.EOPNOTSUPP:
                return None
            return self.read(position, size)
        return bytes(buffer) if count == size else None

    def is_in_memory(self, position: int) -> bool:
        """Whether a byte can be read without waiting for a disk.

        Also true if the file system cannot tell, and for a closed file.
        """
        try:
            files.preadv(self.descriptor, (bytearray(1),), position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def begin_reading(self, position: int, size: int) -> None:
        """Ask the kernel to read a part of the file into memory in the background. Raises
        OSError."""
        files.posix_fadvise(self.descriptor, position, size, os.POSIX_FADV_WILLNEED)

    def read_into(self, buffer: memoryview, position: int) -> bool:
        """Fill a buffer from the file. Made for a thread: it releases the GIL.

        Returns False if the disk cannot read all of it. Raises OSError for other errors.
        """
        try:
            return files.preadv(self.descriptor, (buffer,), position) == len(buffer)
        except OSError as error:
            if error.errno in files.UNREADABLE:
                return False
            raise

    def failed_blocks(self, position: int, size: int) -> list[int]:
        """Return the positions of the unreadable blocks of a part. Raises OSError."""
        _, failed = files.read_around(self.descriptor, size, position)
        if failed:
            self.failures.note(
                self.path, self.start + failed[0], OSError(errno.EIO, os.strerror(errno.EIO))
            )
        return failed

    def clear_after(self, position: int) -> None:
        """Overwrite everything from a position on with zeros. Raises OSError.

        The file keeps its length all the time: a file that a crash or a failing disk left shorter
        would look like a file of a store with smaller files, which no start accepts.
        """
        begin, end = position, data_end(self.descriptor, position)
        try:
            while position < end:
                length = min(_READ_AT_ONCE, end - position)
                self.write(bytes(length), position)
                position += length
        except OSError as error:
            if error.errno not in files.FULL:
                raise
            self.clear_by_hole(begin)

    def clear_by_hole(self, position: int) -> None:
        """As `clear_after`, by a hole, on a full disk that cannot write zeros. The file is shorter
        for a moment. Raises OSError.
        """
        files.ftruncate(self.descriptor, position)
        files.ftruncate(self.descriptor, self.size)

    def sync(self) -> None:
        """Wait until the written bytes are on the disk. Raises OSError."""
        files.fdatasync(self.descriptor)

    def modified_at(self) -> float:
        """The time of the last write, in seconds since 1970."""
        return files.fstat(self.descriptor).st_mtime

    def close(self) -> None:
        """Close the file. Idempotent. The mapping is released with its last slice."""
        self._view = None
        self._map = None
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            files.close(descriptor)

    def delete(self) -> None:
        """Delete the file and close it. Raises OSError; the file then stays open."""
        files.remove(self.path)
        self.close()


class DescriptorCache:
    """The open files of consume queues: a limited number; the least recently used is closed first.

    A broker with ten thousand topics has more queue files than a process may hold open.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._open: OrderedDict[str, int] = OrderedDict()  # in the order of use, newest last

    def open(self, path: str | Path, size: int | None = None) -> int:
        """The descriptor of a file, valid until the next call.

        ``size`` creates a missing file with that length; without it FileNotFoundError is raised.
        """
        path = os.fspath(path)
        descriptor = self._open.pop(path, None)
        if descriptor is None:
            if size is None:
                descriptor = files.open(path, os.O_RDWR | os.O_CLOEXEC)
            else:
                descriptor = _open_sized(path, size)
            if len(self._open) >= self._capacity:
                files.close(self._open.popitem(last=False)[1])
        self._open[path] = descriptor
        return descriptor

    def forget(self, path: str | Path) -> None:
        """Close a file that is about to be deleted."""
        descriptor = self._open.pop(os.fspath(path), None)
        if descriptor is not None:
            files.close(descriptor)

    def close(self) -> None:
        for descriptor in self._open.values():
            files.close(descriptor)
        self._open.clear()


def _open_sized(path: str | Path, size: int) -> int:
    """Open a file and set its size; creates a missing file. Raises OSError with nothing open."""
    descriptor = files.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _CREATED_MODE)
    try:
        if files.fstat(descriptor).st_size != size:
            files.ftruncate(descriptor, size)
    except OSError:
        files.close(descriptor)
        raise
    return descriptor


# Bytes that are read at once: at first, and at most when reading continues there.
_MIN_AHEAD = 4096
_MAX_AHEAD = 1 << 20

_NO_WINDOW = memoryview(b"")


class MappedSource(ABC):
    """A file of a store, of ``size`` bytes."""

    size: int

    def __init__(self) -> None:
        self._window = _NO_WINDOW, 0
        self._ahead = _MIN_AHEAD

    @abstractmethod
    def read(self, position: int, size: int) -> bytes:
        """Return the bytes from a position on, as many as exist. Raises OSError."""

    @property
    @abstractmethod
    def data_end(self) -> int:
        """The position after the last byte that is not zero. Raises OSError."""

    def window(self, position: int, size: int) -> tuple[memoryview, int]:
        """Return a part in memory and its position in the file: it has at least ``size`` bytes from
        ``position`` on, or all that exist. It is larger, up to a megabyte, while reading is
        sequential. Raises as `read`.
        """
        view, begin = self._window
        least = min(size, self.size - position)
        if begin <= position and position + least <= begin + len(view):
            return self._window
        if begin <= position <= begin + len(view):
            self._ahead = min(2 * self._ahead, _MAX_AHEAD)
        else:
            self._ahead = _MIN_AHEAD
        try:
            data = self.read(position, max(least, self._ahead))
        except OSError as error:  # perhaps in the part that is read ahead
            if error.errno not in files.UNREADABLE or least >= self._ahead:
                raise
            data = self.read(position, least)
            self._ahead = _MIN_AHEAD
        if not view:
            self._window_opened()
        self._window = memoryview(data), position
        return self._window

    def _window_opened(self) -> None:  # noqa: B027
        """Called before the file has a part in memory, if it had none."""

    def forget_window(self) -> None:
        """Drop the window. Its memory is freed when no caller uses it any more."""
        self._window = _NO_WINDOW, 0

    def find(self, part: bytes, position: int) -> int:
        """The next position of bytes that do not end in zeros, -1 if there is none.

        Skips unreadable blocks. Raises as `read` for other errors.
        """
        end = self.data_end
        while position + len(part) <= end:
            try:
                view, begin = self.window(position, len(part))
            except OSError as error:
                if error.errno not in files.UNREADABLE:
                    raise
                position += files.BLOCK - position % files.BLOCK
                continue
            content = view.obj
            assert isinstance(content, bytes)
            stop = min(len(content), end - begin)
            place = content.find(part, position - begin, stop)
            if place >= 0:
                return begin + place
            position = begin + stop - len(part) + 1
        return -1


class LogReader(MappedSource):
    """A file of an open log, for one reader. Later writes may be invisible."""

    def __init__(self, file: MappedFile) -> None:
        super().__init__()
        self._file = file
        self.start = file.start
        self.end = file.end
        self.size = file.size

    @property
    def path(self) -> Path:
        return self._file.path

    def read(self, position: int, size: int) -> bytes:
        return self._file.read(position, size)

    def read_part(self, position: int, size: int) -> bytes:
        return self._file.read_part(position, size)

    @cached_property
    def data_end(self) -> int:
        return data_end(self._file.descriptor)
