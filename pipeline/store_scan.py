"""Reading a part of a commit log's file: runs of whole records, and the damage between them.

A part consists of the records that begin in it. Its first record is found by a search for a record
of exactly that position: by its magic, its own offset in the log, and the checksum of its body. The
reader of the previous part continues up to there, and reports any damage in between. So each record
is read once and each damage reported once, although no task reads the whole file.

A file ends with a filler, the log with zeros. A crash may leave an incomplete record there.
"""

import errno
import os
from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from mq.pipeline.records import Integers, MalformedRecord, Records
from mq.pipeline.store_files import Damage, FileSplit, LogFile
from mq.protocol.checksum import crc32
from mq.protocol.record import (
    AT,
    CRC_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAGICS,
    SMALLEST_RECORD,
    struct_of,
)

_HEAD = struct_of("size", "magic")
_MAGIC_AT = AT["magic"]
_PIECE = 1 << 20  # bytes searched at a time

_CHUNK = 4 * 1024 * 1024  # bytes read at a time, which become one record batch


class ScanState(Enum):
    """What is at a position."""

    RECORD = "a whole record"
    END = "nothing more in this file"
    DAMAGE = "neither"


class StoreBytes:
    """An open file of a log. Its methods raise OSError."""

    def __init__(self, descriptor: int, file: LogFile, *, verify: bool = True) -> None:
        """Without `verify` a record is whole even if the checksum of its body is wrong."""
        self.file = file
        self._descriptor = descriptor
        self._verify = verify

    def read(self, position: int, buffer: bytearray) -> int:
        """Fill a buffer from a position on; returns the number of bytes read."""
        filled = 0
        with memoryview(buffer) as view:
            while filled < len(buffer):
                count = os.preadv(self._descriptor, [view[filled:]], position + filled)
                if not count:
                    break
                filled += count
        return filled

    def record_size(self, position: int) -> int | None:
        """Return the size in the head of a record, if it fits into the file."""
        head = os.pread(self._descriptor, _HEAD.size, position)
        if len(head) < _HEAD.size:
            return None
        size, magic = _HEAD.unpack(head)
        fits = SMALLEST_RECORD <= size <= self.file.size - position
        return size if magic in (MAGIC_V1, MAGIC_V2) and fits else None

    def inspect(self, position: int) -> tuple[ScanState, int, str]:
        """Return what is at a position, its size if known (else 0), and the reason if it is
        damage.
        """
        left = self.file.size - position
        head = os.pread(self._descriptor, _HEAD.size, position)
        if len(head) < _HEAD.size:
            if self.file.is_last and not any(head):
                return ScanState.END, 0, ""
            return ScanState.DAMAGE, 0, "the file ends without a filler"
        size, magic = _HEAD.unpack(head)
        if magic == MAGIC_BLANK and size == left:
            return ScanState.END, 0, ""
        reason = f"magic {magic & 0xFFFFFFFF:#010x} is not that of a message"
        if magic == MAGIC_BLANK:
            reason = f"a filler of {size} bytes where {left} are left"
        elif size == magic == 0:
            if self.file.is_last and self.data_end(position) == position:
                return ScanState.END, 0, ""
            reason = "zeros where a message should be"
        elif magic in (MAGIC_V1, MAGIC_V2):
            reason = f"a message of {size} bytes where {left} are left"
            if SMALLEST_RECORD <= size <= left:
                wrong = self._what_is_wrong(position, size)
                return (ScanState.DAMAGE, size, wrong) if wrong else (ScanState.RECORD, size, "")
        return ScanState.DAMAGE, 0, reason

    def _what_is_wrong(self, position: int, size: int) -> str:
        buffer = bytearray(size)
        if self.read(position, buffer) < size:
            return "the file became shorter"
        try:
            record = Records(buffer, np.zeros(1, np.int64))
        except MalformedRecord:
            return f"its parts do not add up to its size of {size} bytes"
        offset = int(record.physical_offset()[0])
        if offset != self.file.start + position:
            return f"its own offset in the log is {offset}"
        if self._verify and not bodies_are_whole(record)[0]:
            return "the checksum of the body is wrong"
        return ""

    def next_record(self, position: int) -> int | None:
        """Return the position of the next whole record that contains its own position."""
        for start, piece in self._data(position, _MAGIC_AT + len(MAGICS[0])):
            at = -1
            while True:
                places = [piece.find(magic, at + 1) for magic in MAGICS]
                at = min((place for place in places if place >= 0), default=-1)
                if at < 0:
                    break
                candidate = start + at - _MAGIC_AT
                if candidate >= position and self.inspect(candidate)[0] is ScanState.RECORD:
                    return candidate
        return None

    def damage_at(self, position: int, size: int, reason: str) -> Damage:
        """Return the damage that begins at a position, up to where reading can continue."""
        following: int | None = position + size
        found = self.inspect(position + size)[0] if size else ScanState.DAMAGE
        if found is ScanState.DAMAGE:
            following = self.next_record(position + 1)
        cut = False
        if self.file.is_last and (following is None or found is ScanState.END):
            # At the end of the log an incomplete record, which was never fully written, is no
            # damage.
            end = self.data_end(position)
            declared = self.record_size(position)
            cut = end - position < (_HEAD.size if declared is None else declared)
            following = end if following is None else following
        if following is None:
            following = self.file.size
        return Damage(self.file.path, position, following - position, reason, is_end=cut)

    def data_end(self, position: int) -> int:
        """Return the position after the last non-zero byte; `position` itself if there is none."""
        end = position
        for start, piece in self._data(position, 0):
            kept = len(piece.rstrip(b"\0"))
            if kept:
                end = start + kept
        return end

    def _data(self, position: int, overlap: int) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of the file, without its holes. Each begins `overlap` bytes before the end
        of the previous one.
        """
        while position < self.file.size:
            try:
                position = max(position, os.lseek(self._descriptor, position, os.SEEK_DATA))
            except OSError as error:
                if error.errno != errno.ENXIO:  # ENXIO: a hole up to the end
                    raise
                return
            piece = os.pread(self._descriptor, _PIECE, position)
            yield position, piece
            if len(piece) < _PIECE:
                return
            position += len(piece) - overlap


def walk_from(buffer: bytearray, filled: int, limit: int) -> Integers:
    """Return the positions of consecutive records from the start of a buffer.

    Only records that are completely within its first `filled` bytes and begin before `limit`; stops
    at bytes that are not the head of a record.
    """
    positions = _equal_steps(buffer, filled, limit)
    position = 0
    if len(positions):
        position = int(positions[-1]) + int(_HEAD.unpack_from(buffer, int(positions[-1]))[0])
    more = []
    head = _HEAD.unpack_from
    while position < limit and filled - position >= SMALLEST_RECORD:
        size, magic = head(buffer, position)
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            break
        if not SMALLEST_RECORD <= size <= filled - position:
            break
        more.append(position)
        position += size
    return np.concatenate((positions, np.array(more, np.int64))) if more else positions


def _equal_steps(buffer: bytearray, filled: int, limit: int) -> Integers:
    """Return the leading records that are all as long as the first."""
    size, magic = _HEAD.unpack_from(buffer) if filled >= SMALLEST_RECORD else (0, 0)
    if size < SMALLEST_RECORD or magic not in (MAGIC_V1, MAGIC_V2):
        return np.empty(0, np.int64)
    count = min(filled // size, -(-limit // size))
    heads: npt.NDArray[Any] = np.ndarray((count,), ">i8", buffer, 0, (size,))
    same = heads == heads[:1]
    if not same.all():
        count = int(np.argmin(same))
    return np.arange(0, count * size, size)


def bodies_are_whole(records: Records) -> npt.NDArray[np.bool_]:
    """Return for each record whether the checksum of its body is right."""
    begins = records.body_at.tolist()
    ends = (records.body_at + records.body_length).tolist()
    with memoryview(records.buffer) as view:
        sums = [crc32(view[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    whole: npt.NDArray[np.bool_] = (np.array(sums, np.int64) & CRC_MASK) == records.body_checksum()
    return whole


class PartScan:
    """One part. Iterate once, over damage and records; records are valid until the next ones."""

    def __init__(self, part: FileSplit, *, verify: bool = True) -> None:
        """`verify` compares each body with its checksum."""
        self._part = part
        self._verify = verify
        self._buffer = bytearray(max(SMALLEST_RECORD, min(_CHUNK, part.file.size)))

    def __iter__(self) -> Iterator[Records | Damage]:
        """Raises OSError."""
        descriptor = os.open(self._part.file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield from self._scan(StoreBytes(descriptor, self._part.file, verify=self._verify))
        finally:
            os.close(descriptor)

    def _scan(self, store: StoreBytes) -> Iterator[Records | Damage]:
        begin, end = self._part.begin, self._part.end
        first = store.next_record(begin) if begin else 0
        if first is None or first >= end:
            return  # the reader of the previous part handles this one
        position = first
        while position < end:
            for records in self._run(store, position):
                yield records
                position = self._next
            found, size, reason = store.inspect(position)
            if found is ScanState.END:
                return
            if found is ScanState.DAMAGE:
                damage = store.damage_at(position, size, reason)
                yield damage
                position += damage.size
                if damage.is_end or not damage.size or position >= store.file.size:
                    return
        # The next part begins at the first whole record that is found there.
        found, size, reason = store.inspect(position)
        if found is ScanState.DAMAGE and position < store.file.size:
            yield store.damage_at(position, size, reason)

    def _run(self, store: StoreBytes, position: int) -> Iterator[Records]:
        """Yield records from a position on, chunk by chunk, up to the end of the part or to damage.

        With each chunk, `_next` is the position of the next one.
        """
        while position < self._part.end:
            filled = store.read(position, self._buffer)
            positions = walk_from(self._buffer, filled, self._part.end - position)
            if not len(positions):
                size = store.record_size(position)
                if size is None or size <= len(self._buffer):
                    return
                self._buffer = bytearray(size)  # a record larger than a chunk
                continue
            records = self._good(positions, store.file.start + position)
            if len(records):
                last = records.positions[-1:]
                position = self._next = position + int(last[0] + records.int32(last)[0])
                yield records
            if len(records) < len(positions):
                return

    def _good(self, positions: Integers, base: int) -> Records:
        """Return the records up to the first damaged one.

        `base` is the offset in the log of the first byte in the buffer.
        """
        while True:
            try:
                records = Records(self._buffer, positions)
                break
            except MalformedRecord as error:
                positions = positions[: error.index]
        good = records.physical_offset() == base + positions
        if self._verify:
            good &= bodies_are_whole(records)
        if not good.all():
            records = Records(self._buffer, positions[: int(np.argmin(good))])
        return records
