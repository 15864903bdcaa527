"""The checkpoint file: which parts of the store are certainly on disk (layout.CHECKPOINT, Java's
StoreCheckpoint).
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mq.client.machine import files
from mq.daemons.broker.store import layout

# Java subtracts this margin, because it takes the timestamps around a flush and not exactly at it.
SAFETY_MARGIN_MS = 3000


class _Sealed(NamedTuple):
    """A section that this broker adds to the page: magic, values, and the CRC-32 of the bytes
    before it.
    """

    start: int
    form: struct.Struct
    magic: bytes

    @property
    def crc_at(self) -> int:
        return self.start + self.form.size - 4

    def read(self, page: bytes) -> tuple[int, ...] | None:
        """Return the values; None if the section is missing or damaged."""
        if len(page) < self.start + self.form.size:
            return None
        magic, *values, crc = self.form.unpack_from(page, self.start)
        is_whole = magic == self.magic and crc == zlib.crc32(page[self.start : self.crc_at])
        return tuple(values) if is_whole else None

    def write(self, page: bytearray, *values: int) -> None:
        self.form.pack_into(page, self.start, self.magic, *values, 0)
        crc = zlib.crc32(page[self.start : self.crc_at])
        page[self.crc_at : self.crc_at + 4] = crc.to_bytes(4, "big")


_SAFE = _Sealed(layout.FINE_CHECKPOINT_AT, layout.FINE_CHECKPOINT, layout.FINE_CHECKPOINT_MAGIC)
_FOUND_END = _Sealed(layout.FOUND_END_AT, layout.FOUND_END, layout.FOUND_END_MAGIC)


class Checkpoint:
    """Three timestamps as Java keeps them, and physical offsets that this broker adds.

    ``safe_offset``: all bytes of the log before it, and their entries in queues and index, are
    fsynced; 0 if that is not known. ``confirm_offset``: the offset up to which consumers may read
    in a replica set with controllers. It may lag the real confirm offset, and never exceeds the
    log. ``recovered_end``: the end of the log at the last recovery that may have lost messages,
    here or at another broker; None if there was none. Offsets of groups may be past it.
    """

    def __init__(self, path: Path) -> None:
        self.message_timestamp = 0
        self.queue_timestamp = 0
        self.index_timestamp = 0
        self.safe_offset = 0
        self.confirm_offset = 0
        self.recovered_end: int | None = None
        self._path = path

    def moved(self, timestamp: int, index_timestamp: int, safe_offset: int) -> "Checkpoint":
        """Return the checkpoint that replaces this one."""
        later = Checkpoint(self._path)
        later.message_timestamp = later.queue_timestamp = timestamp
        later.index_timestamp = index_timestamp
        later.safe_offset = safe_offset
        later.confirm_offset = self.confirm_offset
        later.recovered_end = self.recovered_end
        return later

    @property
    def minimum_timestamp(self) -> int:
        """The store timestamp up to which log and queues are on disk, in ms."""
        return max(0, min(self.message_timestamp, self.queue_timestamp) - SAFETY_MARGIN_MS)

    @property
    def minimum_timestamp_with_index(self) -> int:
        return min(self.minimum_timestamp, self.index_timestamp)

    def load(self) -> None:
        """Read the file. A missing or short file counts as zeros, so that the whole log is read
        again.
        """
        try:
            data = files.read_bytes(self._path)
        except FileNotFoundError:
            return
        if len(data) < layout.CHECKPOINT.size:
            return
        self.message_timestamp, self.queue_timestamp, self.index_timestamp = (
            layout.CHECKPOINT.unpack_from(data)
        )
        self.safe_offset = self._read_safe_offset(data)
        if len(data) >= layout.CONFIRM_AT + layout.LONG.size:
            (offset,) = layout.LONG.unpack_from(data, layout.CONFIRM_AT)
            self.confirm_offset = max(0, offset)
        recovered_end = _FOUND_END.read(data)
        self.recovered_end = None if recovered_end is None else recovered_end[0]

    def _read_safe_offset(self, data: bytes) -> int:
        sealed = _SAFE.read(data)
        if sealed is None:
            return 0
        offset, *timestamps = sealed
        ours = timestamps == [self.message_timestamp, self.queue_timestamp, self.index_timestamp]
        return offset if ours else 0

    def save(self) -> None:
        """Write and fsync the file. Raises OSError; the file then keeps the old state."""
        timestamps = (self.message_timestamp, self.queue_timestamp, self.index_timestamp)
        page = bytearray(layout.CHECKPOINT_SIZE)
        layout.CHECKPOINT.pack_into(page, 0, *timestamps)
        layout.LONG.pack_into(page, layout.CONFIRM_AT, self.confirm_offset)
        _SAFE.write(page, self.safe_offset, *timestamps)
        if self.recovered_end is not None:
            _FOUND_END.write(page, self.recovered_end)
        # Written in place and not by rename: Java maps this very file. A page is written whole or,
        # torn by a power failure, fails its checksum and counts as zeros.
        is_new = not files.exists(self._path)
        with files.opened(self._path, os.O_RDWR | os.O_CREAT, 0o644) as descriptor:
            files.write_all(descriptor, page)
            files.fdatasync(descriptor)
        if is_new:
            files.sync_folder(self._path.parent)


def damage_of(data: bytes) -> Iterator[int]:
    """Yield the positions of wrong checksums in the file. Java's timestamps have no checksum, and
    Java writes nothing where the added sections are.
    """
    for sealed in (_SAFE, _FOUND_END):
        part = data[sealed.start : sealed.start + sealed.form.size]
        if part.strip(b"\0") and sealed.read(data) is None:
            yield sealed.crc_at
