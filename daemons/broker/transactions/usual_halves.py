"""The fast way to read a half for its commit.

It accepts a record as this broker writes it, of a message that is neither delayed nor timed. For
any other record `UsualHalves.read` returns None, and the caller uses `Transactions.find_half` and
`commit`. These are the reference: only they refuse, repair and restore.
"""

from typing import NamedTuple

from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.store import ConsumeQueue, MessageStore, layout
from mq.daemons.broker.transactions.records import HALF_QUEUE
from mq.protocol import names
from mq.protocol.checksum import crc32
from mq.protocol.flags import SysFlag
from mq.protocol.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    PropertyKey,
)
from mq.protocol.record import CRC_MASK, IPV6_BITS, MAGIC_V1, RECORD_HEAD

_HEAD_SIZE = RECORD_HEAD.size
_unpack_head = RECORD_HEAD.unpack_from
_UNUSUAL_BITS = SysFlag.TRANSACTION_MASK | IPV6_BITS
_OF_TIMER = "TIMER_"
_ENTRY_SIZE = layout.ENTRY.size
_ENTRIES = 64  # entries of the queue of halves read at a time: the halves of a request are adjacent


class UsualHalf(NamedTuple):
    """The data of a half that a commit needs."""

    queue_offset: int
    physical: int
    size: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int


class UsualHalves:
    """Reads ordinary halves, for one turn of the event loop, in which neither topics nor entries
    change.
    """

    def __init__(self, store: MessageStore, writer: MessageWriter) -> None:
        self._store = store
        self._writer = writer
        self._halves = store.queues.get(names.TRANSACTION_HALF_TOPIC, HALF_QUEUE)
        # Queues of committed halves by topic and queue id, as halves have them.
        self.targets: dict[tuple[str, str], ConsumeQueue] = {}
        self._entries = b""
        self._first = 0  # the queue offset of the first of _entries

    def read(self, physical: int, queue_offset: int) -> UsualHalf | None:
        """The half at these offsets, according to log and queue; None if the slow way has to read
        it.
        """
        record = self._store.record_at(physical)
        if record is None or len(record) < _HEAD_SIZE or self._place(queue_offset) != physical:
            return None
        head = _unpack_head(record)
        size, magic, crc, queue_id, flag, offset, position, sys_flag, born, host, *rest = head
        if (size, magic, queue_id, offset, position) != (
            *(len(record), MAGIC_V1, HALF_QUEUE, queue_offset),
            physical,
        ):
            return None
        _, _, reconsume_times, _, body_length = rest
        assert self._halves is not None
        topic_field = self._halves.topic_field
        end = _HEAD_SIZE + body_length
        if sys_flag & _UNUSUAL_BITS or not record.startswith(topic_field, end):
            return None
        body, field = record[_HEAD_SIZE:end], record[end + len(topic_field) :]
        properties = _read_properties(field)
        if properties is None or crc32(body) & CRC_MASK != crc:
            return None
        return UsualHalf(
            queue_offset,
            physical,
            size,
            body,
            properties,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=born,
            born_host=host,
            reconsume_times=reconsume_times,
        )

    def _place(self, queue_offset: int) -> int:
        """The physical offset of a half according to its queue; -1 if unknown."""
        at = (queue_offset - self._first) * _ENTRY_SIZE
        if not 0 <= at < len(self._entries):
            if self._halves is None:
                return -1
            self._entries = self._halves.entries(queue_offset, _ENTRIES)
            self._first, at = queue_offset, 0
            if not self._entries:
                return -1
        place: int = layout.ENTRY.unpack_from(self._entries, at)[0]
        return place

    def target(self, half: UsualHalf) -> ConsumeQueue:
        """The target queue of a half. Its topic may be created again, if the client may send to it.

        Raises NoTarget.
        """
        get = half.properties.get
        key = get(PropertyKey.REAL_TOPIC, ""), get(PropertyKey.REAL_QUEUE_ID, "")
        target = self.targets.get(key)
        if target is None:
            place = self._writer.target_of(half.properties)
            target = self.targets[key] = self._store.queue(*place)
        return target


def _read_properties(field: bytes) -> dict[str, str] | None:
    """Parse properties as in a record, if they have the form that this broker writes and request
    nothing except storing.
    """
    if len(field) < 2 or layout.SHORT.unpack_from(field)[0] != len(field) - 2:
        return None
    try:
        text = field[2:].decode()
    except UnicodeDecodeError:
        return None
    found: dict[str, str] = {}
    for segment in text.split(PROPERTY_SEPARATOR):
        name, _, value = segment.partition(NAME_VALUE_SEPARATOR)
        if not value or not name or name in found:
            return None
        if name == PropertyKey.DELAY_LEVEL or name.startswith(_OF_TIMER):
            return None
        found[name] = value
    return found
