"""Extensions of consume queues: data about a message that does not fit in its queue entry.

An entry whose tags code is an address has a unit here, with the real tags code, the store
timestamp, and a bit map of the groups whose filter the message matched when it was stored. Units
are only added; a unit whose entry was removed stays, unreferenced. New units are kept in memory and
written to the file before the entries that refer to them. Entries that a start rebuilds from the
log get the address of their unit back if it still exists; otherwise they have plain tags codes,
which work as well but are slower to filter.

Source: ConsumeQueueExt of Java 4.9.8.
"""

import logging
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreLoadError
from mq.daemons.broker.store.log.mapped_file import DescriptorCache

log = logging.getLogger(__name__)

_START = layout.EXTENSION_START
_END = layout.SHORT.pack(-1)
_GUESS = 64  # bytes read first for a unit: most have a bit map of 112 bits


class Unit(NamedTuple):
    """The extended data of a message; an empty bit map has no information."""

    tags_code: int
    store_timestamp: int
    bit_map: bytes


class QueueExtension:
    """The extension of one queue, in files of ``file_size`` bytes in ``folder``."""

    __slots__ = (
        "_cut",
        "_descriptors",
        "_end",
        "_file_size",
        "_files",
        "_folder",
        "_persisted",
        "_tail",
    )

    def __init__(self, folder: Path, file_size: int, descriptors: DescriptorCache) -> None:
        self._folder = folder
        self._file_size = file_size
        self._descriptors = descriptors
        self._files: list[int] = []
        self._persisted = 0  # bytes before it are in files, the others in _tail
        self._end = 0
        self._tail = bytearray()
        self._cut: tuple[int, bytes] = (0, b"")  # during recovery: first index, entries

    def load(self) -> None:
        """Find the files and the end of their units.

        Raises StoreLoadError if they were created with another size.
        """
        self._files = sorted(
            offset
            for name in files.listdir(self._folder)
            if (offset := layout.file_offset(name)) is not None
        )
        for start in self._files:
            path = self._folder / layout.file_name(start)
            if start % self._file_size or files.size(path) > self._file_size:
                raise StoreLoadError(
                    f"{path} does not fit mappedFileSizeConsumeQueueExt, which is "
                    f"{self._file_size}: start with the size with which the store was created"
                )
        if self._files:
            last = self._files[-1]
            content = files.read_bytes(self._folder / layout.file_name(last))
            self._persisted = self._end = last + _end_of_units(content)

    # reading --------------------------------------------------------------------------------

    def unit(self, address: int) -> Unit | None:
        """The unit at an address, or None if there is none, or none any more."""
        offset = address - layout.EXTENSION_BASE
        if not layout.is_extension_address(address) or not 0 <= offset < self._end:
            return None
        data = self._read(offset, _GUESS)
        if len(data) < _START.size:
            return None
        size, code, timestamp, map_size = _START.unpack_from(data)
        if size < _START.size or size != _START.size + map_size:
            return None
        if size > len(data):
            data = self._read(offset, size)
        bit_map = data[_START.size : size]
        return Unit(code, timestamp, bit_map) if len(bit_map) == map_size else None

    def _read(self, offset: int, size: int) -> bytes:
        if offset >= self._persisted:
            at = offset - self._persisted
            return bytes(self._tail[at : at + size])
        number = bisect_right(self._files, offset) - 1
        if number < 0:
            return b""
        start = self._files[number]
        try:
            descriptor = self._descriptors.open(self._folder / layout.file_name(start))
        except FileNotFoundError:
            return b""
        end = min(start + self._file_size, self._persisted)
        return files.pread(descriptor, max(0, min(size, end - offset)), offset - start)

    def resolve(self, entries: bytes, unknown: int) -> bytes:
        """Return entries in which real tags codes replace addresses.

        An address without a unit becomes the code ``unknown``: a filter by tags must let such a
        message through, because the consumer checks the tag itself.
        """
        resolved = bytearray(entries)
        for at in range(0, len(entries), layout.ENTRY_SIZE):
            physical, size, code = layout.ENTRY.unpack_from(resolved, at)
            if layout.is_extension_address(code):
                unit = self.unit(code)
                code = unknown if unit is None else unit.tags_code
                layout.ENTRY.pack_into(resolved, at, physical, size, code)
        return bytes(resolved)

    # writing --------------------------------------------------------------------------------

    def append(self, unit: Unit) -> int | None:
        """Add a unit in memory; returns its address, or None if it is too long."""
        size = _START.size + len(unit.bit_map)
        if size > layout.EXTENSION_LARGEST or self._end + size > layout.EXTENSION_END:
            return None
        room = self._file_size - self._end % self._file_size
        if size > room - layout.EXTENSION_ROOM:
            self._tail += _END.ljust(room, b"\0")
            self._end += room
        address = self._end + layout.EXTENSION_BASE
        self._tail += _START.pack(size, unit.tags_code, unit.store_timestamp, len(unit.bit_map))
        self._tail += unit.bit_map
        self._end += size
        return address

    def remember(self, index: int, entries: bytes) -> None:
        """Keep entries, from an index on, that recovery drops and may rebuild."""
        if not self._cut[1]:
            self._cut = index, entries

    def restored(self, index: int, entry: bytes) -> bytes:
        """Return a rebuilt entry with the address of its unit, if that still exists."""
        first, entries = self._cut
        at = (index - first) * layout.ENTRY_SIZE
        if not 0 <= at < len(entries):
            return entry
        old = layout.ENTRY.unpack_from(entries, at)
        physical, size, code = layout.ENTRY.unpack(entry)
        unit = self.unit(old[2])
        if old[:2] != (physical, size) or unit is None or unit.tags_code != code:
            return entry
        return entries[at : at + layout.ENTRY_SIZE]

    def start_after(self, address: int) -> None:
        """Add no unit at or before an address, even if the one there was lost."""
        offset = address - layout.EXTENSION_BASE
        if offset >= self._end:
            self._persisted = self._end = offset - offset % self._file_size + self._file_size

    def persist(self) -> None:
        """Write the units to the file. Raises OSError; no unit is lost then."""
        self._cut = (0, b"")  # recovery is over
        while self._tail:
            start = self._persisted - self._persisted % self._file_size
            count = min(start + self._file_size - self._persisted, len(self._tail))
            path = self._folder / layout.file_name(start)
            if not self._files or self._files[-1] != start:
                files.make_folders(self._folder)
                self._files.append(start)
            descriptor = self._descriptors.open(path, self._file_size)
            written = files.pwrite(descriptor, self._tail[:count], self._persisted - start)
            if written == 0:
                raise OSError(f"{path}: no room for a unit")
            del self._tail[:written]
            self._persisted += written

    def sync_paths(self) -> list[str]:
        """The files and folders that may have changed, which a checkpoint has to fsync."""
        grown = [self._folder / layout.file_name(start) for start in self._files[-2:]]
        folders = [self._folder, self._folder.parent, self._folder.parent.parent]
        return [str(path) for path in grown + folders]

    # cutting --------------------------------------------------------------------------------

    def remove_files_before(self, address: int) -> int:
        """Delete files whose units are all before an address, except the last; return their
        number."""
        offset = address - layout.EXTENSION_BASE
        removed = 0
        while len(self._files) > 1 and self._files[1] <= offset:
            self._remove_file(self._files[0])
            removed += 1
        return removed

    def _remove_file(self, start: int) -> None:
        path = self._folder / layout.file_name(start)
        self._descriptors.forget(path)
        files.remove(path)
        self._files.remove(start)

    def clear(self) -> None:
        """Delete the files, because the queue was emptied."""
        for start in list(self._files):
            self._remove_file(start)
        files.remove_tree(self._folder)
        self._tail.clear()
        self._cut = (0, b"")
        self._persisted = self._end = 0


def _end_of_units(content: bytes) -> int:
    """One past the last whole unit of a file, or the file's size if the file was ended."""
    at = 0
    while at + _START.size <= len(content):
        size, _, _, map_size = _START.unpack_from(content, at)
        if size == -1:
            return len(content)
        if size < _START.size or size != _START.size + map_size or at + size > len(content):
            break
        at += size
    else:
        if content[at : at + 2] == _END:
            return len(content)
    return at
