"""Connections of a session: requests in flight side by side, their deadlines, its end.

Nothing here makes a task or awaits per request: a request is written into the connection's batch,
and a future stands for its answer. One write per turn of the event loop goes to the socket, one
pass over what arrived completes the futures. A connection exists from its first request on, in the
state "connecting" at first: what is written before it stands goes out when it does, or fails when
it cannot. Deadlines are kept beside the futures and looked at by one timer per connection, because
a timer per request costs more than the request.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, cast

from mq.client.buffers import SocketBuffers
from mq.client.caller import parse_address
from mq.client.errors import BadAnswer, ConnectError, MQError, RequestTimeout, reason_of
from mq.protocol.command import RESPONSE, Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.errors import ProtocolError, RemoteProtocolError
from mq.protocol.frame import encode

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

# A time-out ends a connection on which nothing has come for so long, answers to others included:
# a peer's machine that went away without a word would else be sent to for ever.
SILENCE_SECONDS = 3.0


class Owner(Protocol):
    """What a connection asks of the session that it belongs to."""

    tls: "ssl.SSLContext | None"
    connect_timeout: float
    dead_after: float | None
    buffers: SocketBuffers

    def keep_task(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]": ...

    def serve(self, request: Command, peer: "Peer") -> None: ...

    def drop_peer(self, peer: "Peer") -> None: ...


class Waiter(Protocol):
    """Who is told the answer to a request: a future, or what a proxy has in its place."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, response: Command, /) -> None:
        """The answer, whatever its code."""

    def set_exception(self, error: MQError, /) -> None:
        """There will be none."""


class _Pending:
    """A request that waits for its answer."""

    __slots__ = ("code", "convert", "deadline", "future", "seconds")

    def __init__(
        self,
        future: "asyncio.Future[Any] | Waiter",
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


class Peer(asyncio.Protocol):
    """The connection to one address. Ends once: a new request then makes a new one."""

    def __init__(self, session: Owner, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self._session = session
        self._loop = loop
        self._reader = CommandReader()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._batch: list[bytes] = []
        self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard = loop.time()  # when the peer's last bytes came, or the connection stood
        self._writable: asyncio.Future[None] | None = None  # set while the socket is full
        self._error: MQError | None = None
        self.spoke = False  # something has come
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
        self._heard = self._loop.time()
        if self._session.dead_after is not None:
            _end_when_dead(transport.get_extra_info("socket"), self._session.dead_after)
        if any(self._session.buffers):
            self._session.buffers.set_on(transport.get_extra_info("socket"))
        self._flush()

    def request(
        self, command: Command, seconds: float, convert: Callable[[Command], Any] | None
    ) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._loop.create_future()
        self.forward(command, seconds, future, convert)
        return future

    def forward(
        self,
        command: Command,
        seconds: float,
        waiter: "asyncio.Future[Any] | Waiter",
        convert: Callable[[Command], Any] | None = None,
    ) -> None:
        deadline = self._loop.time() + seconds
        self.write(command)  # first: it raises for what cannot be sent, and nobody would wait
        self._pending[command.opaque] = _Pending(waiter, deadline, seconds, command.code, convert)
        if self._timer is None or deadline < self._timer.when():
            self._watch(deadline)

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
        self._heard = self._loop.time()
        self.spoke = True
        try:
            for command in self._reader.receive(data):
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
        """Fail what is overdue; look again when the next one may be.

        When nothing at all has come meanwhile, the connection may lead nowhere: it ends, so that
        the next request makes another one.
        """
        self._timer = None
        now = self._loop.time()
        leads_nowhere = False
        overdue = [opaque for opaque, entry in self._pending.items() if entry.deadline <= now]
        for opaque in overdue:
            entry = self._pending.pop(opaque)
            if not entry.future.done():
                error = RequestTimeout(self.address, entry.seconds, entry.code)
                entry.future.set_exception(error)
                leads_nowhere = leads_nowhere or self._heard <= now - SILENCE_SECONDS
        if leads_nowhere:
            reason = f"nothing was heard for {now - self._heard:.1f} s"
            # What is written will never be taken: a transport that is closed would wait for it.
            self._end(ConnectError(self.address, reason), flushes=False)
        elif self._pending:
            self._watch(min(entry.deadline for entry in self._pending.values()))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the peer closed the connection"
        if exc is not None:
            reason = reason_of(exc) if isinstance(exc, OSError) else str(exc)
        self._end(ConnectError(self.address, reason))

    def _end(self, error: MQError, *, flushes: bool = True) -> None:
        """The connection is over: every request that waits fails with `error`."""
        if self._error is not None:
            return
        self._error = error
        self._session.drop_peer(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            if flushes:
                self._transport.close()
            else:
                self._transport.abort()
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
    def stands(self) -> bool:
        """Whether the connection has been made."""
        return self._transport is not None and self._error is None

    @property
    def local_host(self) -> str | None:
        if self._transport is None:
            return None
        name: tuple[str, int] = self._transport.get_extra_info("sockname")
        return name[0]


def _end_when_dead(sock: socket.socket, seconds: float) -> None:
    """Have the kernel probe a silent connection each second, and end one that leads nowhere."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, int(seconds)))
