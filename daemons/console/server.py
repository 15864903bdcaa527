"""HTTP for the console: uvicorn's protocol on a listener of ours.

uvicorn's own server would take the signals of the process and look ten times a second whether it
should end. What it does beside, a listener and a set of connections, is all that is needed here.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Self

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

log = logging.getLogger(__name__)

App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

STOP_SECONDS = 1.0  # for answers under way when the daemon stops
HEADER_SECONDS = 15.0  # in which the first request of a connection has to come
IDLE_SECONDS = 65  # a connection is kept between requests; proxies drop theirs after 60 s
MOST_HEADER = 64 * 1024  # bytes of a request's line and headers
MOST_CONNECTIONS = 1000  # beyond that new ones are closed at once


class HttpServer:
    """The port of the console: `async with HttpServer(app, host, port, tls)`."""

    def __init__(
        self, app: App, host: str, port: int, tls: ssl.SSLContext | None, backlog: int = 1024
    ) -> None:
        self.host = host
        self.port = port
        self._tls = tls
        self._backlog = backlog
        self._config = Config(
            app,
            http=H11Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            h11_max_incomplete_event_size=MOST_HEADER,
        )
        self.state = ServerState()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError."""
        # What a peer sends wrong it logs without the peer; what fails here the shell has logged.
        for name in ("uvicorn", "uvicorn.error"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._config.load()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._protocol, self.host, self.port, ssl=self._tls, backlog=self._backlog
        )
        bound: socket.socket = self._server.sockets[0]
        self.port = bound.getsockname()[1]
        return self

    def _protocol(self) -> asyncio.Protocol:
        return _Connection(self._config, self.state, {}, asyncio.get_running_loop())

    async def __aexit__(self, *_: object) -> None:
        """Stop listening; what is under way has a second, and is cancelled then."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.state.connections):
            connection.shutdown()
        under_way: set[asyncio.Task[None]] = set(self.state.tasks)
        if under_way:
            _done, late = await asyncio.wait(under_way, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=STOP_SECONDS)
        for connection in list(self.state.connections):
            transport = connection.transport
            if transport is not None:
                transport.abort()


class _Connection(H11Protocol):
    """A connection whose first request may not take for ever."""

    _first: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.server_state.connections) >= MOST_CONNECTIONS:
            transport.abort()
        super().connection_made(transport)
        self._first = self.loop.call_later(HEADER_SECONDS, self._late)

    def _late(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._first is not None:
            self._first.cancel()
        super().connection_lost(exc)
