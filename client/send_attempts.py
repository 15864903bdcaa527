"""Flights: the requests of one send that wait for an answer, several if a broker does not answer.

A broker may stop answering while its connection stays open. A send that has other brokers to go to
does not wait for it until the timeout: it goes to another one, too. The first request stays in
flight, so a broker that is only slow can still answer it. A message may then be stored twice, as
after any other retry.
"""

import asyncio
import contextlib
from dataclasses import dataclass

from mq.client.errors import MQError
from mq.client.send_result import SendResult


@dataclass(slots=True, eq=False)
class SendAttempt:
    """A request that was sent to a broker at a time of the loop's clock."""

    answer: "asyncio.Future[SendResult]"
    broker_name: str
    began: float


class SendAttempts:
    """The requests of one send that are in flight. `cancel` them in the end."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[SendAttempt] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, answer: "asyncio.Future[SendResult]", broker_name: str, began: float) -> None:
        """A request has been sent."""
        self._open.append(SendAttempt(answer, broker_name, began))

    def broker_names(self) -> set[str]:
        """The brokers that have not answered."""
        return {flight.broker_name for flight in self._open}

    async def landed(self, seconds: float | None) -> SendAttempt | None:
        """Wait until a request is answered or has failed, and return it.

        Returns None if that takes longer than `seconds`. Without a limit, a request that may
        succeed elsewhere is passed over while others are in flight.
        """
        while True:
            flight = await self._first(seconds)
            if flight is None:
                return None
            self._open.remove(flight)
            error = flight.answer.exception()
            retriable = isinstance(error, MQError) and error.retriable
            if seconds is not None or not self._open or not retriable:
                return flight

    async def _first(self, seconds: float | None) -> SendAttempt | None:
        if seconds is None and len(self._open) == 1:
            with contextlib.suppress(MQError):
                await self._open[0].answer  # which a cancellation cancels
        elif (done := self._done()) is None:
            await self._wait(seconds)
        else:
            return done
        return self._done()

    def _done(self) -> SendAttempt | None:
        return next((flight for flight in self._open if flight.answer.done()), None)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until one has ended, but not longer: `asyncio.wait` at a third of the cost."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake(_: object = None) -> None:
            if not woken.done():
                woken.set_result(None)

        timer = None if seconds is None else loop.call_later(max(0.0, seconds), wake)
        for flight in self._open:
            flight.answer.add_done_callback(wake)
        try:
            await woken
        finally:
            if timer is not None:
                timer.cancel()
            for flight in self._open:
                flight.answer.remove_done_callback(wake)

    def cancel(self) -> None:
        """Cancel the requests that are still in flight."""
        for flight in self._open:
            flight.answer.cancel()
        self._open.clear()
