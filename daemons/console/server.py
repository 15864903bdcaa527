"""HTTP for the console: uvicorn's protocol on our own listener.

uvicorn's own server would handle the signals of the process and check ten times per second whether
to stop. Its other parts, a listener and a set of connections, are here.
"""

import asyncio
import logging
import resource
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Self

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mq.daemons.accept import bind, bound_port, start_accepting, stop_accepting

log = logging.getLogger(__name__)

App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

STOP_SECONDS = 1.0  # for pending responses when the daemon stops
HEADER_SECONDS = 15.0  # limit for the head of a request, from its first byte
BODY_SECONDS = 30.0  # limit for its body after the head
UNREAD_SECONDS = 30.0  # limit for a client that does not read its response
LEAST_READ = 16 * 1024  # bytes; this much, or all
IDLE_SECONDS = 65  # a connection is kept between requests; proxies close theirs after 60 s
MOST_HEADER = 64 * 1024  # bytes of a request's line and headers
MOST_CONNECTIONS = 1000  # beyond that a new one replaces an idle one


def most_connections() -> int:
    """Return the maximum number of connections.

    Half of the open files are reserved for the console: brokers, the audit, accounts, the
    history."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MOST_CONNECTIONS, soft // 2)


class _State(ServerState):
    """The connections of one port."""

    has_ended = False  # newly accepted connections are aborted

    def has_room(self) -> bool:
        """Return whether a connection may be added; one without a complete request may be closed
        for it.

        That is the longest-waiting one of the address with most of them.
        """
        if len(self.connections) < most_connections():
            return True
        by_host: dict[str, list[_Connection]] = {}
        for one in self.connections:
            if isinstance(one, _Connection) and one.is_waiting:
                by_host.setdefault(one.client[0] if one.client else "", []).append(one)
        if not by_host:
            return False
        most = max(by_host, key=lambda host: len(by_host[host]))
        victim = min(by_host[most], key=lambda one: one.since)
        self.connections.discard(victim)  # the transport reports it only later
        victim.transport.abort()
        return True


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
        self.state = _State()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError with the address if it is in use."""
        # It logs invalid requests without the client; the shell has logged failures of the console.
        for name in ("uvicorn", "uvicorn.error"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._config.load()
        self._server = await bind(
            self._protocol,
            self.host,
            self.port,
            backlog=self._backlog,
            tls=self._tls,
            # A connection is not counted before the end of the handshake.
            handshake_seconds=HEADER_SECONDS if self._tls else None,
        )
        await start_accepting(self._server)
        self.port = bound_port(self._server)
        return self

    def _protocol(self) -> asyncio.Protocol:
        return _Connection(self._config, self.state, {}, asyncio.get_running_loop())

    async def __aexit__(self, *_: object) -> None:
        """Stop listening; pending requests have a second, and are then cancelled."""
        if self._server is None:
            return
        server, self._server, self.state.has_ended = self._server, None, True
        stop_accepting(server)
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
        await asyncio.sleep(0)  # the port is free after it


class _Connection(H11Protocol):
    """A connection with time limits for everything: each occupies a place."""

    server_state: _State
    since = 0.0  # its start or the end of its last response, by the loop's clock
    _request: asyncio.TimerHandle | None = None  # until the request is complete
    _reader: asyncio.TimerHandle | None = None  # until the client has read the response

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self.server_state.has_ended or not self.server_state.has_room():
            transport.abort()
        super().connection_made(transport)
        self.since = self.loop.time()
        self._request = self.loop.call_later(HEADER_SECONDS, self._late)

    def data_received(self, data: bytes) -> None:
        """Process received data; an incomplete request has a time limit from its first part."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._end_request_timer()
        self._expect()

    def on_response_complete(self) -> None:
        """The next request of the connection has a time limit from its own first part."""
        self._end_request_timer()
        self.since = self.loop.time()
        super().on_response_complete()
        self._expect()  # its first part may have arrived with the previous request

    def _expect(self) -> None:
        if self._request is not None or self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            if self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
                self._request = self.loop.call_later(HEADER_SECONDS, self._late)
        elif self.cycle.more_body:
            self._request = self.loop.call_later(BODY_SECONDS, self._late)

    @property
    def is_waiting(self) -> bool:
        """Return whether no complete request of it is being processed."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def _late(self) -> None:
        self._request = None
        if self.is_waiting and not self.transport.is_closing():
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client reads slowly: there is a time limit."""
        super().pause_writing()
        if self._reader is None:
            self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._reader = self.loop.call_later(UNREAD_SECONDS, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        if self.transport.get_write_buffer_size() > before - LEAST_READ:
            self.transport.abort()
        else:
            self._wait_for_reader()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._end_reader_timer()

    def timeout_keep_alive_handler(self) -> None:
        """No request followed: close, even if the client has not read everything."""
        super().timeout_keep_alive_handler()
        if self._reader is None:
            self._wait_for_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_request_timer()
        self._end_reader_timer()

    def _end_request_timer(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None

    def _end_reader_timer(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
