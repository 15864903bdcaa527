"""Messages in flight to queues: one batch per queue is in flight while the next one is collected.

So the messages of a queue are stored in order, and the waiting messages are bounded: a full batch
for a queue waits for the previous one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from mq.client.operations.messages.sending import BATCH_MESSAGES

if TYPE_CHECKING:
    from mq.protocol.message import Message

_BATCH_BYTES = 1024 * 1024  # the limit of a batch

M = TypeVar("M")


class Lane(Generic[M]):
    """The messages that wait for a queue, and those in flight, each with a mark of its source."""

    def __init__(self, send: "Callable[[list[Message], list[M]], Awaitable[None]]") -> None:
        """`send` gets a batch and its marks; it raises errors that end the work."""
        self._send = send
        self._waiting: list[Message] = []
        self._marks: list[M] = []
        self._bytes = 0
        self._flight: asyncio.Future[None] | None = None
        self._hurried = False

    def add(self, message: "Message", mark: M) -> bool:
        """Add a message; returns whether the batch is full: then call `start` before the next
        one.
        """
        self._waiting.append(message)
        self._marks.append(mark)
        self._bytes += len(message.body)
        return len(self._waiting) >= BATCH_MESSAGES or self._bytes >= _BATCH_BYTES

    @property
    def waiting(self) -> list[M]:
        """The marks of messages that are not in flight yet."""
        return self._marks

    async def start(self) -> None:
        """Wait for the batch in flight, and send the waiting one. Raises the error of the
        former.
        """
        await self.land()
        self._go()

    def hurry(self) -> None:
        """Send the waiting messages now, or as soon as the batch in flight is stored."""
        if self._flight is None or _is_there(self._flight):
            self._go()
        elif not self._flight.done():
            self._hurried = True
        # otherwise the send has failed: nothing follows, and `land` raises the error

    def rest(self) -> None:
        """Undo `hurry`."""
        self._hurried = False

    def _go(self) -> None:
        self._hurried = False
        if not self._waiting:
            return
        batch, self._waiting, self._bytes = self._waiting, [], 0
        marks, self._marks = self._marks, []
        self._flight = asyncio.ensure_future(self._send(batch, marks))
        self._flight.add_done_callback(self._ended)

    def _ended(self, flight: "asyncio.Future[None]") -> None:
        """Send the waiting messages after a batch that was stored, if `hurry` was called.

        Both the event loop and `land` call this; the first call counts, so that `land` never
        returns before the next batch is in flight, and a later batch is never replaced.
        """
        if self._flight is flight and _is_there(flight):
            self._flight = None
            if self._hurried:
                self._go()

    async def land(self) -> None:
        """Wait for the batch in flight. Raises its error.

        A cancellation does not cancel the batch: it may be stored already.
        """
        while (flight := self._flight) is not None:
            try:
                await asyncio.shield(flight)
            except BaseException as error:
                # If the wait is cancelled in the same turn in which the batch failed, the error is
                # kept for the next call.
                if self._flight is flight and (flight.cancelled() or error is _failure(flight)):
                    self._flight = None
                raise
            finally:
                if flight.done():
                    self._ended(flight)


def _failure(flight: "asyncio.Future[None]") -> BaseException | None:
    return flight.exception() if flight.done() and not flight.cancelled() else None


def _is_there(flight: "asyncio.Future[None]") -> bool:
    return flight.done() and not flight.cancelled() and flight.exception() is None
