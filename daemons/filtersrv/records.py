"""The records of a pull: counted, chosen by what a class says, and written anew for consumers.

Source: DefaultRequestProcessor.messageToByteBuffer of 4.2.0. There every message that matches is
decoded and encoded again. What comes out is the same bytes as came in, unless its body is, or has
to be, compressed, so that only such records are made anew here.
"""

from zlib import crc32

from mq.protocol.compression import CompressionType, compress
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.record import (
    BLANK,
    CRC_MASK,
    IPV6_BITS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SMALLEST_RECORD,
    shift,
    struct_of,
)
from mq.protocol.record_codec import decode_record, encode_record
from mq.protocol.stored_message import StoredMessage

_START = struct_of("size", "magic")
_SYS_FLAG = struct_of("sys_flag").unpack_from
_BODY_LENGTH = struct_of("body_length")
_QUEUE_OFFSET = struct_of("queue_offset")


def places(records: bytes | memoryview) -> list[tuple[int, int]]:
    """Where each record begins and ends. A blank one, the end of a log file, ends the list.

    Raises RemoteProtocolError for what is no row of records.
    """
    found = []
    position, end = 0, len(records)
    while position < end:
        if end - position >= BLANK.size:
            size, magic = _START.unpack_from(records, position)
            if magic == MAGIC_BLANK:
                break
            if magic in (MAGIC_V1, MAGIC_V2) and SMALLEST_RECORD <= size <= end - position:
                found.append((position, position + size))
                position += size
                continue
        raise RemoteProtocolError(f"no message record at byte {position} of {end}")
    return found


def undamaged(records: bytes | memoryview, offset: int, next_offset: int) -> tuple[bytes, int]:
    """Of records pulled from `offset` on that are no row those that are whole, and where to go on.

    Behind one whose size is damaged nobody knows where the next begins: it is pulled again, from
    behind that one. `next_offset` is where the broker goes on. As consumers do it that pull from a
    broker (`decode_undamaged`), so that no group is stuck at such a message.
    """
    view = memoryview(records)
    good: list[memoryview] = []
    position, end = 0, len(view)
    while end - position >= BLANK.size:
        size, magic = _START.unpack_from(view, position)
        if magic == MAGIC_BLANK:
            break
        if not _begins_one(view, position, size):
            last = _QUEUE_OFFSET.unpack_from(good[-1])[0] if good else offset
            return b"".join(good), min(max(offset, last) + 1, next_offset)
        if magic in (MAGIC_V1, MAGIC_V2):
            good.append(view[position : position + size])
        position += size
    return b"".join(good), next_offset


def _begins_one(view: memoryview, position: int, size: int) -> bool:
    """Whether behind a record of this size another one begins, or the end is."""
    left = len(view) - position - size
    if size < SMALLEST_RECORD or left < BLANK.size:
        return size >= SMALLEST_RECORD and left == 0
    return _START.unpack_from(view, position + size)[1] in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)


class Writer:
    """Writes records for consumers. Bodies of `over` bytes or more are compressed."""

    def __init__(self, over: int, level: int) -> None:
        self._over = over
        self._level = level

    def chosen(
        self, records: bytes | memoryview, found: list[tuple[int, int]], bits: bytes
    ) -> tuple[bytes, int]:
        """Those records whose bits are set, and how many they are. May be called in a thread."""
        view = memoryview(records)
        out: list[bytes | memoryview] = []
        count = 0
        for index, (begin, end) in enumerate(found):
            if bits[index >> 3] >> (index & 7) & 1:
                count += 1
                out.append(
                    self._anew(view[begin:end]) if self.changes(view, begin) else view[begin:end]
                )
        return b"".join(out), count

    def changes_any(self, records: bytes | memoryview, found: list[tuple[int, int]]) -> bool:
        """Whether any of them is written anew, which takes its time."""
        return any(self.changes(records, begin) for begin, _ in found)

    def changes(self, records: bytes | memoryview, begin: int) -> bool:
        """Whether the record there comes out otherwise than it has come in."""
        (flag,) = _SYS_FLAG(records, begin)
        if flag & SysFlag.COMPRESSED:
            return True
        further = shift("body_length", flag) if flag & IPV6_BITS else 0
        (length,) = _BODY_LENGTH.unpack_from(records, begin + further)
        return bool(length >= self._over)

    def _anew(self, record: memoryview) -> bytes | memoryview:
        """One with its body as consumers get it. One that is damaged stays as it is: they see that
        by its checksum, which Java's filter server makes anew, and pass over it."""
        try:
            message = decode_record(record, check_crc=True)
        except RemoteProtocolError:
            return record
        if message.body_error:
            return record
        return encode_record(self._for_consumers(message))

    def _for_consumers(self, message: StoredMessage) -> StoredMessage:
        flag = message.sys_flag & ~(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
        body = message.body
        if len(body) >= self._over:
            body = compress(body, CompressionType.ZLIB, self._level)
            flag |= SysFlag.COMPRESSED
        message.body, message.sys_flag = body, flag
        message.body_crc = crc32(body) & CRC_MASK
        message._decompressed = False  # it is written as it is now
        return message
