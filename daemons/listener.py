"""Listener: one port of a daemon. It accepts connections, looks for idle ones, and closes them.

What a connection asks goes to the port's dispatcher (see dispatch.py).
"""

import asyncio
import errno
import logging
import resource
from collections.abc import Callable

from mq.client.buffers import SYSTEM_BUFFERS, SocketBuffers
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher
from mq.daemons.memory import MemoryBudget
from mq.daemons.overload.backlog import Backlog
from mq.daemons.overload.turned_away import CONNECTIONS_SETTING, TurnedAway
from mq.daemons.tls import FirstByte, ServerTls

log = logging.getLogger(__name__)

# Files of the store beside those of queues, which take a quarter: connections leave them room.
_OTHER_DESCRIPTORS = 64


class Listener:
    """A port; what comes through it goes to the ``dispatcher``.

    ``port`` is the one bound, also where 0 was asked for. ``idle_seconds`` closes a connection on
    which nothing has come for so long (Java: serverChannelMaxIdleTimeSeconds); 0 never does. With
    ``tls`` connections may be, or have to be, encrypted. ``max_connections`` gives how many may be
    open; ``longest_wait`` how many seconds a send may wait to be served; 0 stands for no limit in
    both, but that connections leave descriptors for files. ``memory`` is the budget of what peers
    may use of ours; without one there is no limit.
    """

    # For so many seconds a stop waits for peers to take their replies.
    LAST_WORDS = 3.0
    # How often idle connections are looked for, in seconds; also the unit of `ticks`.
    TICK = 5.0

    def __init__(
        self,
        dispatcher: Dispatcher,
        host: str,
        port: int,
        *,
        idle_seconds: float = 120,
        backlog: int = 1024,
        tls: ServerTls | None = None,
        max_connections: Callable[[], int] = lambda: 0,
        longest_wait: Callable[[], float] = lambda: 0.0,
        memory: MemoryBudget | None = None,
        buffers: SocketBuffers = SYSTEM_BUFFERS,
    ) -> None:
        self.dispatcher = dispatcher
        self._tls = tls
        self._buffers = buffers
        self.host = host
        self.port = port
        self.channels: dict[Channel, None] = {}
        self.memory = MemoryBudget() if memory is None else memory
        self.memory.watch(self.channels.keys())
        self.backlog = Backlog(longest_wait, self.channels.keys())
        self.ticks = 0
        self.turned_away = 0
        self._max_connections = max_connections
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._descriptors = max(1, soft - soft // 4 - _OTHER_DESCRIPTORS)
        self._idle_ticks = int(idle_seconds / self.TICK)
        self._backlog = backlog
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Future[None] | None = None  # done when the last channel has gone

    async def __aenter__(self) -> "Listener":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def bind(self) -> None:
        """Take the port without accepting yet. Raises OSError naming an address that is taken."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._accept,
                self.host,
                self.port,
                backlog=self._backlog,
                start_serving=False,
            )
        except OSError as error:
            why = str(error.strerror or error)
            if error.errno == errno.EADDRINUSE:  # the loop's own text says the address once more
                why = "another process does already"
            raise OSError(error.errno, f"cannot listen on {self.host}:{self.port}: {why}") from None
        for sock in self._server.sockets:
            self._buffers.set_on(sock)
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self) -> asyncio.Protocol:
        most, count = self._max_connections(), len(self.channels)
        if not most:
            most, count = self._descriptors, self.memory.connections()
        if most <= count:
            self.turned_away += 1
            log.warning(
                "a connection is turned away: there are %d (%s)",
                count,
                CONNECTIONS_SETTING,
                extra={"failure": "connections"},
            )
            return TurnedAway(most)
        channel = Channel(self, self.dispatcher)
        return channel if self._tls is None else FirstByte(channel, self._tls)

    async def start(self) -> None:
        """Accept connections, on a port of its own if none was taken before. Raises OSError."""
        if self._server is None:
            await self.bind()
        assert self._server is not None
        await self._server.start_serving()
        self._timer = asyncio.get_running_loop().call_later(self.TICK, self._tick)

    def stop_accepting(self) -> None:
        """Take no new connection; those that are open go on."""
        if self._server is not None:
            self._server.close()

    async def finish(self, seconds: float) -> None:
        """Wait at most so long for requests that are being handled."""
        await self.dispatcher.finish(seconds)

    async def close(self) -> None:
        """Stop accepting, end what runs, close every connection. Idempotent.

        A peer that does not take its replies has a few seconds; then its connection is broken off.
        """
        if self._timer is not None:
            self._timer.cancel()
        self.stop_accepting()
        await self.dispatcher.cancel()
        for channel in list(self.channels):
            channel.close()
        if self.channels:
            loop = asyncio.get_running_loop()
            self._closing = loop.create_future()
            end = loop.call_later(self.LAST_WORDS, self._break_off)
            try:
                await self._closing
            finally:
                end.cancel()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def _break_off(self) -> None:
        log.warning("%d peers do not take what was sent: broken off", len(self.channels))
        for channel in list(self.channels):
            channel.abort()

    def forget(self, channel: Channel) -> None:
        """A channel has closed."""
        self.channels.pop(channel, None)
        if not self.channels and self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    def _tick(self) -> None:
        self.ticks += 1
        self.memory.look()
        if self._idle_ticks:
            oldest = self.ticks - self._idle_ticks
            for channel in [c for c in self.channels if c.active_at < oldest]:
                log.info("closing %s: idle", channel.remote)
                channel.close()
        self._timer = asyncio.get_running_loop().call_later(self.TICK, self._tick)
