"""The key index: finds the messages that have a key (layout.INDEX_*, Java's IndexFile and
IndexService).

A file is a hash table: a slot holds the number of the newest item whose hash falls in it, an item
the number of the previous item of the slot. Items hold a hash and no text, so the caller of a
lookup has to compare the messages found. Item 0 is never used.

Slots and items are written through a mapping, because a put touches two distant places. Their space
is allocated before, so that a full disk is an error here and not a SIGBUS. A file system that
copies on write gives no such guarantee: there the pages of each put are prepared before they are
touched.
"""

import logging
import os
import struct
import time
from collections.abc import Iterator
from mmap import PAGESIZE, mmap
from pathlib import Path

from mq.client.machine import clock, files
from mq.daemons.broker.store import layout
from mq.protocol.native import native
from mq.protocol.tags import java_hash

log = logging.getLogger(__name__)

_HEADER = layout.INDEX_HEADER
_SLOT = layout.INDEX_SLOT
_ITEM = layout.INDEX_ITEM
_SLOTS_AT = _HEADER.size
# Bound to module names, because an attribute lookup costs as much as the arithmetic around it.
_unpack_slot, _pack_slot, _pack_item = _SLOT.unpack_from, _SLOT.pack_into, _ITEM.pack_into
_ALLOCATE = 1024 * 1024  # bytes of items allocated at a time
_MAX_SECONDS = 0x7FFFFFFF
_LAST = 2  # characters at the end of a key that are hashed separately
_STARTS = 256  # size of the cache _starts: hashes of texts without their last characters
_starts: dict[bytes, int] = {}


# An item to put: the hash of a key, and the physical offset of a message that has it. The items of
# a batch are bytes, because the native path creates and reads them in this form.
PUT = struct.Struct(">iq")


def key_hash(topic: str, key: str) -> int:
    """The hash of topic#key as in items: |hashCode|, or 0 for the value without a positive
    counterpart.
    """
    text = f"{topic}#{key}"
    return raw_hash(text.encode()) if text.isascii() else _without_sign(java_hash(text))


def raw_hash(raw: bytes) -> int:
    """The same for topic#key in UTF-8. Raises UnicodeDecodeError if it is not UTF-8."""
    if not raw.isascii() or len(raw) <= _LAST:
        return _without_sign(java_hash(raw.decode()))
    # Unique ids count upwards: the part before the last digits is the same for hundreds of them.
    start = raw[:-_LAST]
    value = _starts.get(start)
    if value is None:
        if len(_starts) >= _STARTS:
            _starts.clear()
        value = _starts[start] = java_hash(start.decode()) * 31**_LAST
    value = (value + 31 * raw[-2] + raw[-1]) & 0xFFFFFFFF
    return value if value < 0x80000000 else _without_sign(value - 0x1_0000_0000)


def _without_sign(hashed: int) -> int:
    value = abs(hashed)
    return value if value <= 0x7FFFFFFF else 0


def _put_each(
    data: mmap, slots: int, count: int, used: int, items: bytes, seconds: int
) -> tuple[int, int]:
    """Write items into a file. ``count`` is the number of the next item, ``used`` the slots in use.

    Returns the new values of both. The native path has the same function (native/src/index.rs).
    """
    position, item_size = _SLOTS_AT + 4 * slots + _ITEM.size * count, _ITEM.size
    for hashed, physical in PUT.iter_unpack(items):
        slot = _SLOTS_AT + 4 * (hashed % slots)
        (previous,) = _unpack_slot(data, slot)
        if not 0 < previous <= count:
            previous = 0
            used += 1
        _pack_item(data, position, hashed, physical, seconds, previous)
        _pack_slot(data, slot, count)
        count += 1
        position += item_size
    return count, used


_put_items = _put_each if native is None else native.put_items


