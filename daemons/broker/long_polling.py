"""Pulls that wait for a message.

A held pull hangs on its queue; the message that arrives next in that queue wakes it in the same
turn of the loop, so nothing polls. One that filters by tag looks at the new entries first and goes
on waiting when none fits. A timer ends the wait.
"""

import asyncio
from collections.abc import Callable

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.listener import Channel
from mq.protocol.tags import TagExpression

# Entries looked at in one go by a wake-up; what is left decides the pull itself.
_LOOK_AT = 800


class HeldPull:
    """A pull that found nothing and waits.

    ``answer`` is called once, with this object, when there is something to read or the wait is
    over.
    """

    __slots__ = ("_answer", "_seen", "_timer", "channel", "expression", "queue", "request")

    def __init__(
        self,
        request: dict[str, object],
        channel: Channel,
        queue: ConsumeQueue,
        offset: int,
        expression: TagExpression,
        seconds: float,
        answer: Callable[["HeldPull"], None],
    ) -> None:
        self.request = request
        self.channel = channel
        self.queue = queue
        self.expression = expression
        self._seen = offset  # entries before it do not fit
        self._answer = answer
        queue.waiting.append(self)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end)

    def wake(self) -> None:
        """The queue has got messages."""
        if self.channel.closed:
            self.drop()
        elif self._something_fits():
            self._end()

    def drop(self) -> None:
        """Forget the pull without an answer."""
        self._timer.cancel()
        if self in self.queue.waiting:
            self.queue.waiting.remove(self)

    def _something_fits(self) -> bool:
        codes = self.expression.codes
        if not codes:
            return True
        entries = self.queue.entries(self._seen, _LOOK_AT)
        for _, _, code in layout.ENTRY.iter_unpack(entries):
            if code in codes:
                return True
            self._seen += 1
        return False

    def _end(self) -> None:
        self.drop()
        if not self.channel.closed:
            self._answer(self)
