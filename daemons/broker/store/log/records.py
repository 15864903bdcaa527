"""Reads the records of the log, for recovery and for rebuilding queues and index."""

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import LogReader
from mq.protocol.checksum import crc32
from mq.protocol.codes import ResponseCode
from mq.protocol.flags import SysFlag
from mq.protocol.names import SCHEDULE_TOPIC
from mq.protocol.properties import MAX_LENGTH, PROPERTY_SEPARATOR, PropertyKey, decode
from mq.protocol.record import (
    AT,
    BLANK,
    CRC_MASK,
    IPV6_BITS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAGICS,
    SMALLEST_RECORD,
    part,
    shift,
    struct_of,
)
from mq.protocol.tags import tags_code

_HEAD = part("size", "sys_flag")
# bytes of a record in memory while it is checked; its claimed size may be the whole file
_LONG = 1 << 20
_LONGEST_TAIL = 2 * (2 + (1 << 15))  # topic and properties, with their lengths
_LONGEST_DAMAGED = 64 << 20  # bytes of a damaged record that are read into memory
_LATEST = (1 << 63) - 1  # the latest time that an entry can hold, in ms
_TRANSACTION_MASK = SysFlag.TRANSACTION_MASK
IN_NO_QUEUE = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)


class LogFile(Protocol):
    """A file of the log. ``start`` is the physical offset of its first byte. ``window`` returns
    memory with at least ``size`` bytes from a position on, as far as the file has them, and the
    position in the file where this memory starts.
    """

    @property
    def start(self) -> int: ...
    @property
    def size(self) -> int: ...
    def window(self, position: int, size: int) -> tuple[memoryview, int]: ...


class Record(NamedTuple):
    """The fields of a record that queues and index need."""

    topic: str
    queue_id: int
    queue_offset: int
    physical: int
    size: int
    sys_flag: int
    store_timestamp: int
    properties: str

    @property
    def is_queued(self) -> bool:
        """Whether consumers may see it: false for a half message and a rollback of a
        transaction."""
        return self.sys_flag & _TRANSACTION_MASK not in IN_NO_QUEUE

    @property
    def is_indexed(self) -> bool:
        """Whether it is found by its keys: false for a rollback of a transaction."""
        return self.sys_flag & _TRANSACTION_MASK != SysFlag.TRANSACTION_ROLLBACK


class BadRecord(Exception):
    """The bytes at an offset are not a record. The text says why."""


class UnreadableRecord(BadRecord):
    """The disk cannot read the bytes at an offset."""


class EndOfLog(Exception):
    """Nothing was written at an offset."""


def read_log(commit_log: CommitLog, start: int) -> Iterator[Record]:
    """Yield the records from an offset to the end of the log, each verified by its checksum.

    Raises BadRecord at the first damaged one.
    """
    position = start
    while (file := commit_log.file_at(position)) is not None:
        try:
            yield from read_file(LogReader(file), position - file.start)
        except EndOfLog:
            return
        position = file.end


def is_last(commit_log: CommitLog, record: Record) -> bool:
    """Whether a record is the last of the log."""
    try:
        return next(read_log(commit_log, record.physical + record.size), None) is None
    except BadRecord:
        return True


def find_entry(
    commit_log: CommitLog,
    start: int,
    end: int,
    topic: str,
    queue_id: int,
    queue_offset: int,
    delays: dict[int, int],
) -> tuple[int, int, int] | None:
    """Search the log between two offsets for a message, and return its queue entry or None.

    If the queue offsets do not increase, the records before belong to an earlier generation (see
    `queue_generations`).
    """
    found: Record | None = None
    last = -1
    try:
        for record in read_log(commit_log, start):
            if record.physical >= end:
                break
            if record.topic != topic or record.queue_id != queue_id or not record.is_queued:
                continue
            if record.queue_offset <= last:
                found = None
            last = record.queue_offset
            if last == queue_offset:
                found = record
    except BadRecord:
        return None
    if found is None:
        return None
    properties = decode(found.properties)
    code = queue_tags_code(topic, properties, found.store_timestamp, delays)
    return found.physical, found.size, code


def window(file: LogFile, position: int, size: int) -> tuple[memoryview, int]:
    """Return a window of a file. Raises UnreadableRecord if the disk cannot read it, and
    OSError."""
    try:
        return file.window(position, size)
    except OSError as error:
        if error.errno not in files.UNREADABLE:
            raise
        raise UnreadableRecord(f"it cannot be read: {error.strerror}") from None


