"""Filtering the entries of a queue by the properties of their messages.

Pulls and suspended pulls know filters by tags: an entry must have one of a set of codes. A filter
by properties reads the records of the entries (`PropertyExpression.select`), which also verifies
that an entry matches the log.
"""

from collections.abc import Callable
from typing import Any

from mq.daemons.broker.filters.bloom import has_bits
from mq.daemons.broker.filters.evaluation import property_value
from mq.daemons.broker.filters.match_cache import MatchCache
from mq.daemons.broker.filters.program import programs
from mq.daemons.broker.filters.sql92 import Sql92Filter
from mq.daemons.broker.filters.table import ConsumerFilters, FilterData
from mq.daemons.broker.store import ConsumeQueue, MappedFile, MessageStore, Unit, layout
from mq.protocol.names import RETRY_PREFIX
from mq.protocol.native import failures
from mq.protocol.properties import MAX_LENGTH, PropertyKey
from mq.protocol.record import (
    AT,
    IPV6_BITS,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEAD,
    SMALLEST_RECORD,
    shift,
    struct_of,
)
from mq.protocol.tags import TagExpression

Matches = Callable[[bytes | memoryview], bool]

_iterate = layout.ENTRY.iter_unpack
_HEAD = struct_of(
    "size", "magic", "queue_id", "queue_offset", "sys_flag", "body_length"
).unpack_from
_MAGIC = MAGIC_V1
_MINIMUM = SMALLEST_RECORD
_ANY = TagExpression.parse("*")
_NOTHING = memoryview(b"")
_NO_LIMIT = 1 << 62
_NO_MEMORY = MatchCache((), lambda _: False)

# Limit of bytes times filter characters of one pull. Checking a message takes a time for each of
# its bytes and each character of the filter: this product takes at most 50 ms on the native path,
# and half a second in Python. A filter of up to 75 characters never reaches it.
_MOST_WORK = 2_000_000_000
_MOST_LOOKED_AT = MAX_LENGTH + 256  # bytes of a message without its body

# (Physical offset, size) of contiguous ranges, messages, bytes, and the number of entries that need
# not be checked again.
MatchedRanges = tuple[list[tuple[int, int]], int, int, int]


