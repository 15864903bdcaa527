"""Answers to plain pulls as the native path makes them (docs/decisions/0047)."""

from collections.abc import Callable, Collection
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
        self._answer: Callable[..., Any] | None = None
        if native is not None:
            self._answer = native.PullPath(REPLIES[FOUND].pieces(), REPLIES[RETRY].pieces()).answer

    @property
    def is_taken(self) -> bool:
        """Whether pulls are offered to the path: it is there, and has not failed."""
        return self._answer is not None

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
        would have to be waited for.
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
        make = self._answer
        program = None if by_properties is None else by_properties.program
        minimum, end = queue.minimum, queue.readable
        if make is None or not minimum <= offset < end:
            return None
        config = self._settings.store
        wanted = min(maximum, config.max_transfer_count_on_message_in_memory)
        most_bytes = config.max_transfer_bytes_on_message_in_memory
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
        if codes or program is not None:
            if present is None or not present.holds(entries):  # perhaps those are that are wanted
                return None
        elif present is not None:
            present.require(entries, most_bytes)
        (first,) = _physical(entries)
        commit_log = self._log
        written = commit_log.written
        file = commit_log.file_at(first)
        if file is None:
            return None
        start = file.start
        part = file.view, min(file.end, written) - start, start
        limits = wanted, most_bytes
        by_program = program and (program, len(queue.topic_field) + layout.SHORT.size)
        try:
            made = make(
                *(entries, queue.queue_id, offset, (tuple(codes), by_program), limits),
                *(part, (minimum, end), opaque),
            )
        except failures:  # nothing has been sent: Python answers
            self.end(f"messages of {queue!r}")
            return None
        return None if made is None else PullAnswer._make(made)

    def end(self, at: str) -> None:
        """Leave pulls to Python from now on: what the path failed at may come with each of them."""
        self._answer = None
        tell_failure(at, "pulls")
