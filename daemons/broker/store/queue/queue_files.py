"""The files of one queue, with a fixed number of entries each.

The name of a file is the byte offset of its first entry; entries are addressed by index.
"""

from bisect import bisect_right
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreLoadError
from mq.daemons.broker.store.log.mapped_file import DescriptorCache, data_end

_ENTRY_SIZE = layout.ENTRY_SIZE


class QueueFiles:
    """The files in ``folder``, each of ``size`` bytes, a multiple of 20."""

    __slots__ = ("_base", "_descriptors", "_last_path", "_size", "_starts", "renamed")

    def __init__(self, folder: Path | str, size: int, descriptors: DescriptorCache) -> None:
        # str and not Path: a start opens the files of ten thousand queues
        self._base = f"{folder}/"
        self._size = size
        self._descriptors = descriptors
        self._starts: list[int] = []  # sorted byte offsets of the existing files
        self._last_path = -1, ""  # start and path of the file used last: each read needs a path
        # Whether files were created or deleted since the folder was last passed to an fsync.
        self.renamed = False

    def load(self) -> None:
        """Find the files. Raises StoreLoadError if they were created with another size."""
        self._starts = sorted(
            offset
            for name in files.listdir(self._base)
            if (offset := layout.file_offset(name)) is not None and offset % _ENTRY_SIZE == 0
        )
        for start in self._starts[:-1]:
            self._check_size(start, files.size(self._path(start)))
        if self._starts:  # the end of the last file is read next
            last = self._descriptors.open(self._path(self._starts[-1]))
            self._check_size(self._starts[-1], files.fstat(last).st_size)

    def _check_size(self, start: int, size: int) -> None:
        # A shorter file is damaged or still growing; its entries are at the right offsets.
        if size > self._size or start % self._size:
            raise StoreLoadError(
                f"{self._path(start)} of {size} bytes does not fit mappedFileSizeConsumeQueue, "
                f"which is {self._size}: start with the size with which the store was created"
            )

    @property
    def folder(self) -> Path:
        return Path(self._base)

    @property
    def folders(self) -> list[str]:
        """The folders of the queue, of its topic and of all topics, which hold the names of the
        files.
        """
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
        """The first index of the first file, None without files."""
        return self._starts[0] // _ENTRY_SIZE if self._starts else None

    @property
    def last(self) -> int | None:
        """The first index of the last file, None without files."""
        return self._starts[-1] // _ENTRY_SIZE if self._starts else None

    def file_start(self, index: int) -> int:
        """The first index of the file that holds, or would hold, an index."""
        return index - index % (self._size // _ENTRY_SIZE)

    def file_end(self, index: int) -> int:
        """The first index after the file that holds an index."""
        per_file = self._size // _ENTRY_SIZE
        return index - index % per_file + per_file

    def sync_paths(self, since: int) -> list[str]:
        """The files that hold entries from an index on."""
        first = self.file_start(since) * _ENTRY_SIZE
        return [self._path(start) for start in self._starts if start >= first]

    # reading and writing ----------------------------------------------------------------------

    def read(self, index: int, count: int) -> bytes:
        """Read up to ``count`` entries: those that exist and are in the same file."""
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
        if 0 < len(data) < _ENTRY_SIZE:  # the read ended before a block that may be unreadable
            data = files.read_all(descriptor, size, within)
        return data if len(data) == size else data[: len(data) - len(data) % _ENTRY_SIZE]

    def write(self, index: int, entries: bytes) -> int:
        """Write entries from an index on, as many as fit into the file, which is created if needed;
        return their number. Raises OSError.
        """
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
        """Replace an entry of an existing file. Raises OSError."""
        position = index * _ENTRY_SIZE
        start = self._starts[bisect_right(self._starts, position) - 1]
        descriptor = self._descriptors.open(self._path(start))
        files.write_all(descriptor, entry, position - start)

    # taking away ------------------------------------------------------------------------------

    def remove_from(self, index: int) -> None:
        """Delete the files that start at or after an index."""
        while self._starts and self._starts[-1] // _ENTRY_SIZE >= index:
            self._remove(self._starts[-1])

    def remove_before(self, index: int) -> int:
        """Delete files whose entries are all before an index, except the last; return their
        number."""
        removed = 0
        while len(self._starts) > 1 and self._starts[1] <= index * _ENTRY_SIZE:
            self._remove(self._starts[0])
            removed += 1
        return removed

    def remove_all(self) -> None:
        """Delete the files, and the folder with everything in it."""
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
        """Whether the last file has nonzero bytes from an index on."""
        if not self._starts:
            return False
        position = index * _ENTRY_SIZE - self._starts[-1]
        return data_end(self._descriptors.open(self._path(self._starts[-1])), position) > position

    def clear_from(self, index: int) -> None:
        """Fill the last file with zeros from an index on."""
        if self._starts:
            descriptor = self._descriptors.open(self._path(self._starts[-1]))
            files.ftruncate(descriptor, index * _ENTRY_SIZE - self._starts[-1])
            files.ftruncate(descriptor, self._size)


_FIRST_ENTRIES = 200  # 4 kB, a page
_ZEROS = bytes(_FIRST_ENTRIES * _ENTRY_SIZE)


def find_end(files: QueueFiles) -> tuple[int, bytes]:
    """Return one past the index of the last entry, in the last file that starts with an entry, and
    that entry; 0 and b"" without entries. Later files are deleted.

    Most queues end among the first entries of their last file, which are read at once; for the
    others, the end is found by bisection. Raises OSError.
    """
    while (start := files.last) is not None:
        high = files.file_end(start)
        low, last = _last_of_first(files, start)
        if low == start + _FIRST_ENTRIES:
            while low < high:
                middle = (low + high) // 2
                raw = files.read(middle, 1)
                if _is_entry(raw):
                    low, last = middle + 1, raw
                else:
                    high = middle
        if low > start:
            return low, last
        files.remove_from(start)
    return 0, b""


def _last_of_first(files: QueueFiles, start: int) -> tuple[int, bytes]:
    """One past the last valid entry among the first of a file, and that entry."""
    raw = files.read(start, _FIRST_ENTRIES)
    for number in range(-(-_end_of_data(raw) // _ENTRY_SIZE), 0, -1):
        entry = raw[(number - 1) * _ENTRY_SIZE : number * _ENTRY_SIZE]
        if _is_entry(entry):
            return start + number, entry
    return start, b""


def _is_entry(raw: bytes) -> bool:
    if len(raw) < _ENTRY_SIZE:
        return False
    physical, size, _ = layout.ENTRY.unpack(raw)
    return bool(physical >= 0 and size > 0)


def _end_of_data(raw: bytes) -> int:
    """The length of up to a page of bytes without the zeros at its end. Bisection takes half the
    time of `rstrip`, for each of the ten thousand queues of a start.
    """
    low, high = 0, len(raw)
    while low < high:
        middle = (low + high) // 2
        if raw[middle:high] == _ZEROS[: high - middle]:
            high = middle
        else:
            low = middle + 1
    return high
