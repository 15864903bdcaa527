"""Requests of a daemon to the peer of a connection, a client with handlers of its own."""

import asyncio
from collections.abc import Callable

from mq.protocol.command import Command


class PendingRequests:
    """The unanswered requests to one peer."""

    def __init__(self) -> None:
        self._opaque = 0
        self._waiting: dict[int, asyncio.Future[Command]] = {}

    def number(self, command: Command) -> None:
        """Give a request the next number of this connection."""
        self._opaque += 1
        command.opaque = self._opaque

    async def ask(
        self, command: Command, send: Callable[[Command], None], timeout: float
    ) -> Command:
        """Send a request and wait for its reply.

        Raises TimeoutError after ``timeout`` seconds, and the error passed to `fail`.
        """
        self.number(command)
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[command.opaque] = future
        try:
            send(command)
            async with asyncio.timeout(timeout):
                return await future
        finally:
            self._waiting.pop(command.opaque, None)

    def answered(self, answer: Command) -> None:
        """Deliver a reply; does nothing if its request does not wait any more."""
        future = self._waiting.pop(answer.opaque, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def fail(self, error: Exception) -> None:
        """Fail all requests: there will be no more replies."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
