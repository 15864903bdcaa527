"""Filtering the entries of a queue by the properties of their messages.

A pull and a wait for messages know filters by tags: a set of codes that an entry must have one of.
A filter by properties is given the same form: `PropertyExpression.mark` looks into the records of
some entries and writes a code of its own into those that match, so that the loop over entries is
the same for both and pays nothing for this kind.
"""

import struct
from collections.abc import Callable

from mq.daemons.broker.filter.bloom import has_bits
from mq.daemons.broker.filter.evaluation import property_value
from mq.daemons.broker.filter.table import ConsumerFilters, FilterData
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.mapped_file import MappedFile
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.queue_extension import Unit
from mq.protocol.names import RETRY_PREFIX
from mq.protocol.properties import PropertyKey
from mq.protocol.tags import TagExpression

Matches = Callable[[bytes | memoryview], bool]

MATCHED = 1
_NOT_MATCHED = layout.LONG.pack(0)
_IS_MATCHED = layout.LONG.pack(MATCHED)
_CODES = frozenset((MATCHED,))
_CODE_AT = layout.ENTRY_SIZE - layout.LONG.size

# Of a record's head: size, magic, queue id, queue offset, system flag, body length.
_HEAD = struct.Struct(">ii4xi4xq8xi44xi").unpack_from
_IPV6 = layout.SYS_FLAG_BORN_IPV6 | layout.SYS_FLAG_STORE_IPV6
_ANY = TagExpression.parse("*")

# Of messages that are probably not in memory so few are read for one pull: the loop waits.
_MOST_COLD = 64


class PropertyExpression:
    """What a consumer wants, by the properties of messages.

    Attributes:
        codes: the code that `mark` gives to entries that match.
    """

    __slots__ = ("_data", "_matches", "_store", "_tags", "_warm_bytes", "codes")

    def __init__(
        self,
        store: MessageStore,
        matches: Matches,
        warm_bytes: int,
        tags: TagExpression = _ANY,
        data: FilterData | None = None,
    ) -> None:
        """`matches` is asked for messages that `tags` lets through; what lies further than
        ``warm_bytes`` behind the end of the log is probably not in memory, and is not read if the
        queue's extension says that it does not match the filter ``data``."""
        self.codes = _CODES
        self._data = data
        self._warm_bytes = warm_bytes
        self._store = store
        self._matches = matches
        self._tags = tags

    def mark(self, queue: ConsumeQueue, index: int, entries: bytes, wanted: int) -> bytes:
        """The entries, the first of which has an index, each with the code 1 or 0 for whether its
        message matches; none behind the last of those that are wanted."""
        codes = self._tags.codes
        if codes and queue.extension is not None:
            entries = queue.extension.resolve(entries, unknown=next(iter(codes)))
        log = self._store.log
        coldest = log.written - self._warm_bytes
        cold = 0
        file = None
        marked = bytearray(entries)
        at = _CODE_AT
        for physical, size, code in layout.ENTRY.iter_unpack(entries):
            # In memory the record tells as fast as the extension would.
            is_cold = physical < coldest
            if is_cold and code <= layout.EXTENSION_LAST and self._ruled_out(queue, code):
                wanted_here = False
            else:
                cold += is_cold
                if file is None or not file.start <= physical < file.end:
                    file = log.file_at(physical)
                wanted_here = (not codes or code in codes) and self._match(
                    queue, index, file, physical, size
                )
            if wanted_here:
                marked[at : at + 8] = _IS_MATCHED
                wanted -= 1
            else:
                marked[at : at + 8] = _NOT_MATCHED
                if size <= 0:  # damage that was looked into: not to be mended and sent by the pull
                    layout.ENTRY.pack_into(marked, at - _CODE_AT, max(physical, 0), 1, 0)
            at += layout.ENTRY_SIZE
            index += 1
            if wanted <= 0 or cold >= _MOST_COLD:
                break
        return bytes(marked[: at - _CODE_AT])

    def _ruled_out(self, queue: ConsumeQueue, address: int) -> bool:
        if self._data is None or queue.extension is None:
            return False
        unit = queue.extension.unit(address)
        return unit is not None and is_ruled_out(unit, self._data)

    def _match(
        self, queue: ConsumeQueue, index: int, file: MappedFile | None, physical: int, size: int
    ) -> bool:
        properties = _properties(queue, index, file, physical, size)
        if properties is None:  # damaged, or its log file has been deleted
            entry = self._store.consume_queue_entry(queue.topic, queue.queue_id, index)
            if entry is None or entry[:2] == (physical, size):
                return False
            file = self._store.log.file_at(entry[0])
            properties = _properties(queue, index, file, entry[0], entry[1])
        return properties is not None and self._matches(properties)


def is_ruled_out(unit: Unit, data: FilterData) -> bool:
    """Whether the map of a message says that it did not match the group's filter when it was
    stored (ExpressionMessageFilter.isMatchedByConsumeQueue)."""
    # A message that is older than the filter has no bits of it.
    if unit.store_timestamp <= data.born_time or len(unit.bit_map) * 8 != data.bits:
        return False
    return not has_bits(unit.bit_map, data.bit_positions)


def _properties(
    queue: ConsumeQueue, index: int, file: MappedFile | None, physical: int, size: int
) -> memoryview | None:
    """The stored properties of the message that an entry points at: what stands in the record
    behind body, topic and their own length. None if it is not that message."""
    if file is None or physical + size > file.end or size < layout.RECORD_MINIMUM:
        return None
    view, at = file.view, physical - file.start
    found, magic, queue_id, offset, flag, body = _HEAD(view, at)
    if found != size or queue_id != queue.queue_id or offset != index:
        return None
    start = layout.RECORD_HEAD.size + len(queue.topic_field) + layout.SHORT.size
    if magic == layout.MAGIC_V2:
        start += 1  # the topic's length has two bytes
    elif magic != layout.MAGIC_V1:
        return None
    if flag & _IPV6:
        for bit in (layout.SYS_FLAG_BORN_IPV6, layout.SYS_FLAG_STORE_IPV6):
            start += layout.IPV6_EXTRA if flag & bit else 0
        body_at = start - len(queue.topic_field) - layout.SHORT.size - layout.INT.size
        (body,) = layout.INT.unpack_from(view, at + body_at - (magic == layout.MAGIC_V2))
    start += body
    return view[at + start : at + size] if body >= 0 and start <= size else None


def filter_of_retries(filters: ConsumerFilters, group: str) -> Matches:
    """A test of messages of the group's retry topic by the filter of the topic they come from.

    Source: ExpressionForRetryMessageFilter, for filterSupportRetry.
    """
    topic_of = property_value(PropertyKey.RETRY_TOPIC)

    def matches(properties: bytes | memoryview) -> bool:
        topic = topic_of(b"\x02" + properties)
        data = None if topic is None else filters.get(topic.decode("utf-8", "replace"), group)
        return data is None or data.filter is None or data.filter.matches(properties)

    return matches


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)
