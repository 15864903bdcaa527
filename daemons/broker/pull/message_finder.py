"""Message finder: selects the records of a queue that a consumer requests, from an offset on.

Only the very message that a queue entry refers to is sent: an entry may be damaged, or may point at
a deleted record. So the head of each record is checked, except where checking its neighbours
suffices.
"""

import struct
from collections.abc import Callable, Collection
from functools import cache
from typing import NamedTuple

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filters.properties import Expression, PropertyExpression
from mq.daemons.broker.pull import bulk
from mq.daemons.broker.store import (
    ConsumeQueue,
    MessageStore,
    NotInMemory,
    Residency,
    UnreadableLog,
    layout,
)
from mq.protocol.codes import ResponseCode
from mq.protocol.record import MAGIC_V1, RECORD_IDENTITY, SMALLEST_RECORD
from mq.protocol.tags import TagExpression

FOUND = int(ResponseCode.SUCCESS)
NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
RETRY = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
MOVED = int(ResponseCode.PULL_OFFSET_MOVED)

_ENTRY_SIZE = layout.ENTRY_SIZE
_FILLER_SIZE = layout.FILLER_SIZE
_iterate = layout.ENTRY.iter_unpack
_identity = RECORD_IDENTITY.unpack_from
_identity_size = RECORD_IDENTITY.size
_MAGIC = MAGIC_V1
# Limit of entries scanned by a pull with a filter (Java: maxFilterMessageCount, 16000 bytes).
MOST_SCANNED = 800
# Limit of messages that one pull reads from the disk so that a filter can check their properties.
_MOST_READ_BY_FILTER = 64


class FoundMessages(NamedTuple):
    """The result for a reader of a queue."""

    code: int
    next_offset: int  # the next offset to read
    ranges: list[tuple[int, int]]  # physical offset and size of each contiguous range
    messages: int
    size: int  # bytes

    @property
    def end(self) -> int:
        """The physical offset after the last message, 0 if there is none."""
        return sum(self.ranges[-1]) if self.ranges else 0


