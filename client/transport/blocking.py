"""A session for short commands: one request at a time over plain sockets, without an event loop.

Its methods are coroutines, so that callers are written once for both kinds of session, but they
block instead of suspending. `run` drives such a coroutine to completion.
"""

import socket
from collections.abc import Coroutine, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from mq.client.errors import BadAnswer, ClientError, ConnectError, RequestTimeout, reason_of
from mq.client.machine import clock
from mq.client.options import ClientKeywords, ClientOptions
from mq.client.transport.caller import Caller, parse_address
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import encode

if TYPE_CHECKING:
    import ssl


T = TypeVar("T")

_CHUNK = 256 * 1024  # bytes per read from the socket


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only a BlockingSession, and return its result.

    Raises what the coroutine raises, and ClientError if it waits for an event loop.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise ClientError("this needs an event loop: use Session and asyncio.run")


class _Wire:
    """One connection with at most one request at a time."""

    def __init__(self, address: str, deadline: float, tls: "ssl.SSLContext | None") -> None:
        self.address = address
        self._reader = CommandReader()
        endpoint = parse_address(address)
        try:
            self._socket = socket.create_connection(endpoint, _left(deadline))
        except TimeoutError:
            raise ConnectError(address, "no connection in time") from None
        except OSError as error:
            raise ConnectError(address, reason_of(error)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._encrypt(tls, endpoint.host)

    def _encrypt(self, tls: "ssl.SSLContext", host: str) -> None:
        plain = self._socket
        try:
            self._socket = tls.wrap_socket(plain, server_hostname=host)
        except OSError as error:  # SSLError and TimeoutError are subclasses
            plain.close()
            raise ConnectError(self.address, reason_of(error)) from None

    def send(self, command: Command, deadline: float) -> None:
        self._socket.settimeout(_left(deadline))
        try:
            self._socket.sendall(encode(command))
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectError(self.address, reason_of(error)) from None

    def response(self, opaque: int, deadline: float) -> Command:
        while True:
            self._socket.settimeout(_left(deadline))
            try:
                data = self._socket.recv(_CHUNK)
            except TimeoutError:
                raise
            except OSError as error:
                raise ConnectError(self.address, reason_of(error)) from None
            if not data:
                raise ConnectError(self.address, "the peer closed the connection")
            try:
                for command in self._reader.receive(data):
                    if command.is_response and command.opaque == opaque:
                        return command
            except RemoteProtocolError as error:
                raise BadAnswer(self.address, str(error)) from None

    def is_closed(self) -> bool:
        """Whether the peer has closed the connection, as brokers do with idle clients."""
        self._socket.setblocking(False)
        try:
            # Peek at the raw bytes: TLS sockets do not support MSG_PEEK.
            return not socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._socket.close()


def _left(deadline: float) -> float:
    """Return the seconds until the deadline. Raises TimeoutError if it has passed."""
    left = deadline - clock.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class BlockingSession(Caller):
    """A session without an event loop. Use it in a `with` block and drive it with `run`.

    It keeps one connection per address, ignores requests from brokers, and does not refresh routes
    in the background.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        options: ClientOptions | None = None,
        **keywords: Unpack[ClientKeywords],
    ) -> None:
        """See `Caller`."""
        super().__init__(namesrv, options, **keywords)
        self._wires: dict[str, _Wire] = {}
        self._opaques = count(1)

    @classmethod
    def beside(cls, session: Caller) -> Self:
        """Return a session to the same cluster with the options of `session`, for another
        thread.
        """
        return cls(session.name_servers or session.address_server or (), session.options)

    def blocking(self) -> "BlockingSession":
        """Return a session to the same cluster for another thread, without an event loop."""
        return BlockingSession.beside(self)

    async def invoke(self, address: str, command: Command, timeout: float | None = None) -> Command:
        seconds = self.timeout if timeout is None else timeout
        deadline = clock.monotonic() + seconds
        command.opaque = next(self._opaques)
        if self._seals:
            self._seal(address, command)
        try:
            wire = self._wire(address, deadline)
            wire.send(command, deadline)
            response = wire.response(command.opaque, deadline)
        except TimeoutError:
            self._drop(address)
            raise RequestTimeout(address, seconds, command.code) from None
        except (ConnectError, BadAnswer):
            self._drop(address)
            raise
        if self._rpc_hooks is not None:
            self._responded(address, command, response)
        return response

    async def invoke_oneway(self, address: str, command: Command) -> None:
        command.flag |= ONE_WAY
        command.opaque = next(self._opaques)
        if self._seals:
            self._seal(address, command)
        deadline = clock.monotonic() + self.timeout
        try:
            self._wire(address, deadline).send(command, deadline)
        except TimeoutError:
            self._drop(address)
            raise RequestTimeout(address, self.timeout, command.code) from None
        except ConnectError:
            self._drop(address)
            raise

    async def all(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        waiting = list(coroutines)
        results = []
        try:
            while waiting:
                results.append(await waiting.pop(0))
        finally:
            # after an error: Python warns about coroutines that are never awaited
            for coroutine in waiting:
                coroutine.close()
        return results

    def _wire(self, address: str, deadline: float) -> _Wire:
        wire = self._wires.get(address)
        if wire is not None and wire.is_closed():
            self._drop(address)
            wire = None
        if wire is None:
            wire = self._wires[address] = _Wire(address, deadline, self.tls)
        return wire

    def _drop(self, address: str) -> None:
        wire = self._wires.pop(address, None)
        if wire is not None:
            wire.close()

    def close(self) -> None:
        """Close every connection. Safe to call more than once."""
        for address in list(self._wires):
            self._drop(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
