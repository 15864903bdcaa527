"""The attempts of one send: requests that wait for an answer, several if a broker does not answer.

A broker may stop answering while its connection stays open. A send that has other brokers to go to
does not wait for the timeout: it starts an attempt at another broker, too. The first request stays
in flight, so a broker that is only slow can still answer it. A message may then be stored twice, as
after any other retry.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from mq.client.errors import MQError
from mq.client.send_result import SendResult


@dataclass(slots=True, eq=False)
class SendAttempt:
    """A request sent to a broker; `began` is by the loop's clock."""

    answer: "asyncio.Future[SendResult]"
    broker_name: str
    began: float


class SendAttempts:
    """The requests of one send that are in flight. Call `cancel` at the end."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[SendAttempt] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, answer: "asyncio.Future[SendResult]", broker_name: str, began: float) -> None:
        """Add a request that was sent."""
        self._open.append(SendAttempt(answer, broker_name, began))

    def broker_names(self) -> set[str]:
        """Return the brokers that have not answered."""
        return {attempt.broker_name for attempt in self._open}

    async def first_ended(self, seconds: float | None) -> SendAttempt | None:
        """Wait until a request is answered or fails, and return it.

        Returns None after `seconds`. Without a limit, a failure that another broker may not repeat
        is skipped while other requests are in flight.
        """
        while True:
            attempt = await self._first(seconds)
            if attempt is None:
                return None
            self._open.remove(attempt)
            error = attempt.answer.exception()
            retriable = isinstance(error, MQError) and error.retriable
            if seconds is not None or not self._open or not retriable:
                return attempt

    async def _first(self, seconds: float | None) -> SendAttempt | None:
        if seconds is None and len(self._open) == 1:
            with contextlib.suppress(MQError):
                await self._open[0].answer  # a cancellation of this task cancels the request, too
        elif (done := self._done()) is None:
            await self._wait(seconds)
        else:
            return done
        return self._done()

    def _done(self) -> SendAttempt | None:
        return next((attempt for attempt in self._open if attempt.answer.done()), None)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for at most `seconds` until one has ended: costs a third of `asyncio.wait`."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake(_: object = None) -> None:
            if not woken.done():
                woken.set_result(None)

        timer = None if seconds is None else loop.call_later(max(0.0, seconds), wake)
        for attempt in self._open:
            attempt.answer.add_done_callback(wake)
        try:
            await woken
        finally:
            if timer is not None:
                timer.cancel()
            for attempt in self._open:
                attempt.answer.remove_done_callback(wake)

    def cancel(self) -> None:
        """Cancel the requests that are still in flight."""
        for attempt in self._open:
            attempt.answer.cancel()
        self._open.clear()
