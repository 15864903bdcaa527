"""Messages on their way to queues: one batch of each queue in flight, the next one collected.

So messages of a queue are stored in their order, and what waits is bounded: who has a full batch
for a queue waits for the one before it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from mq.client.operations.messages.sending import BATCH_MESSAGES

if TYPE_CHECKING:
    from mq.protocol.message import Message

_BATCH_BYTES = 1024 * 1024  # collected for a queue at most

M = TypeVar("M")


class Lane(Generic[M]):
    """What waits for a queue, and what is on its way there, each message with a mark: where it
    comes from."""

    def __init__(self, send: "Callable[[list[Message], list[M]], Awaitable[None]]") -> None:
        """`send` is given a batch and its marks; it raises what ends the work."""
        self._send = send
        self._waiting: list[Message] = []
        self._marks: list[M] = []
        self._bytes = 0
        self._flight: asyncio.Future[None] | None = None
        self._hurried = False

    def add(self, message: "Message", mark: M) -> bool:
        """Have a message wait; whether the batch is full: then `start` comes before the next."""
        self._waiting.append(message)
        self._marks.append(mark)
        self._bytes += len(message.body)
        return len(self._waiting) >= BATCH_MESSAGES or self._bytes >= _BATCH_BYTES

    @property
    def waiting(self) -> list[M]:
        """The marks of what is not on its way yet."""
        return self._marks

    async def start(self) -> None:
        """Wait for what is on its way, and send what waits. Raises what sending the former did."""
        await self.land()
        self._go()

    def hurry(self) -> None:
        """Send what waits now, or as soon as what is on its way has come there."""
        if self._flight is None or _is_there(self._flight):
            self._go()
        elif not self._flight.done():
            self._hurried = True
        # else sending has failed: nothing follows, and who lands is told

    def rest(self) -> None:
        """Take `hurry` back."""
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
        """Have follow what hurries behind a flight that has come there.

        The loop calls this and who lands does: whoever is first, so that who lands never goes on
        before what is to follow is on its way, and nothing takes the place of a later flight.
        """
        if self._flight is flight and _is_there(flight):
            self._flight = None
            if self._hurried:
                self._go()

    async def land(self) -> None:
        """Wait for what is on its way. Raises what sending it did.

        Who is cancelled here does not cancel that: it may be stored already.
        """
        while (flight := self._flight) is not None:
            try:
                await asyncio.shield(flight)
            except BaseException as error:
                # Who is cancelled in the very turn in which it failed does not hear of that: the
                # next one who lands does.
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