def read_file(file: LogFile, position: int) -> Iterator[Record]:
    """Yield the records of one file of the log, from a position in it up to its blank.

    Raises BadRecord at a damaged or unreadable record, EndOfLog where nothing was written.
    """
    view, begin = window(file, position, BLANK.size)
    end = begin + len(view)
    size = file.size
    start_of_file = file.start
    unpack = _HEAD.unpack_from
    while size - position >= BLANK.size:
        if end - position < SMALLEST_RECORD and end < size:
            view, begin = window(file, position, SMALLEST_RECORD)
            end = begin + len(view)
        total, magic = BLANK.unpack_from(view, position - begin)
        if magic == MAGIC_BLANK:
            if total != size - position:
                raise BadRecord(f"a blank of {total} bytes where {size - position} are left")
            return
        if total == 0 and magic == 0:
            raise EndOfLog
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            raise BadRecord(f"magic {magic & 0xFFFFFFFF:#x} is not a record's")
        if total < SMALLEST_RECORD or total > size - position:
            raise BadRecord(f"a size of {total} bytes")
        at = position - begin
        _, _, crc, queue_id, _, queue_offset, physical, sys_flag = unpack(view, at)
        if physical != start_of_file + position:
            raise BadRecord(f"it says that it belongs to offset {physical}")
        if position + total > end and total > _LONG:
            yield _read_long(
                file, position, total, magic, crc, queue_id, queue_offset, physical, sys_flag
            )
            position += total
            continue
        if position + total > end:
            view, begin = window(file, position, total)
            end, at = begin + len(view), position - begin
        yield _read_tail(view, at, total, magic, crc, queue_id, queue_offset, physical, sys_flag)
        position += total
    if size != position:
        raise BadRecord("the file ends without a blank")


def _read_long(
    file: LogFile, position: int, total: int, magic: int, crc: int, *known: int
) -> Record:
    """Read the record at a position of a file in pieces, the cheapest checks first. Senders choose
    the content of bodies, which may be many heads that claim the whole file.
    """
    size = AT["body_length"] + shift("body_length", known[-1])
    view, begin = window(file, position, size + 4)
    head = bytes(view[position - begin : position - begin + size])
    (body_length,) = layout.INT.unpack_from(view, position - begin + size)
    body = position + size + 4
    tail = body + body_length
    left = position + total - tail
    if body_length < 0 or not 0 <= left <= _LONGEST_TAIL:
        raise BadRecord(f"a body of {body_length} bytes in a record of {total}")
    view, begin = window(file, tail, left)
    short = memoryview(b"".join((head, bytes(4), view[tail - begin : tail - begin + left])))
    record = _read_tail(short, 0, len(short), magic, None, *known)
    found = 0
    for at in range(body, tail, _LONG):
        size = min(_LONG, tail - at)
        view, begin = window(file, at, size)
        found = crc32(view[at - begin : at - begin + size], found)
    if found & CRC_MASK != crc:
        raise BadRecord("the checksum of its body is wrong")
    return record._replace(size=total)


def record_in(file: LogReader, physical: int) -> Record | None:
    """The record at a physical offset of a log file, without a check of its body, or None."""
    position = physical - file.start
    if file.size - position < SMALLEST_RECORD:
        return None
    try:
        view, begin = window(file, position, SMALLEST_RECORD)
        total, _ = BLANK.unpack_from(view, position - begin)
        if total > _LONGEST_DAMAGED:
            return None
        view, begin = window(file, position, max(SMALLEST_RECORD, total))
        return read_record(view, position - begin, physical, check_body=False)
    except BadRecord:
        return None


def read_record(
    view: memoryview, position: int, physical: int, *, check_body: bool = True
) -> Record:
    """Return the record at a position of memory that holds all of it and belongs to a physical
    offset.

    Raises BadRecord.
    """
    total, magic, crc, queue_id, _, queue_offset, found, sys_flag = _HEAD.unpack_from(
        view, position
    )
    if found != physical:
        raise BadRecord(f"it says that it belongs to offset {found}")
    known = crc if check_body else None
    return _read_tail(
        view, position, total, magic, known, queue_id, queue_offset, physical, sys_flag
    )


def _read_tail(
    view: memoryview,
    position: int,
    total: int,
    magic: int,
    crc: int | None,
    queue_id: int,
    queue_offset: int,
    physical: int,
    sys_flag: int,
) -> Record:
    """Read the part of a record whose position depends on its hosts and its body."""
    end = position + total
    timestamp_at = position + AT["store_timestamp"]
    at = position + AT["body_length"]
    if sys_flag & IPV6_BITS:
        timestamp_at += shift("store_timestamp", sys_flag)
        at += shift("body_length", sys_flag)
    try:
        (body_length,) = layout.INT.unpack_from(view, at)
        body = at + 4
        at = body + body_length
        if body_length < 0 or at > end:
            raise BadRecord(f"a body of {body_length} bytes in a record of {total}")
        if crc is not None and crc32(view[body:at]) & CRC_MASK != crc:
            raise BadRecord("the checksum of its body is wrong")
        if magic == MAGIC_V1:
            topic_length = view[at]
            at += 1
        else:
            (topic_length,) = layout.SHORT.unpack_from(view, at)
            at += 2
        topic = str(view[at : at + topic_length], "utf-8")
        at += topic_length
        (properties_length,) = layout.SHORT.unpack_from(view, at)
        at += 2
        if at + properties_length != end or properties_length < 0:
            raise BadRecord("its parts do not add up to its size")
        properties = str(view[at:end], "utf-8", "replace")
        (timestamp,) = layout.LONG.unpack_from(view, timestamp_at)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadRecord(f"its parts cannot be read: {error}") from None
    return Record(topic, queue_id, queue_offset, physical, total, sys_flag, timestamp, properties)


