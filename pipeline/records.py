"""Records of a log as columns: the fields of many at once.

A pull reply's body consists of records as in the commit log (mq.protocol.record has the layout).
Replies are in one large buffer, with the headers of their frames between them. Finding the
positions takes a step of Python per record, unless all are as long as the first. Everything else is
done by numpy for all of them: a view that has an integer at every byte of the buffer, aligned or
not, is indexed with the positions of a field.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.record import AT, IPV6_EXTRA, MAGIC_V1, MAGIC_V2, SMALLEST_RECORD, struct_of

Integers = npt.NDArray[np.int64]

_SIZE = struct_of("size")
_QUEUE_OFFSET = struct_of("queue_offset")
_SMALLEST = SMALLEST_RECORD


def walk(buffer: bytearray, start: int, end: int, before: int | None = None) -> Integers:
    """Return the positions of the records that fill the bytes from `start` to `end`.

    With `before` only those with a smaller queue offset. Raises RemoteProtocolError if the bytes
    are not whole records.
    """
    positions = _equal_steps(buffer, start, end)
    if positions is None:
        positions = np.array(_steps(buffer, start, end), np.int64)
    if before is None:
        return positions
    offset_at = _QUEUE_OFFSET.unpack_from
    kept = [offset_at(buffer, p)[0] < before for p in positions.tolist()]
    return positions[np.array(kept, np.bool_)]


def _equal_steps(buffer: bytearray, start: int, end: int) -> Integers | None:
    """Return the positions if all records are as long as the first; otherwise None."""
    if end - start < _SMALLEST:
        return None
    size: int = _SIZE.unpack_from(buffer, start)[0]
    count = (end - start) // size if size >= _SMALLEST else 0
    if count * size != end - start:
        return None
    sizes: npt.NDArray[Any] = np.ndarray((count,), ">i4", buffer, start, (size,))
    return np.arange(start, end, size) if (sizes == size).all() else None


def _steps(buffer: bytearray, start: int, end: int) -> list[int]:
    positions = []
    size_at = _SIZE.unpack_from
    position = start
    while position < end:
        (size,) = size_at(buffer, position) if end - position >= _SMALLEST else (0,)
        if not _SMALLEST <= size <= end - position:
            raise RemoteProtocolError(
                f"byte {position - start} of {end - start} does not begin a message record"
            )
        positions.append(position)
        position += size
    return positions


class MalformedRecord(RemoteProtocolError):
    """The record with this index is the first malformed one."""

    def __init__(self, index: int, queue_offset: int) -> None:
        super().__init__(f"the record of queue offset {queue_offset} is malformed")
        self.index = index


class Records:
    """The records at ascending positions of a buffer, field by field.

    Attributes are arrays with a number for each record: the begin of a part (`body_at`) and its
    length (`body_length`), in bytes.
    """

    def __init__(self, buffer: bytearray, positions: Integers) -> None:
        """Raises MalformedRecord if the parts of a record do not add up to its size."""
        self.buffer = buffer
        self.positions = positions
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
        self.sys_flag = self.int32(positions + AT["sys_flag"])
        self.born_v6 = self._extra(SysFlag.BORN_HOST_V6)
        self.store_v6 = self._extra(SysFlag.STORE_HOST_V6)
        end = positions + self.int32(positions)
        body_length_at = positions + AT["body_length"] + self.born_v6 + self.store_v6
        self._check(body_length_at + 7 <= end)
        self.body_length = self.int32(body_length_at)
        self.body_at = body_length_at + 4
        topic_length_at = self.body_at + self.body_length
        self._check((self.body_length >= 0) & (topic_length_at + 3 <= end))
        magic = self.int32(positions + AT["magic"])
        second_form = magic == MAGIC_V2
        self._check(second_form | (magic == MAGIC_V1))
        self.topic_length = self._bytes[topic_length_at].astype(np.int64)
        if second_form.any():
            long = self.int16(topic_length_at)
            self.topic_length = np.where(second_form, long, self.topic_length)
        self.topic_at = topic_length_at + 1 + second_form
        self.properties_at = self.topic_at + self.topic_length + 2
        self._check((self.topic_length >= 0) & (self.properties_at <= end))
        self.properties_length = self.int16(self.properties_at - 2)
        self._check(self.properties_at + self.properties_length == end)

    def __len__(self) -> int:
        return len(self.positions)

    def only(self, wanted: npt.NDArray[np.bool_]) -> "Records":
        """Return the records for which `wanted` is true."""
        return Records(self.buffer, self.positions[wanted])

    def int16(self, places: Integers) -> Integers:
        """Return the integers of 2 bytes at these positions of the buffer."""
        return self._integers(">i2", places)

    def int32(self, places: Integers) -> Integers:
        """Return the integers of 4 bytes at these positions of the buffer."""
        return self._integers(">i4", places)

    def int64(self, places: Integers) -> Integers:
        """Return the integers of 8 bytes at these positions of the buffer."""
        return self._integers(">i8", places)

    def queue_id(self) -> Integers:
        return self.int32(self.positions + AT["queue_id"])

    def queue_offset(self) -> Integers:
        return self.int64(self.positions + AT["queue_offset"])

    def born_timestamp(self) -> Integers:
        """In ms since 1970."""
        return self.int64(self.positions + AT["born_timestamp"])

    def body_checksum(self) -> Integers:
        return self.int32(self.positions + AT["body_crc"])

    def physical_offset(self) -> Integers:
        return self.int64(self.positions + AT["physical_offset"])

    def store_timestamp(self) -> Integers:
        """In ms since 1970."""
        return self.int64(self.positions + AT["store_timestamp"] + self.born_v6)

    def _integers(self, kind: str, places: Integers) -> Integers:
        width = np.dtype(kind).itemsize
        size = max(0, len(self.buffer) - width + 1)
        everywhere: npt.NDArray[Any] = np.ndarray((size,), kind, self.buffer, 0, (1,))
        return everywhere[places].astype(np.int64)

    def _extra(self, bit: int) -> Integers:
        return np.where(self.sys_flag & bit, IPV6_EXTRA, 0)

    def _check(self, good: npt.NDArray[np.bool_]) -> None:
        if not good.all():
            wrong = int(np.argmin(good))
            raise MalformedRecord(wrong, int(self.queue_offset()[wrong]))
