"""The records of a pull: located, selected by a class, and rewritten for consumers.

Source: DefaultRequestProcessor.messageToByteBuffer of 4.2.0. There every matching message is
decoded and encoded again. The result has the same bytes unless its body is compressed, or must be,
so only such records are rewritten here.
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
    """The start and end of each record. A blank record, the end of a log file, ends the list.

    Raises RemoteProtocolError if the bytes are not a sequence of records.
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
    """Return the whole records of a damaged sequence pulled from `offset` on, and the offset to
    continue at.

    After a record whose size is damaged the start of the next one is unknown, so the next pull
    starts after the damaged one. `next_offset` is the broker's next offset. Consumers that pull
    from a broker do the same (`decode_undamaged`), so that no group is stuck at such a message.
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
    """Whether a record of this size is followed by another one or by the end."""
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
        """The records whose bits are set, and their number. May be called in a thread."""
        view = memoryview(records)
        out: list[bytes | memoryview] = []
        count = 0
        for index, (begin, end) in enumerate(found):
            if bits[index >> 3] >> (index & 7) & 1:
                count += 1
                out.append(
                    self._rewritten(view[begin:end])
                    if self.changes(view, begin)
                    else view[begin:end]
                )
        return b"".join(out), count

    def changes_any(self, records: bytes | memoryview, found: list[tuple[int, int]]) -> bool:
        """Whether any of them must be rewritten, which takes time."""
        return any(self.changes(records, begin) for begin, _ in found)

    def changes(self, records: bytes | memoryview, begin: int) -> bool:
        """Whether the record must be rewritten."""
        (flag,) = _SYS_FLAG(records, begin)
        if flag & SysFlag.COMPRESSED:
            return True
        further = shift("body_length", flag) if flag & IPV6_BITS else 0
        (length,) = _BODY_LENGTH.unpack_from(records, begin + further)
        return bool(length >= self._over)

    def _rewritten(self, record: memoryview) -> bytes | memoryview:
        """Rewrite a record with its body as consumers get it. A damaged record does not change:
        consumers detect it by its checksum, which Java's filter server recomputes, and skip it.
        """
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
