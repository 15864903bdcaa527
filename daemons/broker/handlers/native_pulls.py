"""Answers to plain pulls as the native path makes them (docs/decisions/0047)."""

from collections.abc import Collection
from typing import Any, NamedTuple

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filter.properties import PropertyExpression
from mq.daemons.broker.filter.subscriptions import Expression
from mq.daemons.broker.handlers.pull_reply import REPLIES
from mq.daemons.broker.native_failure import tell_failure
from mq.daemons.broker.reading.message_finder import FOUND, MOST_SCANNED, RETRY
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.residency import Residency
from mq.protocol.native import failures, native
from mq.protocol.tags import TagExpression

_physical = layout.LONG.unpack_from  # of an entry
# Each entry is held against each code; with more of them Python's set is faster.
_MOST_CODES = 64
# What is prefetched: of so many pulls, and entries at most, 10 KB; and of so many bytes of the log,
# for each chunk of it is asked for.
_PREFETCHED_PULLS = 16
_MOST_ENTRIES = 512
_LONGEST_PREFETCHED = 16 * 1024 * 1024


class PullAnswer(NamedTuple):
    """A whole reply, and what it holds."""

    frame: bytes
    next_offset: int
    messages: int
    size: int  # bytes
    end: int  # the physical offset behind the last message


class NativePulls:
    """What finds and copies messages for pulls, where the native path is there."""

    def __init__(self, settings: BrokerSettings, commit_log: CommitLog) -> None:
        self._settings = settings
        self._log = commit_log
        self._path: Any = None
        if native is not None:
            self._path = native.PullPath(REPLIES[FOUND].pieces(), REPLIES[RETRY].pieces())

    @property
    def is_taken(self) -> bool:
        """Whether pulls are offered to the path: it is there, and has not failed."""
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
        """The answer to a pull, as `MessageFinder.find` finds what is in it.

        None if that is for Python to look at. Raises NotInMemory if ``present`` says that a disk
        would have to be waited for, and OSError.
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
        """Of all messages, of those that have one of the tags codes, or of those that a filter by
        properties lets through."""
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
        if present is None:  # what waits for the disk is Python's
            return None
        if codes or program is not None:
            if not present.holds(entries):  # perhaps those are that are wanted
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
        """What the next pulls of all messages get, from an offset on, and how many messages that
        are; it counts until what is in memory has to be asked again, or the queue or the settings
        are others.

        None where that is less than two pulls take, or not all of it is in memory. Raises OSError.
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
        """Messages and bytes of a pull that asks for so many messages at most."""
        config = self._settings.store
        count = min(maximum, config.max_transfer_count_on_message_in_memory)
        return count, config.max_transfer_bytes_on_message_in_memory

    def _part(self, entries: bytes) -> tuple[memoryview, int, int] | None:
        """Of the file that the first of these lies in what has been written, and its offset."""
        (first,) = _physical(entries)
        log = self._log
        file = log.file_at(first)
        if file is None:
            return None
        start = file.start
        return file.view, min(file.end, log.written) - start, start

    def end(self, at: str) -> None:
        """Leave pulls to Python from now on: what the path failed at may come with each of them."""
        self._path = None
        tell_failure(at, "pulls")


def _length(entries: bytes) -> int:
    """Bytes of the log between the first of these records and the last."""
    (first,), (last,) = _physical(entries), _physical(entries, len(entries) - layout.ENTRY_SIZE)
    return int(abs(last - first))