class PropertyExpression:
    """A consumer's filter by the properties of messages."""

    __slots__ = ("_data", "_matches", "_memory", "_store", "_tags", "source")

    def __init__(
        self,
        store: MessageStore,
        matches: Matches,
        *,
        memory: MatchCache | None = None,
        tags: TagExpression = _ANY,
        data: FilterData | None = None,
        source: Sql92Filter | None = None,
    ) -> None:
        """`matches` is called for messages that `tags` lets through; `memory` caches its results.
        The queue's extension may rule out messages for the filter ``data``. ``source`` is the
        filter that all of these belong to, which other expressions may share.
        """
        self.source = source
        self._store = store
        self._matches = matches
        self._memory = memory
        self._tags = tags
        self._data = data

    @property
    def program(self) -> Any:
        """The compiled filter for the native path; None if Python must check messages."""
        return None if programs.select is None or self.source is None else self.source.program

    def affordable(self, entries: bytes) -> bytes:
        """The first of these entries, as many as one pull may check; at least one."""
        if self.source is None:
            return entries
        most = _MOST_WORK // max(1, len(self.source.text))
        if len(entries) // layout.ENTRY_SIZE * _MOST_LOOKED_AT <= most:
            return entries
        work = 0
        for number, (_, size, _) in enumerate(_iterate(entries)):
            work += min(max(size, 0), _MOST_LOOKED_AT)
            if number and work > most:
                return entries[: number * layout.ENTRY_SIZE]
        return entries

    def readable(self, entries: bytes) -> bytes:
        """The entries before the first one with an unreadable record; waits for the disk.

        Raises UnreadableLog if that is the first of all.
        """
        return self._store.present.require(entries, _NO_LIMIT)

    def has_maps(self, queue: ConsumeQueue) -> bool:
        """Whether the queue's extension may rule out messages."""
        return self._data is not None and queue.extension is not None

    def sift(self, queue: ConsumeQueue, entries: bytes, most: int) -> tuple[bytes, bytes]:
        """Return the first of these entries, up to the `most`-th one that the queue's extension
        does not rule out, and those of them that it does not rule out.
        """
        kept = bytearray()
        for at in range(0, len(entries), layout.ENTRY_SIZE):
            entry = entries[at : at + layout.ENTRY_SIZE]
            if not self._ruled_out(queue, layout.ENTRY.unpack(entry)[2]):
                kept += entry
                if len(kept) == most * layout.ENTRY_SIZE:
                    return entries[: at + layout.ENTRY_SIZE], bytes(kept)
        return entries, bytes(kept)

    def select(
        self,
        queue: ConsumeQueue,
        index: int,
        entries: bytes,
        wanted: int,
        most_bytes: int = _NO_LIMIT,
        *,
        by_maps: bool = False,
    ) -> MatchedRanges:
        """Select the messages that match among some entries, the first of which has an index.

        Limits their number and total size, but selects at least one. With ``by_maps``, entries that
        the queue's extension rules out are skipped. The records of the other entries must be in
        memory (Residency), because they are read through the mapping.
        """
        begun: MatchedRanges = [], 0, 0, 0
        continues = True
        if self.program is not None and not by_maps:
            begun, continues = self._select_natively(queue, index, entries, wanted, most_bytes)
        if not continues or begun[3] * layout.ENTRY_SIZE == len(entries):
            return begun
        return self._select_on(queue, index, entries, wanted, most_bytes, by_maps, begun)

    def _select_on(
        self,
        queue: ConsumeQueue,
        first: int,
        entries: bytes,
        wanted: int,
        most_bytes: int,
        by_maps: bool,
        begun: MatchedRanges,
    ) -> MatchedRanges:
        """Continue a selection in Python: the reference of the native path."""
        log = self._store.log
        ranges, count, total, passed = begun
        index = first + passed
        entries = entries[passed * layout.ENTRY_SIZE :]
        if self._tags.codes and queue.extension is not None:
            entries = queue.extension.resolve(entries, unknown=next(iter(self._tags.codes)))
        memory = _NO_MEMORY if self._memory is None or self._tags.codes else self._memory
        shape, recall = memory.shape, memory.known.get
        fixed = RECORD_HEAD.size + len(queue.topic_field) + layout.SHORT.size
        queue_id = queue.queue_id
        # The last range is not in the list yet; before the first message it is empty.
        begin, length = ranges.pop() if ranges else (-1, 0)
        # the file, and the part of it for which the fast path below is used
        base = least = limit = 0
        view = _NOTHING
        for physical, size, code in _iterate(entries):
            answer: bool | None = None
            # Usual messages are decided inline: this loop is the cost of a filter.
            if least <= physical <= limit - size and size >= _MINIMUM:
                at = physical - base
                there, magic, its_queue, offset, flag, body = _HEAD(view, at)
                start = fixed + body
                if (
                    there == size
                    and magic == _MAGIC
                    and its_queue == queue_id
                    and offset == index
                    and not flag & IPV6_BITS
                    and fixed <= start <= size
                ):
                    values = shape(view, at + start, at + size)
                    if values is not None:
                        answer = recall(values.groups())
            if answer is None:
                file = log.file_at(physical)
                if file is not None:
                    base, limit, view = file.start, file.end, file.view
                    least = _NO_LIMIT if by_maps else base
                place = None
                if not (by_maps and self._ruled_out(queue, code)):
                    place = self._locate_match(queue, index, physical, size, code)
                    shape, recall = memory.shape, memory.known.get
                if place is not None:
                    physical, size = place
                answer = place is not None
            if answer:
                total += size
                if count and total > most_bytes:
                    total -= size
                    break
                count += 1
                if physical == begin + length:
                    length += size
                else:
                    if length:
                        ranges.append((begin, length))
                    begin, length = physical, size
                if count >= wanted:
                    index += 1
                    break
            index += 1
        if length:
            ranges.append((begin, length))
        return ranges, count, total, index - first

    def _select_natively(
        self,
        queue: ConsumeQueue,
        index: int,
        entries: bytes,
        wanted: int,
        most_bytes: int,
    ) -> tuple[MatchedRanges, bool]:
        """Select natively among the first of these entries, as many as the native path can handle;
        also returns whether the remaining entries must be checked.
        """
        (physical,) = layout.LONG.unpack_from(entries)
        file = self._store.log.file_at(physical)
        if file is None or programs.select is None:
            return ([], 0, 0, 0), True
        try:
            *begun, continues = programs.select(
                self.program,
                file.view,
                file.start,
                entries,
                index,
                queue.queue_id,
                len(queue.topic_field) + layout.SHORT.size,
                max(wanted, 1),  # at least one, even if none is requested
                most_bytes,
            )
        except failures:
            programs.end()
            return ([], 0, 0, 0), True
        return (begun[0], begun[1], begun[2], begun[3]), continues

    def _locate_match(
        self, queue: ConsumeQueue, index: int, physical: int, size: int, code: int
    ) -> tuple[int, int] | None:
        """The location of an entry's message, if it matches."""
        codes = self._tags.codes
        if codes and code not in codes:
            return None
        properties = _properties(queue, index, self._store.log.file_at(physical), physical, size)
        if properties is None:  # damaged, or its log file has been deleted
            entry = self._store.entries.at(queue.topic, queue.queue_id, index)
            if entry is None or entry[:2] == (physical, size):
                return None
            physical, size = entry[:2]
            file = self._store.log.file_at(physical)
            properties = _properties(queue, index, file, physical, size)
        if properties is None:
            return None
        if self._memory is not None:
            matches = self._memory.decide(properties, 0, len(properties))
        else:
            matches = self._matches(properties)
        return (physical, size) if matches else None

    def _ruled_out(self, queue: ConsumeQueue, code: int) -> bool:
        """Whether the queue's extension rules out the message of an entry."""
        if self._data is None or queue.extension is None or code > layout.EXTENSION_LAST:
            return False
        unit = queue.extension.unit(code)
        return unit is not None and is_ruled_out(unit, self._data)


