"""A port of a daemon: it accepts connections, looks for idle ones, and closes them.

What comes over them, and which connection is one too many, its subclasses say.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar, cast

from mq.daemons.accept import bind, bound_port, start_accepting, stop_accepting
from mq.daemons.memory import MemoryBudget, MemoryUser
from mq.daemons.open_files import most_open_files

log = logging.getLogger(__name__)

# Files that are neither connections nor what `held_files` counts.
_OTHER_DESCRIPTORS = 64


class PortConnection(MemoryUser, Protocol):
    """What a port needs of the connections that came to it."""

    active_at: int  # the tick in which something came last

    def close(self) -> None:
        """Send what is to be sent, and end."""

    def abort(self) -> None:
        """End at once."""


C = TypeVar("C", bound=PortConnection)


class ListeningPort(Generic[C]):
    """A port and its open connections. An async context manager.

    ``port`` is the one bound, also where 0 was asked for. ``idle_seconds`` closes a connection on
    which nothing has come for so long; 0 never does. ``memory`` is the budget of what peers may use
    of ours; without one there is no limit. ``max_connections`` gives how many may be open; 0 stands
    for no limit but that they leave descriptors for files: for a quarter of what may be open, or as
    many as ``held_files`` says.
    """

    # For so many seconds a stop waits for peers to take their replies.
    LAST_WORDS = 3.0
    # How often idle connections are looked for, in seconds; also the unit of `ticks`.
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
        self.closing = False  # what has been accepted and comes now is broken off
        self._max_connections = max_connections
        self._held_files = held_files
        self._descriptors = most_open_files()
        self._idle_ticks = int(idle_seconds / self.TICK)
        self._accept_backlog = backlog
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] | None = None  # done when the last channel has gone

    def _accept(self) -> asyncio.Protocol:
        return _Accepted(self._admit)

    def _admit(self) -> asyncio.Protocol:
        """What is to have a connection that has come."""
        raise NotImplementedError

    def _limit_reached(self) -> int:
        """How many connections may be open, if there are as many; 0 if another may come."""
        most, count = self._max_connections(), len(self.channels)
        if not most:
            files = max(self._descriptors // 4, self._held_files())
            most = max(1, self._descriptors - files - _OTHER_DESCRIPTORS)
            count = self.memory.connections()
        return most if most <= count else 0

    async def _end_requests(self) -> None:
        """End what is being handled."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def bind(self) -> None:
        """Take the port without accepting yet. Raises OSError naming an address that is taken."""
        self._server = await bind(self._accept, self.host, self.port, backlog=self._accept_backlog)
        self.port = bound_port(self._server)

    async def start(self) -> None:
        """Accept connections, on a port of its own if none was taken before. Raises OSError."""
        if self._server is None:
            await self.bind()
        assert self._server is not None
        await start_accepting(self._server)
        if self.closing:  # meanwhile
            return
        self._timer = asyncio.get_running_loop().call_later(self.TICK, self._tick)

    def stop_accepting(self) -> None:
        """Take no new connection; those that are open go on."""
        if self._server is not None:
            stop_accepting(self._server)

    async def close(self) -> None:
        """Stop accepting, end what runs, close every connection. Idempotent.

        A peer that does not take its replies has a few seconds; then its connection is broken off.
        """
        self.closing = True
        if self._timer is not None:
            self._timer.cancel()
        self.stop_accepting()
        try:
            await self._end_requests()
        finally:  # also if who closes has no more time
            for channel in list(self.channels):
                channel.close()
        if self.channels:
            # Not awaited itself: who else closes at the same time, and is cancelled, would end it.
            self._gone = self._gone or asyncio.get_running_loop().create_future()
            taken, _ = await asyncio.wait([self._gone], timeout=self.LAST_WORDS)
            if not taken:
                self._break_off()
                await asyncio.wait([self._gone])
        server, self._server = self._server, None
        if server is not None:
            await asyncio.sleep(0)  # the port is free behind it
            await server.wait_closed()

    def _break_off(self) -> None:
        log.warning("%d peers do not take what was sent: broken off", len(self.channels))
        for channel in list(self.channels):
            channel.abort()

    def forget(self, channel: C) -> None:
        """A channel has closed."""
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

    asyncio accepts as many as wait, at once, before it opens the first: which of them is one too
    many shows only as they are opened, one after the other.
    """

    def __init__(self, admit: Callable[[], asyncio.Protocol]) -> None:
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._admit()
        cast(asyncio.Transport, transport).set_protocol(protocol)
        protocol.connection_made(transport)