def is_torn(commit_log: CommitLog, record: Record) -> bool:
    """Whether a sector after the body of a record, which no checksum covers, is all zeros.

    That is the state of a sector that a power failure kept from the disk. The lengths of topic and
    properties are not zeros, and `Appender` refuses properties that look like such a sector. The
    result means nothing for a log without a power failure: Java accepts all properties.
    """
    if "\0" not in record.properties and "\0" not in record.topic:
        return False
    file = commit_log.file_at(record.physical)
    assert file is not None
    start = record.physical - file.start
    begin = start - start % layout.SECTOR
    # The whole sectors that the record touches.
    data = file.read(begin, -(-(start + record.size) // layout.SECTOR) * layout.SECTOR - begin)
    at = start - begin + AT["body_length"] + shift("body_length", record.sys_flag)
    body_end = at + 4 + layout.INT.unpack_from(data, at)[0]
    return any(
        not any(data[sector : sector + layout.SECTOR])
        for sector in range(
            body_end - body_end % layout.SECTOR, start - begin + record.size, layout.SECTOR
        )
    )


def keys_of(properties: dict[str, str]) -> tuple[str, ...]:
    """The keys by which a message is found: its unique id, then each of its keys."""
    unique = properties.get(PropertyKey.UNIQUE_KEY)
    keys = properties.get(PropertyKey.KEYS)
    named = tuple(key for key in keys.split(" ") if key) if keys else ()
    return (unique, *named) if unique else named


def queue_tags_code(
    topic: str, properties: dict[str, str], store_timestamp: int, delays: dict[int, int]
) -> int:
    """The tags code of a queue entry: the tag's hash, or the delivery time of a delayed message.

    ``delays`` are milliseconds by delay level. Source: CommitLog.checkMessageAndReturnSize.
    """
    if topic == SCHEDULE_TOPIC and PropertyKey.DELAY_LEVEL in properties:
        try:
            level = int(properties[PropertyKey.DELAY_LEVEL])
        except ValueError:
            level = 0
        if level > 0:
            level = min(level, max(delays, default=0))
            due = store_timestamp + delays.get(level, 1000)
            return min(due, _LATEST)  # no checksum covers the time
    return tags_code(properties.get(PropertyKey.TAGS))


_SEPARATOR = PROPERTY_SEPARATOR.encode()


def looks_torn() -> StoreRefused:
    return StoreRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"properties with {layout.SECTOR} zeros in a row: after a power failure the message would "
        f"look torn and the log would be truncated there; put such data into the body",
    )


def ended(properties_field: bytes) -> bytes:
    """Return the properties with a separator at their end: a record that ended in zeros would look
    like one whose end a crash kept from the disk. Raises StoreRefused if the separator
    does not fit.
    """
    length = len(properties_field) - 2
    if not length:
        return properties_field
    if length >= MAX_LENGTH:
        raise StoreRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {length} bytes that end in a zero: after a crash the message could "
            f"look torn and the log could be truncated there; leave a byte of room, or put such "
            f"data into the body",
        )
    return layout.SHORT.pack(length + 1) + properties_field[2:] + _SEPARATOR


_MAGIC_AT = AT["magic"]
_PHYSICAL = struct_of("physical_offset")


class SearchedFile(LogFile, Protocol):
    """A file of the log that can be searched."""

    def find(self, part: bytes, position: int) -> int:
        """The next position of bytes that do not end in zeros, -1 if there is none. Raises
        OSError."""
        ...


class RecordSearch:
    """Finds possible starts of records in a file by their magics, from the file's start to its end.

    Each byte is searched once for each magic, however many places there are: a body may consist of
    nothing but one magic, while the other one is nowhere.
    """

    def __init__(self, file: SearchedFile) -> None:
        self._file = file
        # by magic: a place that was found, or the end of the file
        self._next = dict.fromkeys(MAGICS, -1)

    def _next_magic(self, position: int) -> int | None:
        """The first place of a magic from a position on, which must not decrease between calls."""
        for magic, place in self._next.items():
            if place < position:
                found = self._file.find(magic, position)
                self._next[magic] = found if found >= 0 else self._file.size
        place = min(self._next.values())
        return place if place < self._file.size else None

    def next_record(self, position: int) -> int | None:
        """The start of the first whole record from a position on, which must not decrease between
        calls: its magic and its physical offset are right. None if there is none. Raises
        OSError.
        """
        file = self._file
        at = position + _MAGIC_AT
        while (place := self._next_magic(at)) is not None:
            start = place - _MAGIC_AT
            at = place + 1
            if start + SMALLEST_RECORD > file.size:
                return None
            try:
                view, begin = window(file, start, SMALLEST_RECORD)
                (physical,) = _PHYSICAL.unpack_from(view, start - begin)
                if physical != file.start + start:
                    continue
                if next(read_file(file, start), None) is not None:
                    return start
            except (BadRecord, EndOfLog):
                continue
        return None
