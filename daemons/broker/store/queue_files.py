"""The files of one queue: its entries on the disk, so many to a file.

A file's name is the offset in bytes of its first entry; entries are asked for by their index.
"""

from bisect import bisect_right
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreLoadError
from mq.daemons.broker.store.mapped_file import DescriptorCache, data_end

_ENTRY_SIZE = layout.ENTRY_SIZE


class QueueFiles:
    """In ``folder``; each is of ``size`` bytes, a multiple of 20."""

    __slots__ = ("_base", "_descriptors", "_last_path", "_size", "_starts", "renamed")

    def __init__(self, folder: Path | str, size: int, descriptors: DescriptorCache) -> None:
        self._base = f"{folder}/"  # a start opens each file of ten thousand queues: no Path
        self._size = size
        self._descriptors = descriptors
        self._starts: list[int] = []  # byte offsets of the files there are, sorted
        self._last_path = -1, ""  # where a file begins, and its path: each read needs one
        #: Files were begun or deleted since the folder was last given to be fsynced.
        self.renamed = False

    def load(self) -> None:
        """Find the files. Raises StoreLoadError if they were made with another size."""
        self._starts = sorted(
            offset
            for name in files.listdir(self._base)
            if (offset := layout.file_offset(name)) is not None and offset % _ENTRY_SIZE == 0
        )
        for start in self._starts[:-1]:
            self._check_size(start, files.size(self._path(start)))
        if self._starts:  # what the last one ends with is read next
            last = self._descriptors.open(self._path(self._starts[-1]))
            self._check_size(self._starts[-1], files.fstat(last).st_size)

    def _check_size(self, start: int, size: int) -> None:
        # A shorter file is damage, or grows: what it holds is where it is looked for.
        if size > self._size or start % self._size:
            raise StoreLoadError(
                f"{self._path(start)} of {size} bytes does not fit mappedFileSizeConsumeQueue, "
                f"which is {self._size}: start with the size that the store was made with"
            )

    @property
    def folder(self) -> Path:
        return Path(self._base)

    @property
    def folders(self) -> list[str]:
        """That of the queue, of its topic and of all topics: what holds the names of files."""
        queue = self._base[:-1]
        topic = queue.rpartition("/")[0]
        return [queue, topic, topic.rpartition("/")[0]]

    def _path(self, start: int) -> str:
        known, path = self._last_path
        if known != start:
            path = self._base + layout.file_name(start)
            self._last_path = start, path
        return path

    # where files begin and end ----------------------------------------------------------------

    @property
    def first(self) -> int | None:
        """The index that the first file begins with, None if there is none."""
        return self._starts[0] // _ENTRY_SIZE if self._starts else None

    @property
    def last(self) -> int | None:
        """That of the last file."""
        return self._starts[-1] // _ENTRY_SIZE if self._starts else None

    def begin_of(self, index: int) -> int:
        """The first index of the file that an index is in, or would be."""
        return index - index % (self._size // _ENTRY_SIZE)

    def behind(self, index: int) -> int:
        """The first index of the file behind the one that an index is in."""
        per_file = self._size // _ENTRY_SIZE
        return index - index % per_file + per_file

    def sync_paths(self, since: int) -> list[str]:
        """The files that hold entries from an index on."""
        first = self.begin_of(since) * _ENTRY_SIZE
        return [self._path(start) for start in self._starts if start >= first]

    # reading and writing ----------------------------------------------------------------------

    def read(self, index: int, count: int) -> bytes:
        """Up to so many entries: those that are there and in the same file."""
        position = index * _ENTRY_SIZE
        number = bisect_right(self._starts, position) - 1
        if number < 0:
            return b""
        start = self._starts[number]
        within = position - start
        size = min(count * _ENTRY_SIZE, self._size - within)
        if size <= 0:
            return b""
        try:
            descriptor = self._descriptors.open(self._path(start))
        except FileNotFoundError:
            return b""
        data = files.pread(descriptor, size, within)
        if 0 < len(data) < _ENTRY_SIZE:  # it ended before a block that may be unreadable
            data = files.read_all(descriptor, size, within)
        return data if len(data) == size else data[: len(data) - len(data) % _ENTRY_SIZE]

    def write(self, index: int, entries: bytes) -> int:
        """Write entries from an index on, as many as the file has room for, which may have to be
        made; returns how many. Raises OSError."""
        position = index * _ENTRY_SIZE
        start = position - position % self._size
        if not self._starts or self._starts[-1] != start:
            files.make_folders(self.folder)
            self._starts.append(start)
            self.renamed = True
        path = self._path(start)
        descriptor = self._descriptors.open(path, self._size)
        data = entries[: start + self._size - position]
        written = files.pwrite(descriptor, data, position - start) // _ENTRY_SIZE
        if written == 0:
            raise OSError(f"{path}: no room for an entry")
        return written

    def mend(self, index: int, entry: bytes) -> None:
        """Replace an entry of a file there is. Raises OSError."""
        position = index * _ENTRY_SIZE
        start = self._starts[bisect_right(self._starts, position) - 1]
        descriptor = self._descriptors.open(self._path(start))
        files.write_all(descriptor, entry, position - start)

    # taking away ------------------------------------------------------------------------------

    def remove_from(self, index: int) -> None:
        """Delete the files that begin with an index or behind it."""
        while self._starts and self._starts[-1] // _ENTRY_SIZE >= index:
            self._remove(self._starts[-1])

    def remove_before(self, index: int) -> int:
        """Delete files, but never the last, whose entries are all before an index; say how many."""
        removed = 0
        while len(self._starts) > 1 and self._starts[1] <= index * _ENTRY_SIZE:
            self._remove(self._starts[0])
            removed += 1
        return removed

    def remove_all(self) -> None:
        """Delete the files, and the folder with what else is in it."""
        for start in list(self._starts):
            self._remove(start)
        files.remove_tree(self.folder)

    def _remove(self, start: int) -> None:
        path = self._path(start)
        self._descriptors.forget(path)
        files.remove(path)
        self._starts.remove(start)
        self.renamed = True

    def has_data_from(self, index: int) -> bool:
        """Whether the last file has more than zeros from an index on."""
        if not self._starts:
            return False
        position = index * _ENTRY_SIZE - self._starts[-1]
        return data_end(self._descriptors.open(self._path(self._starts[-1])), position) > position

    def clear_from(self, index: int) -> None:
        """Leave zeros in the last file from an index on."""
        if self._starts:
            descriptor = self._descriptors.open(self._path(self._starts[-1]))
            files.ftruncate(descriptor, index * _ENTRY_SIZE - self._starts[-1])
            files.ftruncate(descriptor, self._size)