class IndexFile:
    """One file of the index, with ``slots`` slots and room for ``capacity`` - 1 items."""

    def __init__(self, path: Path, slots: int, capacity: int) -> None:
        self.path = path
        self.begin_timestamp = self.end_timestamp = 0
        self.begin_offset = self.end_offset = 0
        self.used_slots = 0
        self.count = 1  # the number of the next item
        self._slots = slots
        self._capacity = capacity
        self._items_at = _HEADER.size + _SLOT.size * slots
        size = self._items_at + _ITEM.size * capacity
        # An existing file is opened even on a full disk, because its keys are still looked up.
        self._allocated = 0
        self._descriptor = files.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if files.fstat(self._descriptor).st_size != size:
                files.ftruncate(self._descriptor, size)
                self._allocated = self._items_at + _ITEM.size
                files.posix_fallocate(self._descriptor, 0, self._allocated)
            self._map = files.map_to_write(self._descriptor, size)
            # Items are written one after another. Without this call, the first write to a page
            # would make megabytes of the hole after it ready at once, while all senders wait.
            files.touch_singly(self._map, self._items_at)
        except OSError:
            files.close(self._descriptor)
            raise
        self._size = size
        self._copies = files.copies_on_write(path)
        self._load()

    def _load(self) -> None:
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            count,
        ) = _HEADER.unpack(files.read_all(self._descriptor, _HEADER.size, 0))
        self.count = min(max(count, 1), self._capacity)

    @property
    def full(self) -> bool:
        return self.room <= 0

    def _item_at(self, number: int) -> int:
        return self._items_at + _ITEM.size * number

    @property
    def room(self) -> int:
        """The number of items that still fit."""
        return self._capacity - self.count

    def put(self, items: bytes, timestamp: int) -> None:
        """Add items of one time, each as PUT; at most ``room`` items.

        Raises OSError if the disk is full.
        """
        # The first item sets the time from which the others count.
        if self.count <= 1 and len(items) > PUT.size:
            self.put(items[: PUT.size], timestamp)
            items = items[PUT.size :]
        first = self.count
        missing = self._item_at(first + len(items) // PUT.size) - self._allocated
        if missing > 0:
            size = min(max(missing, _ALLOCATE), self._size - self._allocated)
            files.posix_fallocate(self._descriptor, self._allocated, size)
            self._allocated += size
        seconds = 0
        if self.begin_timestamp > 0:
            seconds = min(max((timestamp - self.begin_timestamp) // 1000, 0), _MAX_SECONDS)
        self._prepare(items)
        self.count, self.used_slots = _put_items(
            self._map, self._slots, self.count, self.used_slots, items, seconds
        )
        if first <= 1:
            _, self.begin_offset = PUT.unpack_from(items)
            self.begin_timestamp = timestamp
        _, self.end_offset = PUT.unpack_from(items, len(items) - PUT.size)
        self.end_timestamp = timestamp

    def _prepare(self, items: bytes) -> None:
        """Prepare the pages that a put of these items touches. Raises OSError."""
        if not self._copies:
            return
        begin, end = self._item_at(self.count), self._item_at(self.count + len(items) // PUT.size)
        try:
            files.prepare_write(self._map, begin, end - begin)
            for slot in {self._slot_at(hashed) // PAGESIZE for hashed, _ in PUT.iter_unpack(items)}:
                files.prepare_write(self._map, slot * PAGESIZE, PAGESIZE)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def _slot_at(self, hashed: int) -> int:
        return _SLOTS_AT + _SLOT.size * (max(hashed, 0) % self._slots)

    def continue_from(self, previous: "IndexFile") -> None:
        """Start where a full file ended, as Java does."""
        self.begin_offset = self.end_offset = previous.end_offset
        self.begin_timestamp = self.end_timestamp = previous.end_timestamp

    def save_header(self) -> None:
        """Write the counters of `put` into the file. Raises OSError; the header is then outdated,
        and the next start counts the items again.
        """
        header = _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        )
        files.write_all(self._descriptor, header)

    def find(self, hashed: int, begin: int, end: int) -> Iterator[int]:
        """Yield the physical offsets of items with a hash and a time between begin and end (ms,
        precise to a second), newest first. Reads with pread, so that an unreadable page raises
        OSError.
        """
        slot = self._slot_at(hashed)
        (number,) = _SLOT.unpack(files.read_all(self._descriptor, _SLOT.size, slot))
        while 0 < number < self.count:
            item = files.read_all(self._descriptor, _ITEM.size, self._item_at(number))
            found, physical, seconds, previous = _ITEM.unpack(item)
            timestamp = self.begin_timestamp + seconds * 1000
            if timestamp < begin:
                return
            if found == hashed and timestamp <= end:
                yield physical
            if previous >= number:  # a chain only leads to older items: this one is damaged
                return
            number = previous

    def cut(self, physical: int) -> int:
        """Remove the items of messages at or after a physical offset; return their number."""
        dropped = -self._find_uncounted()
        while self.count > 1:
            hashed, offset, _, previous = _ITEM.unpack_from(
                self._map, self._item_at(self.count - 1)
            )
            if offset < physical:
                break
            slot = self._slot_at(hashed)
            if self._copies:
                files.prepare_write(self._map, slot, _SLOT.size)
            _SLOT.pack_into(self._map, slot, max(previous, 0))
            self.used_slots -= previous == 0
            self.count -= 1
            dropped += 1
        if self.count > 1:
            _, offset, seconds, _ = _ITEM.unpack_from(self._map, self._item_at(self.count - 1))
            self.end_offset = offset
            self.end_timestamp = self.begin_timestamp + seconds * 1000
        self.save_header()
        return max(dropped, 0)

    def _find_uncounted(self) -> int:
        """Count the items that were put after the last header was saved before the process died."""
        found = 0
        while self.count < self._capacity:
            hashed, offset, _, _ = _ITEM.unpack_from(self._map, self._item_at(self.count))
            slot = self._slot_at(hashed)
            if (hashed, offset) == (0, 0) or _SLOT.unpack_from(self._map, slot)[0] < self.count:
                break
            self.count += 1
            found += 1
        return found

    def sync(self) -> None:
        """Wait until the file is on the disk. Raises OSError. Made for a thread: it releases the
        GIL.
        """
        files.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            try:
                self.save_header()
            except OSError as error:
                log.warning("%s: cannot write the header: %s", self.path, error)
            self._map.close()
            files.close(self._descriptor)
            self._descriptor = -1

    def delete(self) -> None:
        self.close()
        files.remove(self.path)


class Index:
    """All files of the index, oldest first. A new file is created when the last one is full."""

    def __init__(self, folder: Path, slots: int, capacity: int) -> None:
        self.files: list[IndexFile] = []
        self.folder = folder
        # Whether files were created since the folder was last passed to an fsync.
        self.renamed = False
        self._slots = slots
        self._capacity = capacity

    def load(self) -> None:
        """Open the existing files. A file of another size is skipped and logged."""
        files.make_folders(self.folder)
        size = _HEADER.size + _SLOT.size * self._slots + _ITEM.size * self._capacity
        for path in files.children(self.folder):
            if not (path.name.isdigit() and len(path.name) == 17):
                continue
            if files.size(path) != size:
                log.warning("%s is not an index file of %d bytes; skipping it", path, size)
                continue
            self.files.append(IndexFile(path, self._slots, self._capacity))

    def sync_names(self) -> None:
        """Sync the folder, so that the names of the files survive a power failure. Raises
        OSError."""
        files.sync_folder(self.folder)

    @property
    def end_offset(self) -> int:
        """The physical offset of the newest indexed message, -1 if there is none."""
        for file in reversed(self.files):
            if file.count > 1:
                return file.end_offset
        return -1

    @property
    def end_timestamp(self) -> int:
        return self.files[-1].end_timestamp if self.files else 0

    @property
    def origin(self) -> int:
        """The time from which the items of the last file count: the store timestamp of its first
        item.
        """
        return self.files[-1].begin_timestamp if self.files else 0

    @property
    def room(self) -> int:
        """The number of items that the last file takes after its first; 0 before that."""
        file = self.files[-1] if self.files else None
        return file.room if file is not None and file.count > 1 else 0

    def put(self, items: bytes, timestamp: int) -> None:
        """Add items, each as PUT, of messages that have one store timestamp, or lie in one second
        counted from `origin`.

        Raises OSError if the disk is full. The caller may then put all of them again, because a
        message that is found twice is returned once.
        """
        while items:
            file = self._writable()
            room = file.room * PUT.size
            file.put(items[:room], timestamp)
            items = items[room:]

    def save_headers(self) -> None:
        if self.files:
            self.files[-1].save_header()

    def _writable(self) -> IndexFile:
        if self.files and not self.files[-1].full:
            return self.files[-1]
        file = IndexFile(self.folder / self._next_name(), self._slots, self._capacity)
        self.renamed = True
        if self.files:
            self.files[-1].save_header()
            file.continue_from(self.files[-1])
        self.files.append(file)
        return file

    def _next_name(self) -> str:
        """The current time in Java's format. Files are ordered by their names, so the name is
        increased if the clock was set back.
        """
        now = clock.time()
        milliseconds = int(now * 1000) % 1000
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now)) + f"{milliseconds:03d}"
        if self.files and name <= self.files[-1].path.name:
            name = f"{int(self.files[-1].path.name) + 1:017d}"
        return name

    def find(self, topic: str, key: str, maximum: int, begin: int, end: int) -> list[int]:
        """Physical offsets of up to ``maximum`` messages that may have a key, the newest file
        first.
        """
        hashed = key_hash(topic, key)
        found: list[int] = []
        for file in reversed(self.files):
            if file.begin_timestamp <= end and file.end_timestamp >= begin:
                for physical in file.find(hashed, begin, end):
                    found.append(physical)
                    if len(found) >= maximum:
                        return found
            if file.begin_timestamp < begin:
                break
        return found

    def cut(self, physical: int) -> int:
        """Remove the items of messages at or after a physical offset; return their number."""
        dropped = 0
        while self.files:
            file = self.files[-1]
            dropped += file.cut(physical)
            if file.count > 1 or len(self.files) == 1:
                break
            self.files.pop().delete()
        return dropped

    def remove_last(self) -> IndexFile:
        """Delete the newest file. Its messages must be indexed again, from its begin_offset on."""
        file = self.files.pop()
        file.delete()
        return file

    def remove_before(self, physical_minimum: int) -> int:
        """Delete files whose messages are all deleted, except the last file; return their
        number."""
        removed = 0
        while len(self.files) > 1 and self.files[0].end_offset < physical_minimum:
            self.files.pop(0).delete()
            removed += 1
        return removed

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.files.clear()