def is_ruled_out(unit: Unit, data: FilterData) -> bool:
    """Whether the bit map of a message says that it did not match the group's filter when it was
    stored (ExpressionMessageFilter.isMatchedByConsumeQueue).
    """
    # The bit map of a message that is older than the filter has no bits of it.
    if unit.store_timestamp <= data.born_time or len(unit.bit_map) * 8 != data.bits:
        return False
    return not has_bits(unit.bit_map, data.bit_positions)


def _properties(
    queue: ConsumeQueue, index: int, file: MappedFile | None, physical: int, size: int
) -> memoryview | None:
    """The stored properties of an entry's message: the bytes of the record after body, topic and
    the length of the properties. None if the record is not that message.
    """
    if file is None or physical + size > file.end or size < SMALLEST_RECORD:
        return None
    view, at = file.view, physical - file.start
    found, magic, queue_id, offset, flag, body = _HEAD(view, at)
    if found != size or queue_id != queue.queue_id or offset != index:
        return None
    start = RECORD_HEAD.size + len(queue.topic_field) + layout.SHORT.size
    if magic == MAGIC_V2:
        start += 1  # the topic's length has two bytes
    elif magic != MAGIC_V1:
        return None
    if flag & IPV6_BITS:
        longer = shift("body_length", flag)
        start += longer
        (body,) = layout.INT.unpack_from(view, at + AT["body_length"] + longer)
    start += body
    return view[at + start : at + size] if body >= 0 and start <= size else None


def filter_of_retries(filters: ConsumerFilters, group: str) -> Matches:
    """A test of messages of the group's retry topic by the filter of their original topic.

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


# By tags, or by properties.
Expression = TagExpression | PropertyExpression
