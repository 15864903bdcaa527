"""Long polling: pulls that wait for a message.

A held pull hangs on its queue; the message that arrives next in that queue wakes it in the same
turn of the loop, so nothing polls. One with a filter looks at the new entries first and goes
on waiting when none fits. A timer ends the wait, and so does a queue that is emptied, or deleted:
with its topic, whose next queues are others. Where very many wait, those that one turn has no
time for look in the turns that follow.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from mq.client.machine import clock
from mq.daemons.broker.filter.properties import PropertyExpression
from mq.daemons.broker.filter.subscriptions import Expression
from mq.daemons.broker.filter.waiting_cost import keep_filter, release_filter
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.waiters import log_failure
from mq.daemons.channel import Channel
from mq.daemons.time_slices import TURN_SECONDS
from mq.protocol.tags import TagExpression

# A pull that so many new messages did not fit is answered all the same: it goes on behind them,
# and its next look does not begin far back.
_MOST_SKIPPED = 800

# A connection needs one for each queue that its groups read. Beyond this many it is broken or
# hostile.
MOST_HELD = 20_000

# Bytes of memory that each costs while it waits, beside the texts of its request.
COST = 2048

# A text of more characters is an expression that nobody else shares; what is read of it, a list of
# tags with their hashes mostly, takes so many bytes for each.
_LONG_TEXT = 1000
_BYTES_OF_LONG = 20

# Longer waits are cut: whoever asks for more learns after an hour that nothing has come.
LONGEST_HOLD = 3600.0

_KEPT = "held pulls"  # among what a connection makes us keep


class PullNotifier:
    """Has held pulls look at what has come: in this turn of the loop, or when it is their turn,
    once for all that has come by then."""

    def __init__(self) -> None:
        self._late: deque[SuspendedPull] = deque()
        self._spent = 0.0  # seconds of this turn
        self._is_counting = False

    def look(self, pull: "SuspendedPull") -> None:
        """Have one look soon."""
        if pull.is_late:
            return
        if self._late or self._spent >= TURN_SECONDS:
            pull.is_late = True
            if not self._late:
                asyncio.get_running_loop().call_soon(self._go_on)
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

    def _go_on(self) -> None:
        end = clock.monotonic() + TURN_SECONDS
        while self._late:
            pull = self._late.popleft()
            pull.is_late = False
            try:
                pull.look()
            except Exception:
                log_failure("a pull that waited for %r failed", pull.queue)
            if clock.monotonic() >= end:
                break
        if self._late:
            asyncio.get_running_loop().call_soon(self._go_on)


class SuspendedPull:
    """A pull that found nothing and waits.

    ``answer`` is called once, with this object, when there is something to read or the wait of
    ``seconds`` is over; never once it was dropped or its connection has closed.
    """

    __slots__ = (
        "_answer",
        "_cost",
        "_held",
        "_least",
        "_looks",
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
        looks: PullNotifier,
    ) -> None:
        self.is_late = False  # it is among those that look later
        self._looks = looks
        self.request = request
        self.channel = channel
        self.queue = queue
        self.expression = expression
        self._offset = offset
        self._seen = offset  # entries before it do not fit
        self._least = min(offset, queue.appended)  # a queue that ends before it was emptied
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
        """The queue has got messages, or was emptied or deleted."""
        self._looks.look(self)

    def look(self) -> None:
        """End the wait if something has come that fits, or nothing will come any more."""
        if self in self._held and self._something_fits():
            self._end()

    def drop(self) -> None:
        """Forget the pull without an answer."""
        self._timer.cancel()
        self.queue.waiting.pop(self, None)
        if self._held.pop(self, self) is None:
            kept = self.channel.kept
            self.channel.keep(_KEPT, kept.get(_KEPT, 0) - self._cost)
            release_filter(self.channel, self.expression)

    def _something_fits(self) -> bool:
        if type(self.expression) is TagExpression and not self.expression.codes:
            return True
        queue = self.queue
        if queue.deleted or queue.appended < self._least:
            return True
        while self._seen < queue.readable:
            entries = queue.entries(self._seen, _MOST_SKIPPED)
            if not entries:
                return True  # they cannot be read: the pull is told where to go on
            found, passed = self._look_at(entries)
            if found:
                return True
            self._seen += passed
            if self._seen - self._offset >= _MOST_SKIPPED:
                return True
        return False

    def _look_at(self, entries: bytes) -> tuple[bool, int]:
        """Whether something fits among entries from the first unseen one on; else how many do
        not."""
        expression = self.expression
        if type(expression) is PropertyExpression:
            try:
                entries = expression.readable(entries)
            except OSError:
                return True, 0  # the pull is told
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
    """About the bytes that the fields of a request take, and what is read of them."""
    lengths = list(map(len, texts))
    total = sum(lengths)
    if total <= _LONG_TEXT:  # mostly: each pull that is held comes here
        return total
    return sum(size * (_BYTES_OF_LONG if size > _LONG_TEXT else 1) for size in lengths)


def held_pulls(channel: Channel) -> dict[SuspendedPull, None]:
    """The pulls of a connection that wait, in their order. They are dropped when it closes."""
    held: dict[SuspendedPull, None] | None = channel.attributes.get("held")
    if held is None:
        held = channel.attributes["held"] = {}
        channel.on_close.append(_drop_all)
    return held


def _drop_all(channel: Channel) -> None:
    for pull in list(channel.attributes["held"]):
        pull.drop()
