"""Reading a part of a commit log's file: runs of whole records, and the damage between them.

A part consists of the records that begin in it. Its first record is found by a search for a record
of exactly that position: by its magic, its own offset in the log, and the checksum of its body. The
reader of the previous part continues up to there, and reports any damage in between. So each record
is read once and each damage reported once, although no task reads the whole file.

A file ends with a filler, the log with zeros. A crash may leave an incomplete record there.
"""

import os
from collections.abc import Iterator

import numpy as np

from mq.pipeline.records import Integers, MalformedRecord, Records
from mq.pipeline.store_bytes import ScanState, StoreBytes, bodies_are_whole, walk_from
from mq.pipeline.store_files import Damage, FileSplit
from mq.protocol.record import SMALLEST_RECORD

_CHUNK = 4 * 1024 * 1024  # bytes read at a time, which become one record batch


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
