"""Long polling: suspended pulls, which wait for a message.

A suspended pull is attached to its queue. The next message of that queue wakes it in the same turn
of the event loop, so nothing polls. A pull with a filter checks the new entries first, and stays
suspended if none matches. A timer ends the wait, and so does clearing or deleting the queue: a
deleted topic that is created again gets new queue objects. If very many pulls wait, those for which
one turn has no time are checked in the following turns.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from mq.client.machine import clock
from mq.daemons.broker.filters.properties import Expression, PropertyExpression
from mq.daemons.broker.filters.waiting_cost import keep_filter, release_filter
from mq.daemons.broker.store import ConsumeQueue, layout, log_failure
from mq.daemons.channel import Channel
from mq.daemons.time_slices import TURN_SECONDS
from mq.protocol.tags import TagExpression

# A pull is answered when this many new messages did not match: its next request starts after them,
# so it never scans far back.
_MOST_SKIPPED = 800

# Limit per connection, which needs one suspended pull for each queue that its groups read. A
# connection with more is broken or hostile.
MOST_HELD = 20_000

# Bytes of memory of each suspended pull, without the texts of its request.
COST = 2048

# A text longer than _LONG_TEXT characters is probably an expression that no other client shares.
# Its parsed form, mostly a list of tags with their hashes, takes _BYTES_OF_LONG bytes per
# character.
_LONG_TEXT = 1000
_BYTES_OF_LONG = 20

# Limit of a wait in seconds: a client that asks for more gets an empty reply after an hour.
LONGEST_HOLD = 3600.0

_KEPT = "held pulls"  # key in `Channel.kept`


class PullNotifier:
    """Rechecks woken pulls: in this turn of the event loop, or in a later turn, once for all
    messages that have arrived by then.
    """

    def __init__(self) -> None:
        self._late: deque[SuspendedPull] = deque()
        self._spent = 0.0  # seconds of this turn
        self._is_counting = False

    def look(self, pull: "SuspendedPull") -> None:
        """Recheck a pull soon."""
        if pull.is_late:
            return
        if self._late or self._spent >= TURN_SECONDS:
            pull.is_late = True
            if not self._late:
                asyncio.get_running_loop().call_soon(self._resume)
            self._late.append(pull)
            return
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._begin_turn)
        begun = clock.monotonic()
        try:
            pull.look()
        finally:
            self._spent += clock.monotonic() - begun

    def _begin_turn(self) -> None:
        self._is_counting, self._spent = False, 0.0

    def _resume(self) -> None:
        end = clock.monotonic() + TURN_SECONDS
        while self._late:
            pull = self._late.popleft()
            pull.is_late = False
            try:
                pull.look()
            except Exception:
                log_failure("a suspended pull of %r failed", pull.queue)
            if clock.monotonic() >= end:
                break
        if self._late:
            asyncio.get_running_loop().call_soon(self._resume)


class SuspendedPull:
    """A pull that found nothing and waits.

    ``answer`` is called once, with this object, when there is a message or the wait of ``seconds``
    is over; never after the pull was dropped or its connection has closed.
    """

    __slots__ = (
        "_answer",
        "_cost",
        "_held",
        "_least",
        "_notifier",
        "_offset",
        "_seen",
        "_timer",
        "channel",
        "expression",
        "is_late",
        "queue",
        "request",
    )

    def __init__(
        self,
        request: dict[str, object],
        channel: Channel,
        queue: ConsumeQueue,
        offset: int,
        expression: Expression,
        seconds: float,
        answer: Callable[["SuspendedPull"], None],
        notifier: PullNotifier,
    ) -> None:
        self.is_late = False  # whether it is in the queue of PullNotifier for a later turn
        self._notifier = notifier
        self.request = request
        self.channel = channel
        self.queue = queue
        self.expression = expression
        self._offset = offset
        self._seen = offset  # entries before it do not match
        # a queue that ends before this offset was cleared
        self._least = min(offset, queue.appended)
        self._answer = answer
        self._held = held_pulls(channel)
        self._held[self] = None
        fields = request["extFields"]
        assert isinstance(fields, dict)
        self._cost = COST + size_of_texts(map(str, fields.values()))
        channel.keep(_KEPT, channel.kept.get(_KEPT, 0) + self._cost)
        keep_filter(channel, expression)
        queue.waiting[self] = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(seconds, LONGEST_HOLD), self._end)

    def wake(self) -> None:
        """Recheck the pull: the queue has new messages, or was cleared or deleted."""
        self._notifier.look(self)

    def look(self) -> None:
        """End the wait if a message matches, or if no message will arrive any more."""
        if self in self._held and self._has_match():
            self._end()

    def drop(self) -> None:
        """Drop the pull without a reply."""
        self._timer.cancel()
        self.queue.waiting.pop(self, None)
        if self._held.pop(self, self) is None:
            kept = self.channel.kept
            self.channel.keep(_KEPT, kept.get(_KEPT, 0) - self._cost)
            release_filter(self.channel, self.expression)

    def _has_match(self) -> bool:
        if type(self.expression) is TagExpression and not self.expression.codes:
            return True
        queue = self.queue
        if queue.deleted or queue.appended < self._least:
            return True
        while self._seen < queue.readable:
            entries = queue.entries(self._seen, _MOST_SKIPPED)
            if not entries:
                return True  # the entries cannot be read: the reply gives the next offset
            found, passed = self._check(entries)
            if found:
                return True
            self._seen += passed
            if self._seen - self._offset >= _MOST_SKIPPED:
                return True
        return False

    def _check(self, entries: bytes) -> tuple[bool, int]:
        """Whether one of these entries matches, and how many do not match."""
        expression = self.expression
        if type(expression) is PropertyExpression:
            try:
                entries = expression.readable(entries)
            except OSError:
                return True, 0  # the reply reports the error
            _, count, _, passed = expression.select(self.queue, self._seen, entries, wanted=1)
            return count > 0, passed
        assert type(expression) is TagExpression
        codes = expression.codes
        if self.queue.extension is not None:
            entries = self.queue.extension.resolve(entries, unknown=next(iter(codes)))
        fits = any(code in codes for _, _, code in layout.ENTRY.iter_unpack(entries))
        return fits, len(entries) // layout.ENTRY_SIZE

    def _end(self) -> None:
        self.drop()
        if not self.channel.closed:
            self._answer(self)


def size_of_texts(texts: Iterable[str]) -> int:
    """Estimate the bytes of a request's fields and of their parsed form."""
    lengths = list(map(len, texts))
    total = sum(lengths)
    if total <= _LONG_TEXT:  # the usual case; every suspended pull is checked here
        return total
    return sum(size * (_BYTES_OF_LONG if size > _LONG_TEXT else 1) for size in lengths)


def held_pulls(channel: Channel) -> dict[SuspendedPull, None]:
    """The suspended pulls of a connection, in order. They are dropped when it closes."""
    held: dict[SuspendedPull, None] | None = channel.attributes.get("held")
    if held is None:
        held = channel.attributes["held"] = {}
        channel.on_close.append(_drop_all)
    return held


def _drop_all(channel: Channel) -> None:
    for pull in list(channel.attributes["held"]):
        pull.drop()
