"""Sessions on an event loop: one connection per address, requests in flight side by side.

The hot path makes no task and awaits nothing: `Session.request` writes into the connection's
batch and returns a future that the answer completes. One write per turn of the event loop goes to
the socket, one pass over what arrived completes the futures. A connection exists from its first
request on, in the state "connecting" at first: what is written before it stands goes out when it
does, or fails when it cannot. Deadlines are kept beside the futures and looked at by one timer
per connection, because a timer per request costs more than the request.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from mq.client.caller import ROUTE_SECONDS, Caller, parse_address
from mq.client.errors import (
    BadAnswer,
    ClientError,
    ConnectError,
    MQError,
    RequestTimeout,
    reason_of,
)
from mq.protocol.codes import ResponseCode
from mq.protocol.command import ONE_WAY, RESPONSE, Command
from mq.protocol.connection import Connection
from mq.protocol.errors import ProtocolError, RemoteProtocolError
from mq.protocol.frame import encode

if TYPE_CHECKING:
    import ssl

    from mq.client.credentials import AccessKey

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Answers a request that a peer has pushed: `(request, address) -> response or None`.
RequestHandler = Callable[[Command, str], Command | Awaitable[Command | None] | None]

_MAX_OPAQUE = 0x7FFFFFFF  # the wire has a signed 32-bit number
_instances = count()  # tells the clients of one process apart


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("code", "convert", "deadline", "future", "seconds")

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        deadline: float,
        seconds: float,
        code: int,
        convert: Callable[[Command], Any] | None,
    ) -> None:
        self.future = future
        self.deadline = deadline
        self.seconds = seconds
        self.code = code
        self.convert = convert


class _Peer(asyncio.Protocol):
    """The connection to one address. Ends once: a new request then makes a new one."""

    def __init__(self, session: "Session", address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self._session = session
        self._loop = loop
        self._connection = Connection()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._batch: list[bytes] = []
        self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None  # set while the socket is full
        self._error: MQError | None = None
        self.ended: asyncio.Future[None] = loop.create_future()
        self._connecting = session.keep_task(self._connect())

    async def _connect(self) -> None:
        try:
            endpoint = parse_address(self.address)
            async with asyncio.timeout(self._session.connect_timeout):
                await self._loop.create_connection(lambda: self, *endpoint, ssl=self._session.tls)
        except TimeoutError:
            self._end(ConnectError(self.address, "no connection in time"))
        except OSError as error:
            self._end(ConnectError(self.address, reason_of(error)))
        except MQError as error:
            self._end(error)
        except asyncio.CancelledError:
            self._end(ConnectError(self.address, "the session was closed"))
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, so there is nothing to check.
        self._transport = transport = cast(asyncio.Transport, transport)
        if self._error is not None:
            transport.abort()
            return
        if self._session.dead_after is not None:
            _end_when_dead(transport.get_extra_info("socket"), self._session.dead_after)
        self._flush()

    def request(
        self, command: Command, seconds: float, convert: Callable[[Command], Any] | None
    ) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._loop.create_future()
        deadline = self._loop.time() + seconds
        self._pending[command.opaque] = _Pending(future, deadline, seconds, command.code, convert)
        if self._timer is None or deadline < self._timer.when():
            self._watch(deadline)
        self.write(command)
        return future

    def write(self, command: Command) -> None:
        self._batch.append(encode(command))
        if not self._flush_is_due and self._transport is not None:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._batch and self._transport is not None:
            self._transport.write(b"".join(self._batch))
            self._batch.clear()

    async def drain(self) -> None:
        """Wait while the socket takes no more. Raises ConnectError if the connection ends."""
        if self._transport is None and self._error is None:
            await asyncio.wait([self._connecting])
        while self._writable is not None:
            await asyncio.shield(self._writable)
        if self._error is not None:
            raise self._error

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def data_received(self, data: bytes) -> None:
        try:
            for command in self._connection.receive(data):
                if command.flag & RESPONSE:
                    pending = self._pending.pop(command.opaque, None)
                    if pending is not None and not pending.future.done():
                        self._complete(pending, command)
                else:
                    self._session.serve(command, self)
        except RemoteProtocolError as error:
            self._end(BadAnswer(self.address, str(error)))

    def _complete(self, pending: _Pending, response: Command) -> None:
        if pending.convert is None:
            pending.future.set_result(response)
            return
        try:
            pending.future.set_result(pending.convert(response))
        except MQError as error:
            pending.future.set_exception(error)
        except ProtocolError as error:
            pending.future.set_exception(BadAnswer(self.address, str(error)))
        except Exception as error:  # whatever it is, somebody waits
            log.exception("the answer of %s cannot be read", self.address)
            failure = BadAnswer(self.address, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            pending.future.set_exception(failure)

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail what is overdue; look again when the next one may be."""
        self._timer = None
        now = self._loop.time()
        overdue = [opaque for opaque, entry in self._pending.items() if entry.deadline <= now]
        for opaque in overdue:
            entry = self._pending.pop(opaque)
            if not entry.future.done():
                error = RequestTimeout(self.address, entry.seconds, entry.code)
                entry.future.set_exception(error)
        if self._pending:
            self._watch(min(entry.deadline for entry in self._pending.values()))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the peer closed the connection"
        if exc is not None:
            reason = reason_of(exc) if isinstance(exc, OSError) else str(exc)
        self._end(ConnectError(self.address, reason))

    def _end(self, error: MQError) -> None:
        """The connection is over: every request that waits fails with `error`."""
        if self._error is not None:
            return
        self._error = error
        self._session.drop_peer(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.close()
        self.resume_writing()
        self._batch.clear()
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(error)
        self._pending.clear()
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        self._flush()
        self._connecting.cancel()
        self._end(ConnectError(self.address, "the session was closed"))

    @property
    def local_host(self) -> str | None:
        if self._transport is None:
            return None
        name: tuple[str, int] = self._transport.get_extra_info("sockname")
        return name[0]


class Session(Caller):
    """A client's connections, one per address, and what it knows of routes.

    An async context manager. A connection that breaks fails what waits on it; the next request
    connects again. Routes that were asked for are refreshed every 30 seconds.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        *,
        timeout: float = 3.0,
        connect_timeout: float = 3.0,
        instance: str | None = None,
        unit_name: str | None = None,
        credentials: "AccessKey | None" = None,
        tls: "ssl.SSLContext | None" = None,
        dead_after: float | None = None,
    ) -> None:
        """`instance` sets this client's part of the client id; by default it is unique.

        `unit_name` is the unit of a cluster that spans several; messages say then that they are
        of a unit. Both timeouts are in seconds. Raises ClientError for addresses that are none.
        A connection ends when the peer's machine has acknowledged nothing for `dead_after` seconds,
        where the system can tell.
        """
        super().__init__(namesrv, timeout=timeout, credentials=credentials, tls=tls)
        self.connect_timeout = connect_timeout
        self.dead_after = dead_after
        self.unit_name = unit_name if unit_name and unit_name.strip() else None
        self._instance = instance or f"{os.getpid()}#{next(_instances)}#{time.time_ns():x}"
        self._client_id: str | None = None
        self._peers: dict[str, _Peer] = {}
        self._handlers: dict[int, RequestHandler] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._opaques = count(1)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def client_id(self) -> str:
        """ "ip@instance" or "ip@instance@unit", as Java's (ClientConfig.buildMQClientId)."""
        if self._client_id is None:
            host = _own_host(self.name_servers[0])
            parts = (host, self._instance, self.unit_name)
            self._client_id = "@".join(part for part in parts if part is not None)
        return self._client_id

    async def open(self) -> None:
        """Get ready to send. Safe to call again."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.keep_task(self._refresh_routes())

    async def close(self) -> None:
        """Close every connection and stop what runs in the background. Safe to call again."""
        self._loop = None
        peers = list(self._peers.values())
        for peer in peers:
            peer.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for peer in peers:
            await peer.ended

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @overload
    def request(
        self, address: str, command: Command, timeout: float | None = None
    ) -> "asyncio.Future[Command]": ...

    @overload
    def request(
        self,
        address: str,
        command: Command,
        timeout: float | None,
        convert: Callable[[Command], T],
    ) -> "asyncio.Future[T]": ...

    def request(
        self,
        address: str,
        command: Command,
        timeout: float | None = None,
        convert: Callable[[Command], T] | None = None,
    ) -> "asyncio.Future[Any]":
        """Send a request without waiting.

        The future gets the response, or what `convert` makes of it.
        The future fails with ConnectError, RequestTimeout or BadAnswer, or with the MQError that
        `convert` raises. Raises ClientError when the session is not open.
        """
        command.opaque = self._next_opaque()
        if self.credentials is not None:
            self.credentials.sign(command)
        seconds = self.timeout if timeout is None else timeout
        return self._peer(address).request(command, seconds, convert)

    async def invoke(self, address: str, command: Command, timeout: float | None = None) -> Command:
        return await self.request(address, command, timeout)

    async def invoke_oneway(self, address: str, command: Command) -> None:
        peer = self.send_oneway(address, command)
        await peer.drain()

    def send_oneway(self, address: str, command: Command) -> _Peer:
        """Send a request that nobody answers, without waiting until the socket takes it."""
        command.flag |= ONE_WAY
        command.opaque = self._next_opaque()
        if self.credentials is not None:
            self.credentials.sign(command)
        peer = self._peer(address)
        peer.write(command)
        return peer

    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        return list(await asyncio.gather(*coroutines))

    def on_request(self, code: int, handler: RequestHandler) -> None:
        """Let `handler` answer the requests of this code that peers push to us."""
        self._handlers[int(code)] = handler

    def serve(self, request: Command, peer: _Peer) -> None:
        """Answer a request that a peer has pushed. For the connections of this session."""
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"this client has no handler for request {request.code}"
            self._answer(
                request, request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark), peer
            )
            return
        try:
            answer = handler(request, peer.address)
        except Exception as error:
            answer = self._refusal(request, error)
        if isinstance(answer, Command) or answer is None:
            self._answer(request, answer, peer)
        else:
            self.keep_task(self._answer_later(request, answer, peer))

    async def _answer_later(
        self, request: Command, answer: Awaitable[Command | None], peer: _Peer
    ) -> None:
        try:
            response = await answer
        except Exception as error:
            response = self._refusal(request, error)
        self._answer(request, response, peer)

    def _refusal(self, request: Command, error: Exception) -> Command:
        """The peer waits for an answer, and the connection serves others, whatever was raised."""
        remark = str(error)
        if not isinstance(error, MQError | ProtocolError | ValueError):
            log.error("request %d of a peer failed", request.code, exc_info=error)
            remark = f"{type(error).__name__}: {error}"
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=remark)

    def _answer(self, request: Command, response: Command | None, peer: _Peer) -> None:
        if response is not None and not request.is_one_way:
            peer.write(response)

    def keep_task(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine as a task that ends with the session."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def is_connected(self, address: str) -> bool:
        """Whether there is a connection to an address, or one is being made."""
        return address in self._peers

    def _peer(self, address: str) -> _Peer:
        peer = self._peers.get(address)
        if peer is None:
            if self._loop is None:
                raise ClientError("the session is not open: use `async with`")
            peer = self._peers[address] = _Peer(self, address, self._loop)
        return peer

    def connection(self, address: str) -> object | None:
        """Stands for the connection there is to an address: another one is another object."""
        return self._peers.get(address)

    async def disconnected(self, address: str) -> None:
        """Wait until the connection there is to an address has ended."""
        peer = self._peers.get(address)
        if peer is not None:
            await asyncio.shield(peer.ended)

    def drop_peer(self, peer: _Peer) -> None:
        """Forget a connection that has ended. For the connections of this session."""
        if self._peers.get(peer.address) is peer:
            del self._peers[peer.address]

    def _next_opaque(self) -> int:
        return next(self._opaques) & _MAX_OPAQUE

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(ROUTE_SECONDS)
            for topic in list(self._routes):
                # A route that cannot be had now stays as it is; who needs it will see the error.
                with contextlib.suppress(MQError):
                    await self._fetch_route(topic)


def _end_when_dead(sock: socket.socket, seconds: float) -> None:
    """Have the kernel probe a silent connection each second, and end one that leads nowhere."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, int(seconds)))


def _own_host(peer: str) -> str:
    """The address that this host uses towards `peer`; nothing is sent to find out."""
    endpoint = parse_address(peer)
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(endpoint)
            host: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return host
