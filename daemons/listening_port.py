"""A port of a daemon: accepts connections, closes idle ones, and closes all at the end.

Subclasses process the received data and decide whether the connection limit is reached.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar, cast

from mq.daemons.accept import bind, bound_port, start_accepting, stop_accepting
from mq.daemons.memory import MemoryBudget, MemoryUser
from mq.daemons.open_files import most_open_files

log = logging.getLogger(__name__)

# Open files that are neither connections nor counted by `held_files`.
_OTHER_DESCRIPTORS = 64


class PortConnection(MemoryUser, Protocol):
    """The parts of a connection that a port uses."""

    active_at: int  # the tick of the last received data

    def close(self) -> None:
        """Send pending data, and close."""

    def abort(self) -> None:
        """Close at once."""


C = TypeVar("C", bound=PortConnection)


class ListeningPort(Generic[C]):
    """A port and its open connections. An async context manager.

    ``port`` is the bound port, also if 0 was requested. ``idle_seconds`` closes a connection on
    which nothing has been received for so long; 0 never does. ``memory`` is the budget of peers'
    memory; without one there is no limit. ``max_connections`` returns the limit of open
    connections. With 0 the only limit is that connections leave descriptors for files: a quarter of
    the open file limit, or as many as ``held_files`` returns.
    """

    # Seconds that a stop waits for peers to read their replies.
    LAST_WORDS = 3.0
    # Interval in seconds of the check for idle connections; also the unit of `ticks`.
    TICK = 5.0

    def __init__(
        self,
        host: str,
        port: int,
        *,
        idle_seconds: float,
        backlog: int,
        memory: MemoryBudget | None,
        max_connections: Callable[[], int] = lambda: 0,
        held_files: Callable[[], int] = lambda: 0,
    ) -> None:
        self.host = host
        self.port = port
        self.channels: dict[C, None] = {}
        self.memory = MemoryBudget() if memory is None else memory
        self.memory.watch(self.channels.keys())
        self.ticks = 0
        self.closing = False  # connections that are being accepted are aborted
        self._max_connections = max_connections
        self._held_files = held_files
        self._descriptors = most_open_files()
        self._idle_ticks = int(idle_seconds / self.TICK)
        self._accept_backlog = backlog
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] | None = None  # done when the last channel has closed

    def _accept(self) -> asyncio.Protocol:
        return _Accepted(self._admit)

    def _admit(self) -> asyncio.Protocol:
        """The protocol for a new connection."""
        raise NotImplementedError

    def _limit_reached(self) -> int:
        """The connection limit if it is reached; 0 if another connection may be opened."""
        most, count = self._max_connections(), len(self.channels)
        if not most:
            files = max(self._descriptors // 4, self._held_files())
            most = max(1, self._descriptors - files - _OTHER_DESCRIPTORS)
            count = self.memory.connections()
        return most if most <= count else 0

    async def _end_requests(self) -> None:
        """End the requests in progress."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def bind(self) -> None:
        """Bind the port without accepting yet. Raises OSError naming an address that is taken."""
        self._server = await bind(self._accept, self.host, self.port, backlog=self._accept_backlog)
        self.port = bound_port(self._server)

    async def start(self) -> None:
        """Accept connections; binds the port if that has not been done. Raises OSError."""
        if self._server is None:
            await self.bind()
        assert self._server is not None
        await start_accepting(self._server)
        if self.closing:  # meanwhile
            return
        self._timer = asyncio.get_running_loop().call_later(self.TICK, self._tick)

    def stop_accepting(self) -> None:
        """Accept no new connections; open ones stay."""
        if self._server is not None:
            stop_accepting(self._server)

    async def close(self) -> None:
        """Stop accepting, end requests in progress, close every connection. Idempotent.

        A peer that does not read its replies gets a few seconds; then its connection is aborted.
        """
        self.closing = True
        if self._timer is not None:
            self._timer.cancel()
        self.stop_accepting()
        try:
            await self._end_requests()
        finally:  # also if the caller is cancelled
            for channel in list(self.channels):
                channel.close()
        if self.channels:
            # Not awaited itself: a concurrent caller that is cancelled would cancel it.
            self._gone = self._gone or asyncio.get_running_loop().create_future()
            taken, _ = await asyncio.wait([self._gone], timeout=self.LAST_WORDS)
            if not taken:
                self._abort_all()
                await asyncio.wait([self._gone])
        server, self._server = self._server, None
        if server is not None:
            await asyncio.sleep(0)  # the port is free after this turn
            await server.wait_closed()

    def _abort_all(self) -> None:
        log.warning("%d peers do not read their replies; aborting", len(self.channels))
        for channel in list(self.channels):
            channel.abort()

    def forget(self, channel: C) -> None:
        """Remove a closed channel."""
        self.channels.pop(channel, None)
        if not self.channels and self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def _tick(self) -> None:
        self.ticks += 1
        self.memory.look()
        if self._idle_ticks:
            oldest = self.ticks - self._idle_ticks
            for channel in [c for c in self.channels if c.active_at < oldest]:
                log.info("closing %s: idle", channel.remote)
                channel.close()
        self._timer = asyncio.get_running_loop().call_later(self.TICK, self._tick)


class _Accepted(asyncio.Protocol):
    """A connection that is being accepted.

    asyncio accepts all that wait, at once, before it opens the first. Whether one exceeds the limit
    is known only when they are opened, one after the other.
    """

    def __init__(self, admit: Callable[[], asyncio.Protocol]) -> None:
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._admit()
        cast(asyncio.Transport, transport).set_protocol(protocol)
        protocol.connection_made(transport)
