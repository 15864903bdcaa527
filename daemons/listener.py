"""Where a daemon meets its peers: one port, its connections, and requests in both directions.

One ``data_received`` reads every whole frame that has arrived and writes one joined reply. Requests
go to a handler by their code; those of the hot path go, still undecoded but for the header's JSON,
to a direct handler. A peer that does not read its replies is not read from either, so that it
cannot fill our memory; a peer that sends what is not a frame is closed and counted.
"""

import asyncio
import errno
import logging
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, cast

import orjson

from mq.daemons.dispatch import (
    DirectHandler,
    Guard,
    Handler,
    Overloaded,
    Refused,
    Reply,
    error_reply,
    guarded,
    guarded_direct,
    unknown_code,
)
from mq.daemons.tls import Greeter, ServerTls, TlsConnection
from mq.protocol.command import JSON, ONE_WAY, RESPONSE, Command
from mq.protocol.connection import FrameBuffer, check_length
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError
from mq.protocol.frame import decode, encode

log = logging.getLogger(__name__)

_PREFIX = struct.Struct(">iI")
_HEADER_LENGTH = 0xFFFFFF
_JSON = JSON
_RESPONSE = RESPONSE

# What a direct handler, which takes the header as it comes, stumbles over when it is not as it
# should be: a field that is missing, of another type, not a number, or too large for its place.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, struct.error)

# Bytes waiting for one slow peer before we stop reading from it. Netty's default for the Java
# server is 64 KiB; a pull reply alone is 256 KiB, so that would stop and go with every reply.
WRITE_BUFFER_LIMIT = 1024 * 1024


