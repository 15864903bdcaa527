"""Listener: one port of a daemon. It passes requests to its dispatcher (dispatch.py)."""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from mq.client.transport.buffers import SYSTEM_BUFFERS, SocketBuffers
from mq.daemons.busy_polling import BusyPolling
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listening_port import ListeningPort
from mq.daemons.memory import MemoryBudget
from mq.daemons.overload.backlog import Backlog
from mq.daemons.overload.busy_reply import BusyReply, opaque_in
from mq.daemons.tls import FirstByte, ServerTls

log = logging.getLogger(__name__)

CONNECTIONS_SETTING = "maxConnections"
# Seconds that a connection above the limit may take to send its request, and the limit of such
# connections; more are closed without a reply.
REJECT_SECONDS = 1.0
MOST_REJECTED = 100


class RejectedConnection(asyncio.Protocol):
    """A connection above the limit: its first request is answered with SYSTEM_BUSY, then it is
    closed.
    """

    waiting = 0  # in all listeners of this process

    def __init__(self, limit: int) -> None:
        self._reply = BusyReply(
            f"[OVERLOAD]the broker has {limit} connections, which is the limit "
            f"({CONNECTIONS_SETTING}); try again later"
        )
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of it
        self._transport = cast(asyncio.Transport, transport)
        RejectedConnection.waiting += 1
        if RejectedConnection.waiting > MOST_REJECTED:
            transport.close()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(REJECT_SECONDS, transport.close)

    def connection_lost(self, error: Exception | None) -> None:
        RejectedConnection.waiting -= 1
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        opaque = opaque_in(self._data[:4096])
        if opaque is not None:
            self._transport.write(self._reply.frame(opaque))
            self._transport.close()
            return
        if len(self._data) > 4096:
            self._transport.close()


class Listener(ListeningPort[Channel]):
    """A port that passes requests to the ``dispatcher``.

    ``idle_seconds`` is Java's serverChannelMaxIdleTimeSeconds. With ``tls``, connections may or
    must be encrypted. ``max_connections`` returns the limit of open connections, and
    ``longest_wait`` the limit in seconds of a send's wait to be served; 0 means no limit in both,
    except that connections leave descriptors for files. ``busy_poll`` returns the seconds for which
    the event loop polls for the next request before it sleeps.
    """

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
        busy_poll: Callable[[], float] = lambda: 0.0,
        memory: MemoryBudget | None = None,
        buffers: SocketBuffers = SYSTEM_BUFFERS,
    ) -> None:
        super().__init__(
            host,
            port,
            idle_seconds=idle_seconds,
            backlog=backlog,
            memory=memory,
            max_connections=max_connections,
        )
        self.dispatcher = dispatcher
        self.backlog = Backlog(longest_wait, self.channels.keys())
        self.polling = BusyPolling(busy_poll)
        self.turned_away = 0
        self._tls = tls
        self._buffers = buffers

    def _admit(self) -> asyncio.Protocol:
        most = self._limit_reached()
        if most:
            self.turned_away += 1
            log.warning(
                "connection limit reached (%d, %s); rejecting a connection",
                most,
                CONNECTIONS_SETTING,
                extra={"failure": "connections"},
            )
            return RejectedConnection(most)
        channel = Channel(self, self.dispatcher)
        return channel if self._tls is None else FirstByte(channel, self._tls)

    async def bind(self) -> None:
        await super().bind()
        assert self._server is not None
        for sock in self._server.sockets:
            self._buffers.set_on(sock)

    async def finish(self, seconds: float) -> None:
        """Wait a limited time for requests in progress."""
        await self.dispatcher.finish(seconds)

    async def _end_requests(self) -> None:
        await self.dispatcher.cancel()
