"""The files of one kind of a store, as one sequence of bytes that grows at its end.

A file is full when it has reached its size: the record that reaches it is complete in it, and the
next one begins another file (MsgFileStore.appendMsg). A file's length is that of the written data;
nothing is preallocated, because Java takes a file's length for the end of its data.
"""

import errno
import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from mq.client.machine import files
from mq.daemons.tube.broker.store.layout import file_name

_MODE = 0o644


class Segment:
    """One file. ``readers`` are reads and fsyncs in threads, during which it is not deleted."""

    __slots__ = ("descriptor", "end", "is_named", "path", "readers", "start", "synced")

    def __init__(self, path: Path, start: int, end: int, descriptor: int, synced: int) -> None:
        self.path = path
        self.start = start
        self.end = end  # of the written data
        self.synced = synced  # of the data that is known to be on the disk
        self.descriptor = descriptor
        self.is_named = True  # whether its name is on the disk
        self.readers = 0

    @property
    def is_synced(self) -> bool:
        return self.is_named and self.synced >= self.end

    def sync(self) -> None:
        """Wait until the written data and the file's name are on the disk. Raises OSError."""
        files.fdatasync(self.descriptor)
        if not self.is_named:
            files.sync_folder(self.path.parent)
            self.is_named = True

    def modified_ms(self) -> int:
        """Return the time of its last write, in ms since 1970."""
        return int(files.fstat(self.descriptor).st_mtime * 1000)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            files.close(descriptor)


class Segments:
    """The files of a kind, in order; there is always one. ``end`` is that of the written data."""

    def __init__(self, folder: Path, suffix: str, size: int, segments: list[Segment]) -> None:
        self.folder = folder
        self.suffix = suffix
        self.size = size
        self.segments = segments
        self._starts = [one.start for one in segments]

    @property
    def start(self) -> int:
        return self._starts[0]

    @property
    def end(self) -> int:
        return self.segments[-1].end

    @property
    def is_full(self) -> bool:
        """Whether the next record begins another file."""
        last = self.segments[-1]
        return last.end - last.start >= self.size

    def at(self, offset: int) -> Segment | None:
        """Return the file that contains a byte; None before the first file or beyond the end."""
        number = bisect_right(self._starts, offset) - 1
        if number < 0:
            return None
        segment = self.segments[number]
        return segment if offset < segment.end else None

    def write(self, data: bytes) -> None:
        """Append data; all of it goes to the last file.

        Raises OSError. Then the file has its previous length, or, if truncating fails, too, is
        longer: then the error is `Unrestored`.
        """
        last = self.segments[-1]
        position = last.end - last.start
        try:
            files.write_all(last.descriptor, data, position)
        except OSError as error:
            self._restore(last, position, error)
            raise
        last.end += len(data)

    def take_back(self, end: int) -> None:
        """Truncate the last file at an offset. Raises Unrestored."""
        last = self.segments[-1]
        self._restore(last, end - last.start, None)
        last.end = end

    def _restore(self, segment: Segment, length: int, error: OSError | None) -> None:
        try:
            files.ftruncate(segment.descriptor, length)
        except OSError as second:
            raise Unrestored(
                second.errno, f"{second.strerror}, after {error}" if error else second.strerror,
                str(segment.path),
            ) from second  # fmt: skip

    def roll(self) -> None:
        """Begin another file at the end. Raises OSError, with nothing changed.

        Nothing is fsynced here, on the event loop: the next flush does that, of the full file, of
        the new one and of its name, and nothing in either is acknowledged before. A recovery
        quarantines data after a gap from a power cut.
        """
        last = self.segments[-1]
        self.segments.append(_made(self.folder, self.suffix, last.end))
        self._starts.append(last.end)

    def unsynced(self) -> list[tuple[Segment, int]]:
        """Return the files that may not be on the disk, in their order, with their present ends.

        A flush covers all of these or fails, so they are the last ones.
        """
        found = []
        for one in reversed(self.segments):
            if one.is_synced:
                break
            found.append((one, one.end))
        return found[::-1]

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes from an offset on, up to the size or the end of the file of the first byte.

        Raises OSError.
        """
        segment = self.at(offset)
        if segment is None:
            return b""
        size = min(size, segment.end - offset)
        return files.pread(segment.descriptor, size, offset - segment.start)

    def read_at_once(self, offset: int, buffer: memoryview) -> int:
        """Read the same into a buffer, without waiting for a disk; return the number of bytes.

        Raises OSError, BlockingIOError if the data is not in memory.
        """
        segment = self.at(offset)
        if segment is None:
            return 0
        size = min(len(buffer), segment.end - offset)
        position = offset - segment.start
        try:
            count = files.preadv(segment.descriptor, (buffer[:size],), position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
            count = files.preadv(segment.descriptor, (buffer[:size],), position)
        if count < size:
            raise BlockingIOError(errno.EAGAIN, "not all of it is in memory")
        return count

    def bytes(self) -> int:
        return self.end - self.start

    def snapshot(self) -> "Segments":
        """Return the same files, for reads in a thread; it does not change with the original."""
        return Segments(self.folder, self.suffix, self.size, list(self.segments))

    def detach_first(self) -> Segment:
        """Remove the oldest file for its deletion; it is open."""
        del self._starts[0]
        return self.segments.pop(0)

    def attach_first(self, segment: Segment) -> None:
        """Put it back if it could not be deleted."""
        self._starts.insert(0, segment.start)
        self.segments.insert(0, segment)

    def close(self) -> None:
        for segment in self.segments:
            segment.close()


class Unrestored(OSError):
    """A write failed, and the file could not be truncated to its former length."""


def create(folder: Path, suffix: str, start: int) -> Segment:
    """Create an empty file with its name on the disk. Raises OSError without leaving a file."""
    segment = _made(folder, suffix, start)
    try:
        segment.sync()
    except OSError:
        segment.close()
        files.remove(segment.path)
        raise
    return segment


def _made(folder: Path, suffix: str, start: int) -> Segment:
    path = folder / file_name(start, suffix)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    segment = Segment(path, start, start, files.open(path, flags, _MODE), start)
    segment.is_named = False
    return segment


def found(folder: Path, suffix: str) -> Iterator[Segment]:
    """Yield the files of a kind in a folder, opened, by their offsets. Raises OSError."""
    named = []
    for path in files.children(folder):
        name = path.name.removesuffix(suffix)
        if path.name.endswith(suffix) and name.isascii() and name.isdigit():
            named.append((int(name), path))
    for start, path in sorted(named):
        descriptor = files.open(path, os.O_RDWR | os.O_CLOEXEC)
        end = start + files.fstat(descriptor).st_size
        yield Segment(path, start, end, descriptor, end)