class Channel(asyncio.Protocol):
    """One connection of a peer, from accept to close."""

    def __init__(self, listener: "Listener") -> None:
        self.attributes: dict[str, Any] = {}
        self.on_close: list[Callable[[Channel], None]] = []
        self.remote_address: tuple[str, int] = ("", 0)
        self.local_address: tuple[str, int] = ("", 0)
        self.remote = ""
        self.born_host = b""  # address and port as a commit-log record holds them
        self.closed = False
        self.active_at = 0  # the listener's clock, in its ticks
        self._listener = listener
        self._direct = listener.direct
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | TlsConnection | None = None
        self._out: list[bytes | memoryview] = []
        self._reading = False  # inside data_received: replies are joined and leave at its end
        self._opaque = 0
        self._waiting: dict[int, asyncio.Future[Command]] = {}

    # asyncio calls these ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's own are not instances of it
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_LIMIT)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername") or ("", 0)
        own = transport.get_extra_info("sockname") or ("", 0)
        self.remote_address = (peer[0], peer[1])
        self.local_address = (own[0], own[1])
        host = f"[{peer[0]}]" if ":" in peer[0] else peer[0]
        self.remote = f"{host}:{peer[1]}"
        self.born_host = _packed_address(peer[0], peer[1])
        self.active_at = self._listener.ticks
        self._listener.channels.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._listener.forget(self)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(f"{self.remote} closed the connection"))
        self._waiting.clear()
        for callback in self.on_close:
            callback(self)
        self.on_close.clear()

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        assert self._transport is not None
        if not self.closed and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.active_at = self._listener.ticks
        self._reading = True
        try:
            self._read_frames(data)
        except RemoteProtocolError as error:
            self._listener.complain(self, error)
            self.close()
        finally:
            self._reading = False
            if self._out:
                self.flush()

    def encrypted(self, connection: TlsConnection) -> None:
        """From here on everything goes through this connection."""
        self._transport = connection

    def refuse(self, why: str) -> None:
        """Close a connection that is not as it should be, before anything of it was read."""
        self._listener.complain(self, RemoteProtocolError(why))
        self.close()

    # what handlers use ----------------------------------------------------------------------

    def send(self, command: Command) -> None:
        """Send a command; it leaves with what else is sent in this turn of the loop."""
        self.send_frame(encode(command))

    def send_frame(self, frame: bytes | memoryview) -> None:
        """Send bytes that are a whole frame, or the next part of one."""
        self._out.append(frame)
        if not self._reading:
            self.flush()

    def queue_frame(self, frame: bytes | memoryview) -> None:
        """Like send_frame, for a caller that sends many and calls flush itself."""
        self._out.append(frame)

    def send_parts(self, parts: list[bytes | memoryview]) -> None:
        """Send a frame that consists of several parts, without joining them twice."""
        self._out += parts
        if not self._reading:
            self.flush()

    def flush(self) -> None:
        """Write what has been queued."""
        out = self._out
        if not out:
            return
        self._out = []
        if self.closed or self._transport is None:
            return
        self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def reply(
        self,
        request: Command,
        code: int = 0,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """Answer a request that was kept; nothing happens where no answer is awaited."""
        if not request.is_one_way and not self.closed:
            self.send(request.reply(code, fields, body, remark=remark))

    async def request(self, command: Command, timeout: float) -> Command:
        """Ask the peer, which is a client with handlers of its own, and wait for its answer.

        Raises TimeoutError after ``timeout`` seconds and ConnectionError if the peer goes away.
        """
        if self.closed:
            raise ConnectionError(f"{self.remote} has closed the connection")
        self._opaque += 1
        command.opaque = self._opaque
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[command.opaque] = future
        try:
            self.send(command)
            return await asyncio.wait_for(future, timeout)
        finally:
            self._waiting.pop(command.opaque, None)

    def notify(self, command: Command) -> None:
        """Tell the peer something that it does not answer."""
        self._opaque += 1
        command.opaque = self._opaque
        command.flag |= ONE_WAY
        self.send(command)

    @property
    def unsent(self) -> int:
        """Bytes that the peer has not taken yet."""
        if self.closed or self._transport is None:
            return 0
        return self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close once what was sent has left. Calling it again does nothing."""
        if self._transport is not None and not self._transport.is_closing():
            self.flush()
            self._transport.close()

    # reading --------------------------------------------------------------------------------

    def _read_frames(self, data: bytes) -> None:
        data = self._frames.take(data)
        direct_handlers = self._direct
        position = 0
        end = len(data)
        while end - position >= 8:
            length, word = _PREFIX.unpack_from(data, position)
            check_length(length)
            stop = position + 4 + length
            if stop > end:
                break
            start = position + 8
            if word >> 24 == _JSON:
                body = start + (word & _HEADER_LENGTH)
                try:
                    header = orjson.loads(data[start:body])
                    direct = direct_handlers.get(header["code"])
                    if direct is not None and not header["flag"] & _RESPONSE and body <= stop:
                        direct(header, data[body:stop], self)
                        position = stop
                        continue
                except Exception as error:
                    # Mostly not a header that the hot path understands: read it again with care,
                    # so that the peer learns what exactly is wrong.
                    self._refuse(data[position + 4 : stop], error)
                    position = stop
                    continue
            self._take(decode(data[position + 4 : stop]))
            position = stop
        self._frames.keep(data, position)

    def _refuse(self, frame: bytes, error: Exception) -> None:
        command = decode(frame)
        if isinstance(error, KeyError):
            error = RemoteProtocolError(f"the header lacks the field {error}")
        elif isinstance(error, _MALFORMED):
            error = RemoteProtocolError(f"a field of the header is malformed: {error}")
        reply = self._listener.failed(command, self, error)
        if not command.is_one_way and not command.is_response:
            self.send(reply)

    def _take(self, command: Command) -> None:
        if command.flag & RESPONSE:
            future = self._waiting.pop(command.opaque, None)
            if future is not None and not future.done():
                future.set_result(command)
            return
        self._listener.handle(command, self)


class Listener:
    """A port and the handlers behind it.

    ``handlers`` answer ordinary requests, ``direct`` those of the hot path. ``port`` is the one
    bound, also where 0 was asked for. ``idle_seconds`` closes a connection on which nothing has
    come for so long (Java: serverChannelMaxIdleTimeSeconds); 0 never does. ``guard`` is asked
    before every handler; without one nothing is paid for it. With ``tls`` connections may be, or
    have to be, encrypted. An ordinary request that takes over ``slow_seconds`` is logged and
    counted. ``max_connections`` gives how many may be open; 0 stands for no limit in both.
    """

    # How often idle connections are looked for, in seconds; also the unit of `ticks`.
    TICK = 5.0

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        host: str,
        port: int,
        *,
        direct: Mapping[int, DirectHandler] | None = None,
        idle_seconds: float = 120,
        backlog: int = 1024,
        guard: Guard | None = None,
        tls: ServerTls | None = None,
        slow_seconds: float = 0.0,
        max_connections: Callable[[], int] = lambda: 0,
    ) -> None:
        self._guard = guard
        self._tls = tls
        self.handlers: dict[int, Handler] = {}
        # Any object may be asked for: a header's code is checked by looking it up.
        self.direct: dict[object, DirectHandler] = {}
        self.serve(handlers, direct)
        self.host = host
        self.port = port
        self.channels: set[Channel] = set()
        self.ticks = 0
        self.bad_requests = 0
        self.turned_away = 0
        self.refusals: Counter[tuple[int, str]] = Counter()  # by request code and cause
        self.slow_requests: Counter[int] = Counter()  # by request code
        self._slow_seconds = slow_seconds or float("inf")
        self._max_connections = max_connections
        self._idle_ticks = int(idle_seconds / self.TICK)
        self._backlog = backlog
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Future[None] | None = None  # done when the last channel has gone

    async def __aenter__(self) -> "Listener":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def serve(
        self, handlers: Mapping[int, Handler], direct: Mapping[int, DirectHandler] | None = None
    ) -> None:
        """Answer these requests too; for a daemon that needs its port before its handlers."""
        guard = self._guard
        for code, handler in handlers.items():
            self.handlers[code] = handler if guard is None else guarded(handler, guard)
        for code, direct_handler in (direct or {}).items():
            self.direct[code] = (
                direct_handler if guard is None else guarded_direct(code, direct_handler, guard)
            )

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
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self) -> asyncio.Protocol:
        channel = Channel(self)
        return channel if self._tls is None else Greeter(channel, self._tls)

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

    async def close(self) -> None:
        """Stop accepting, end what runs, close every connection. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self.stop_accepting()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in list(self.channels):
            channel.close()
        if self.channels:
            self._closing = asyncio.get_running_loop().create_future()
            await self._closing
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def handle(self, command: Command, channel: Channel) -> None:
        """Give a request to its handler and send what comes of it."""
        handler = self.handlers.get(command.code)
        reply: Reply
        if handler is None:
            reply = unknown_code(command)
        else:
            try:
                began = perf_counter()
                result = handler(command, channel)
            except Exception as error:
                reply = self.failed(command, channel, error)
            else:
                if isinstance(result, Awaitable):
                    task = asyncio.ensure_future(self._await(command, channel, result, began))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                    return
                if perf_counter() - began > self._slow_seconds:
                    self._was_slow(command, channel, perf_counter() - began)
                reply = result
        self._send(command, channel, reply)

    def forget(self, channel: Channel) -> None:
        """A channel has closed."""
        self.channels.discard(channel)
        if not self.channels and self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    def complain(self, channel: Channel, error: Exception) -> None:
        """Count a bad request and log it; the log lets one line a second through for each peer."""
        self.bad_requests += 1
        log.warning(
            "bad request from %s: %s: %s",
            channel.remote,
            type(error).__name__,
            error,
            extra={"peer": channel.remote_address[0]},
        )

    async def _await(
        self, command: Command, channel: Channel, result: Awaitable[Reply], began: float
    ) -> None:
        try:
            reply = await result
        except Exception as error:
            reply = self.failed(command, channel, error)
        if perf_counter() - began > self._slow_seconds:
            self._was_slow(command, channel, perf_counter() - began)
        self._send(command, channel, reply)

    def _was_slow(self, command: Command, channel: Channel, seconds: float) -> None:
        self.slow_requests[command.code] += 1
        log.warning(
            "request %d of %s took %.3f s",
            command.code,
            channel.remote,
            seconds,
            extra={"failure": f"slow requests {command.code}"},
        )

    def failed(self, command: Command, channel: Channel, error: Exception) -> Command:
        """The reply for a request that raised; what is not the peer's own fault is logged."""
        if isinstance(error, Refused):
            cause = error.limit if isinstance(error, Overloaded) else error.code.name
            self.refusals[command.code, cause] += 1
        elif not isinstance(error, RemoteProtocolError):
            log.error(
                "request %d of %s failed",
                command.code,
                channel.remote,
                exc_info=error,
                extra={"failure": f"request {command.code}"},
            )
        else:
            self.complain(channel, error)
        return error_reply(command, error)

    def _send(self, command: Command, channel: Channel, reply: Reply) -> None:
        if reply is None or command.is_one_way or channel.closed:
            return
        try:
            channel.send(reply)
        except LocalProtocolError as error:
            channel.send(error_reply(command, error))

    def _tick(self) -> None:
        self.ticks += 1
        if self._idle_ticks:
            oldest = self.ticks - self._idle_ticks
            for channel in [c for c in self.channels if c.active_at < oldest]:
                log.info("closing %s: idle", channel.remote)
                channel.close()
        self._timer = asyncio.get_running_loop().call_later(self.TICK, self._tick)


def _packed_address(host: str, port: int) -> bytes:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host.partition("%")[0]) + struct.pack(">i", port)
    except OSError:  # not an IP peer (a unix socket in a test): the unspecified address
        return bytes(4) + struct.pack(">i", port)