class MessageFinder:
    """Finds messages of queues."""

    def __init__(
        self,
        store: MessageStore,
        settings: BrokerSettings,
    ) -> None:
        self._store = store
        self._settings = settings
        self._log = store.log

    def find(
        self,
        queue: ConsumeQueue,
        offset: int,
        maximum: int,
        expression: Expression,
        bulk_bytes: int = 0,
        present: Residency | None = None,
    ) -> FoundMessages:
        """Find the records for a pull.

        With ``bulk_bytes``, up to so many bytes (mq.daemons.broker.pull.bulk). Raises
        NotInMemory if ``present`` says that records must be read from a disk; without ``present``
        this call reads them. The result ends before an unreadable record; raises UnreadableLog if
        that is the first.
        """
        present = self._store.present if present is None else present
        end = queue.readable
        if offset >= end or offset < queue.minimum:
            return self._out_of_range(queue, offset, end)
        config = self._settings.store
        wanted = min(maximum, config.max_transfer_count_on_message_in_memory)
        most_bytes = config.max_transfer_bytes_on_message_in_memory
        if bulk_bytes:
            wanted, most_bytes = min(maximum, bulk_bytes // SMALLEST_RECORD), bulk_bytes
        everything = isinstance(expression, TagExpression) and not expression.codes
        # A filter scans no more for a bulk pull, so that it does not delay other clients.
        scan = wanted if everything else max(MOST_SCANNED, 0 if bulk_bytes else wanted)
        entries = queue.entries(offset, max(scan, 1))
        # the file with that entry is deleted or damaged: continue with the next file
        if not entries:
            return FoundMessages(NOT_FOUND, queue.next_file_index(offset), [], 0, 0)
        if isinstance(expression, PropertyExpression):
            entries = expression.affordable(entries)
            return self._select(queue, offset, entries, expression, wanted, most_bytes, present)
        codes = expression.codes
        if codes and queue.extension is not None:
            entries = queue.extension.resolve(entries, unknown=next(iter(codes)))
        elif not codes and len(entries) <= wanted * _ENTRY_SIZE:
            if bulk_bytes:
                found = self._take_bulk(queue, entries, offset, most_bytes, present)
            else:
                entries = present.require(entries, most_bytes)
                found = self._take_all(queue, entries, offset, most_bytes)
            if found is not None:
                return found
        try:
            return self._take_checked(queue, entries, offset, codes, wanted, most_bytes, present)
        except UnreadableLog as error:
            entries = error.before(entries)
            if not entries:
                raise
        return self._take_checked(queue, entries, offset, codes, wanted, most_bytes, present)

    def _take_checked(
        self,
        queue: ConsumeQueue,
        entries: bytes,
        offset: int,
        codes: Collection[int],
        wanted: int,
        most_bytes: int,
        present: Residency,
    ) -> FoundMessages:
        """The result after checking each record; with codes, only records with one of them."""
        log = self._log
        minimum = log.minimum
        missing: list[int] = []
        ranges: list[tuple[int, int]] = []
        start = length = count = size = 0
        index = offset - 1
        queue_id = queue.queue_id
        file_start = file_end = -1
        for physical, entry_size, code in _iterate(entries):
            index += 1
            if codes and code not in codes and entry_size > 0:
                continue
            if physical < minimum or entry_size == _FILLER_SIZE:
                # Its log file has been deleted; an entry that is not valid is repaired below.
                if physical >= 0 and entry_size > 0:
                    continue
            if count and (count >= wanted or size + entry_size > most_bytes):
                index -= 1
                break
            if absent := present.missing(physical, entry_size):
                missing += absent
                count += 1
                size += entry_size
                continue
            if not file_start <= physical < file_end:
                file = log.file_at(physical)
                if file is not None:
                    file_start, file_end, view = file.start, file.end, file.view
            # Never send bytes that are not this very message: an entry may be damaged.
            if not file_start <= physical <= file_end - _identity_size or _identity(
                view, physical - file_start
            ) != (entry_size, _MAGIC, queue_id, index):
                place = self._place_of(queue, index, codes)
                if place is None:
                    continue
                physical, entry_size = place
            if physical == start + length:
                length += entry_size
            else:
                if length:
                    ranges.append((start, length))
                start, length = physical, entry_size
            count += 1
            size += entry_size
        if missing:
            raise NotInMemory(missing)
        if length:
            ranges.append((start, length))
        return FoundMessages(FOUND if count else RETRY, index + 1, ranges, count, size)

    def _place_of(
        self, queue: ConsumeQueue, index: int, codes: Collection[int]
    ) -> tuple[int, int] | None:
        """Find the message of a damaged entry; None if it is deleted, or its tags code is not in
        codes.
        """
        true_entry = self._store.entries.at(queue.topic, queue.queue_id, index)
        if true_entry is None or (codes and true_entry[2] not in codes):
            return None
        return true_entry[:2]

    def _take_all(
        self, queue: ConsumeQueue, entries: bytes, offset: int, most_bytes: int
    ) -> FoundMessages | None:
        """The result if all entries are requested and valid; None if that is not certain.

        If the records are adjacent, checking the first and the last one suffices. If not, entries
        from before the start of this process must be checked one by one.
        """
        count = len(entries) // _ENTRY_SIZE
        numbers = _unpack_all(count)(entries)
        physicals = numbers[::3]
        sizes = numbers[1::3]
        size = sum(sizes)
        start, last, last_size = physicals[0], physicals[-1], sizes[-1]
        log = self._log
        file = log.file_at(start)
        if file is None or size > most_bytes:
            return None
        if (
            not start <= last <= min(file.end, log.written) - last_size
            or last_size < SMALLEST_RECORD
        ):
            return None
        view, base, queue_id = file.view, file.start, queue.queue_id
        if _identity(view, start - base) != (sizes[0], _MAGIC, queue_id, offset) or _identity(
            view, last - base
        ) != (last_size, _MAGIC, queue_id, offset + count - 1):
            return None
        # A lost message has the entry of the next one. If both have the same size, the sum is right
        # nevertheless.
        if last + last_size - start == size and (
            offset >= queue.trusted or len(set(physicals)) == count
        ):
            return FoundMessages(FOUND, offset + count, [(start, size)], count, size)
        if offset < queue.trusted or physicals != tuple(sorted(physicals)):
            return None
        if min(sizes) < SMALLEST_RECORD:
            return None
        ranges = list(zip(physicals, sizes, strict=True))
        return FoundMessages(FOUND, offset + count, ranges, count, size)

    def _take_bulk(
        self,
        queue: ConsumeQueue,
        entries: bytes,
        offset: int,
        most_bytes: int,
        present: Residency,
    ) -> FoundMessages | None:
        """The result of a pull that may get a bulk reply; None if an entry is not as expected."""
        taken = bulk.take(self._log, queue, entries, offset, most_bytes, present)
        if taken is None:
            return None
        ranges, count, size = taken
        return FoundMessages(FOUND, offset + count, ranges, count, size)

    def _select(
        self,
        queue: ConsumeQueue,
        offset: int,
        entries: bytes,
        expression: PropertyExpression,
        wanted: int,
        most_bytes: int,
        present: Residency,
    ) -> FoundMessages:
        """The result if the records themselves must be checked: the leading ones that are in
        memory. Bit maps of the queue's extension avoid reading the others.
        """
        entries = present.before_unreadable(entries)
        by_maps = expression.has_maps(queue)
        there = 0 if present.waits else present.leading(entries) * _ENTRY_SIZE
        if there == len(entries):
            by_maps = False  # the record is as fast to check
        elif there and not by_maps:
            entries = entries[:there]
        else:
            entries, looked_at = expression.sift(queue, entries, _MOST_READ_BY_FILTER)
            if looked_at:
                present.require(looked_at, most_bytes)
                entries = present.before_unreadable(entries)
        ranges, count, size, passed = expression.select(
            queue, offset, entries, wanted, most_bytes, by_maps=by_maps
        )
        return FoundMessages(FOUND if count else RETRY, offset + passed, ranges, count, size)

    def _out_of_range(self, queue: ConsumeQueue, offset: int, end: int) -> FoundMessages:
        if end == 0:
            return FoundMessages(NOT_FOUND if offset == 0 else MOVED, 0, [], 0, 0)
        if offset == end:
            return FoundMessages(NOT_FOUND, offset, [], 0, 0)
        if offset < queue.minimum:
            return FoundMessages(MOVED, queue.minimum, [], 0, 0)
        # A consumer after the end read the queue before a power cut or damage removed its end, or
        # before it was cleaned, and has seen none of the messages since. (Java continues at the end
        # nevertheless.)
        known = self._store.end_before(queue)
        return FoundMessages(MOVED, max(queue.minimum, min(known, end)), [], 0, 0)


@cache
def _unpack_all(count: int) -> Callable[[bytes], tuple[int, ...]]:
    """Unpacks so many queue entries into one tuple."""
    return struct.Struct(">" + count * layout.ENTRY.format[1:]).unpack
