"""Reading the log from one end to the other: for recovery, and for making queues and index
again."""

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.windows import LogReader
from mq.protocol.checksum import crc32
from mq.protocol.flags import SysFlag
from mq.protocol.names import SCHEDULE_TOPIC
from mq.protocol.properties import PropertyKey, decode
from mq.protocol.record import (
    AT,
    BLANK,
    CRC_MASK,
    IPV6_BITS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SMALLEST_RECORD,
    part,
    shift,
)
from mq.protocol.tags import tags_code

_HEAD = part("size", "sys_flag")
_LONG = 1 << 20  # bytes that are held of a record, which may claim all of a file, to check it
_LONGEST_TAIL = 2 * (2 + (1 << 15))  # topic and properties, with their lengths
_LONGEST_DAMAGED = 64 << 20  # bytes of a damaged record that are read into memory
_LATEST = (1 << 63) - 1  # that an entry can say, ms
_TRANSACTION_MASK = SysFlag.TRANSACTION_MASK
IN_NO_QUEUE = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)


class LogFile(Protocol):
    """A file of the log. `start` is the physical offset of its first byte; `window` is memory that
    has at least so many bytes from a position on, of those that the file has, and where in the file
    it begins."""

    @property
    def start(self) -> int: ...
    @property
    def size(self) -> int: ...
    def window(self, position: int, size: int) -> tuple[memoryview, int]: ...


class Record(NamedTuple):
    """What queues and index need to know of a record."""

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
        """Whether a consumer may see it: not the first or the withdrawn half of a transaction."""
        return self.sys_flag & _TRANSACTION_MASK not in IN_NO_QUEUE

    @property
    def is_indexed(self) -> bool:
        """Whether its keys find it: not that of a withdrawn transaction."""
        return self.sys_flag & _TRANSACTION_MASK != SysFlag.TRANSACTION_ROLLBACK


class BadRecord(Exception):
    """What is at an offset is not a record. The text says why."""


class UnreadableRecord(BadRecord):
    """The disk does not give what is at an offset."""


class EndOfLog(Exception):
    """Nothing was written at an offset."""


def read_log(commit_log: CommitLog, start: int) -> Iterator[Record]:
    """Yield the records from an offset on, each verified with its checksum, up to where none is.

    Raises BadRecord at the first one that is damaged.
    """
    position = start
    while (file := commit_log.file_at(position)) is not None:
        try:
            yield from read_file(LogReader(file), position - file.start)
        except EndOfLog:
            return
        position = file.end


def is_last(commit_log: CommitLog, record: Record) -> bool:
    """Whether no record follows one."""
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

    If queue offsets do not increase, the records before belong to an earlier life (see `lives`).
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
    """A window of a file. Raises UnreadableRecord where the disk cannot be read, and OSError."""
    try:
        return file.window(position, size)
    except OSError as error:
        if error.errno not in files.UNREADABLE:
            raise
        raise UnreadableRecord(f"it cannot be read: {error.strerror}") from None


def read_file(file: LogFile, position: int) -> Iterator[Record]:
    """Yield the records of one file of the log, from a position in it on, up to its blank.

    Raises BadRecord at one that is damaged or cannot be read, EndOfLog where nothing was written.
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
    """The record at a position of a file, in pieces: whoever sends bodies chooses what is in them,
    perhaps many heads that claim all of the file. What is cheap to see is looked at first.
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
    """The record at a physical offset of a log file, without a check of its body; None if there is
    none."""
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
    """The record at a position of memory, which belongs to a physical offset; all of it is there.

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
    """The part of a record whose place depends on its hosts and its body."""
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
    """Whether a sector behind the body of a record, which no checksum covers, is zeros.

    So it is where a power cut has kept it from the disk: from end to end, whatever else lies in it.
    The lengths of topic and properties are no zeros, and `Appender` takes no properties that look
    like that. Of a log that no power cut has touched this says nothing: Java takes all properties.
    """
    if "\0" not in record.properties and "\0" not in record.topic:
        return False
    file = commit_log.file_at(record.physical)
    assert file is not None
    start = record.physical - file.start
    begin = start - start % layout.SECTOR
    # The sectors of the record, from their beginning to their end.
    data = file.read(begin, -(-(start + record.size) // layout.SECTOR) * layout.SECTOR - begin)
    at = start - begin + AT["body_length"] + shift("body_length", record.sys_flag)
    behind_body = at + 4 + layout.INT.unpack_from(data, at)[0]
    return any(
        not any(data[sector : sector + layout.SECTOR])
        for sector in range(
            behind_body - behind_body % layout.SECTOR, start - begin + record.size, layout.SECTOR
        )
    )


def keys_of(properties: dict[str, str]) -> tuple[str, ...]:
    """What a message can be found by: its unique id, then each of its keys."""
    unique = properties.get(PropertyKey.UNIQUE_KEY)
    keys = properties.get(PropertyKey.KEYS)
    named = tuple(key for key in keys.split(" ") if key) if keys else ()
    return (unique, *named) if unique else named


def queue_tags_code(
    topic: str, properties: dict[str, str], store_timestamp: int, delays: dict[int, int]
) -> int:
    """The tags code of a queue entry: the tag's hash, or for a delayed message when it is due.

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
