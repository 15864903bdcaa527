"""The connections of a session: requests, their answers, and requests from the peer (see
in_flight).

One pass over received data completes all futures.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from mq.client.errors import BadAnswer, MQError
from mq.client.transport.buffers import SocketBuffers
from mq.client.transport.caller import parse_address
from mq.client.transport.in_flight import InFlight, Pending, Waiter
from mq.protocol.command import RESPONSE, Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.errors import ProtocolError, RemoteProtocolError
from mq.protocol.frame import encode

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)


class Owner(Protocol):
    """The operations of the owning session that a connection uses."""

    tls: "ssl.SSLContext | None"
    connect_timeout: float
    dead_after: float | None
    buffers: SocketBuffers

    def keep_task(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]": ...

    def serve(self, request: Command, peer: "Peer") -> None: ...

    def drop_peer(self, peer: "Peer") -> None: ...

    def unanswered(self, address: str, codes: Iterable[int]) -> None: ...


class Peer(InFlight):
    """The connection to one address. After its end, a new request opens a new one."""

    def __init__(self, session: Owner, address: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(address, loop, "session")
        self._session = session
        self._reader = CommandReader()
        self.spoke = False  # whether any data was received
        self._await_connection(session.keep_task(self._connect(session.connect_timeout)))

    async def _dial(self) -> None:
        endpoint = parse_address(self.address)
        await self._loop.create_connection(lambda: self, *endpoint, ssl=self._session.tls)

    def _made(self, transport: asyncio.Transport) -> None:
        if self._session.dead_after is not None:
            _end_when_dead(transport.get_extra_info("socket"), self._session.dead_after)
        if any(self._session.buffers):
            self._session.buffers.set_on(transport.get_extra_info("socket"))

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
        self.write(command)  # first: it raises for a command that cannot be encoded
        self._wait(command.opaque, Pending(waiter, deadline, seconds, command.code, convert))

    def write(self, command: Command) -> None:
        self._batch.append(encode(command))
        self._write_soon()

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

    def _complete(self, pending: Pending, response: Command) -> None:
        if pending.convert is None:
            pending.future.set_result(response)
            return
        try:
            pending.future.set_result(pending.convert(response))
        except MQError as error:
            pending.future.set_exception(error)
        except ProtocolError as error:
            pending.future.set_exception(BadAnswer(self.address, str(error)))
        except Exception as error:  # any error must complete the future
            log.exception("the answer of %s cannot be read", self.address)
            failure = BadAnswer(self.address, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            pending.future.set_exception(failure)

    def _unanswered(self, codes: Iterable[int]) -> None:
        self._session.unanswered(self.address, codes)

    def _over(self) -> None:
        self._session.drop_peer(self)

    @property
    def local_host(self) -> str | None:
        if self._transport is None:
            return None
        name: tuple[str, int] = self._transport.get_extra_info("sockname")
        return name[0]


def _end_when_dead(sock: socket.socket, seconds: float) -> None:
    """Let the kernel probe a silent connection every second, and end a dead one."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, int(seconds)))
