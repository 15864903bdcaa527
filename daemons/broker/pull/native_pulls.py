"""Replies to plain pulls, made by the native path (docs/decisions/0047)."""

from collections.abc import Collection
from typing import Any, NamedTuple

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filters.properties import Expression, PropertyExpression
from mq.daemons.broker.native_failure import log_native_failure
from mq.daemons.broker.pull.message_finder import FOUND, MOST_SCANNED, RETRY
from mq.daemons.broker.pull.pull_reply import REPLIES
from mq.daemons.broker.store import CommitLog, ConsumeQueue, Residency, layout
from mq.protocol.native import failures, native
from mq.protocol.tags import TagExpression

_physical = layout.LONG.unpack_from  # of an entry
# Limit of tags codes: the native path compares each entry with each code, and with more codes
# Python's set is faster.
_MOST_CODES = 64
# Limits of a prefetch: pulls, entries (10 KB), and bytes of the log, because the residency of each
# chunk of it is checked.
_PREFETCHED_PULLS = 16
_MOST_ENTRIES = 512
_LONGEST_PREFETCHED = 16 * 1024 * 1024


class PullAnswer(NamedTuple):
    """A whole reply, and what it contains."""

    frame: bytes
    next_offset: int
    messages: int
    size: int  # bytes
    end: int  # the physical offset after the last message


class NativePulls:
    """Finds and copies messages for pulls if the native path is available."""

    def __init__(self, settings: BrokerSettings, commit_log: CommitLog) -> None:
        self._settings = settings
        self._log = commit_log
        self._path: Any = None
        if native is not None:
            self._path = native.PullPath(REPLIES[FOUND].pieces(), REPLIES[RETRY].pieces())

    @property
    def is_taken(self) -> bool:
        """Whether pulls are offered to the native path: it is available and has not failed."""
        return self._path is not None

    def answer(
        self,
        queue: ConsumeQueue,
        offset: int,
        maximum: int,
        expression: Expression,
        present: Residency | None,
        opaque: object,
    ) -> PullAnswer | None:
        """The reply to a pull, with the messages that `MessageFinder.find` would find.

        None if Python must answer. Raises OSError, and NotInMemory if ``present`` says that the
        messages must be read from a disk.
        """
        if isinstance(expression, TagExpression):
            return self._answer_by(
                *(queue, offset, maximum, expression.codes, None, present, opaque)
            )
        if expression.program is None:
            return None
        return self._answer_by(queue, offset, maximum, (), expression, present, opaque)

    def _answer_by(
        self,
        queue: ConsumeQueue,
        offset: int,
        maximum: int,
        codes: Collection[int],
        by_properties: PropertyExpression | None,
        present: Residency | None,
        opaque: object,
    ) -> PullAnswer | None:
        """Select all messages, those with one of the tags codes, or those that match a filter by
        properties.
        """
        path = self._path
        program = None if by_properties is None else by_properties.program
        minimum, end = queue.minimum, queue.readable
        if path is None or not minimum <= offset < end:
            return None
        wanted, most_bytes = limits = self._limits(maximum)
        if codes:
            if len(codes) > _MOST_CODES or queue.extension is not None:
                return None
        if codes or program is not None:
            entries = queue.entries(offset, max(MOST_SCANNED, wanted))
        else:
            entries = queue.entries(offset, wanted)
        if by_properties is not None:
            entries = by_properties.affordable(entries)
        if not entries or wanted < 1 or most_bytes < 0:
            return None
        if present is None:  # a pull that waits for the disk is Python's
            return None
        if codes or program is not None:
            if not present.holds(entries):  # the matching messages alone may be in memory
                return None
        else:
            entries = present.require(entries, most_bytes)
        part = self._part(entries)
        if part is None:
            return None
        by_program = program and (program, len(queue.topic_field) + layout.SHORT.size)
        try:
            made = path.answer(
                *(entries, queue.queue_id, offset, (tuple(codes), by_program), limits),
                *(part, (minimum, end), opaque),
            )
        except failures:  # nothing has been sent: Python answers
            self.end(f"messages of {queue!r}")
            return None
        return None if made is None else PullAnswer._make(made)

    def prefetch(
        self, queue: ConsumeQueue, offset: int, maximum: int, present: Residency
    ) -> tuple[object, int] | None:
        """Prefetch the messages of the next pulls without a filter, from an offset on; returns them
        with their number. They are valid until residency must be checked again, or the queue or
        the settings change.

        None if fewer messages than two pulls take are available, or not all of them are in memory.
        Raises OSError.
        """
        limits = self._limits(maximum)
        wanted = limits[0]
        entries = queue.entries(offset, min(_PREFETCHED_PULLS * wanted, _MOST_ENTRIES))
        while len(entries) > layout.ENTRY_SIZE and _length(entries) > _LONGEST_PREFETCHED:
            entries = entries[: len(entries) // layout.ENTRY_SIZE // 2 * layout.ENTRY_SIZE]
        if wanted < 1 or limits[1] < 0 or len(entries) < 2 * wanted * layout.ENTRY_SIZE:
            return None
        until = present.holds_until(entries)
        part = self._part(entries) if until else None
        if part is None:
            return None
        place = queue.queue_id, offset
        prefetched = native.Prefetched(self._path, entries, *place, limits, part, until)
        return prefetched, len(entries) // layout.ENTRY_SIZE

    def _limits(self, maximum: int) -> tuple[int, int]:
        """The limits of messages and bytes of a pull that requests at most so many messages."""
        config = self._settings.store
        count = min(maximum, config.max_transfer_count_on_message_in_memory)
        return count, config.max_transfer_bytes_on_message_in_memory

    def _part(self, entries: bytes) -> tuple[memoryview, int, int] | None:
        """The written part of the file of the first entry's message, its length, and the file's
        offset.
        """
        (first,) = _physical(entries)
        log = self._log
        file = log.file_at(first)
        if file is None:
            return None
        start = file.start
        return file.view, min(file.end, log.written) - start, start

    def end(self, at: str) -> None:
        """Leave pulls to Python from now on: the cause of the failure may come with each pull."""
        self._path = None
        log_native_failure(at, "pulls")


def _length(entries: bytes) -> int:
    """Bytes of the log between the first and the last of these records."""
    (first,), (last,) = _physical(entries), _physical(entries, len(entries) - layout.ENTRY_SIZE)
    return int(abs(last - first))
