"""One connection of a peer, as handlers and the store see it.

One ``data_received`` reads every whole frame that has arrived and writes one joined reply. Requests
of the hot path go, still undecoded but for the header's JSON, to a direct handler. A peer that does
not read its replies is not read from either, so that it cannot fill our memory.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import orjson

from mq.daemons.shedding import LARGE
from mq.protocol.command import JSON, ONE_WAY, RESPONSE, Command
from mq.protocol.connection import FrameBuffer, check_length
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import decode, encode

if TYPE_CHECKING:
    from mq.daemons.listener import Listener
    from mq.daemons.tls import TlsConnection

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
        self._ended = False  # by us
        self.waits = False  # some of what came lies in the listener's backlog
        self._holds = [False, False]  # reading: for the sake of writing, for the backlog
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
        if self.waits:
            for data in self._listener.backlog.rest(self):
                self.read(data)
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
        self._hold(0, True)

    def resume_writing(self) -> None:
        self._hold(0, False)

    def hold_reading(self, hold: bool) -> None:
        """Read no more for now, or go on."""
        self._hold(1, hold)

    def _hold(self, reason: int, hold: bool) -> None:
        self._holds[reason] = hold
        transport = self._transport
        if transport is None or self.closed or transport.is_closing():
            return
        if any(self._holds):
            transport.pause_reading()
        else:
            transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.active_at = self._listener.ticks
        if (self.waits or len(data) >= LARGE) and self._listener.backlog.keeps(self, data):
            return
        self.read(data)

    def read(self, data: bytes, stale: bool = False) -> None:
        """Serve what came, unless we have closed; of what is `stale`, sends are refused."""
        if self._ended:
            return
        self._reading = True
        try:
            self._read_frames(self._without_sends(data) if stale else data)
        except RemoteProtocolError as error:
            self._listener.complain(self, error)
            self.close()
        finally:
            self._reading = False
            if self._out:
                self.flush()

    def encrypted(self, connection: "TlsConnection") -> None:
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
        self._ended = True
        if self._transport is not None and not self._transport.is_closing():
            self.flush()
            self._transport.close()

    # reading --------------------------------------------------------------------------------

    def _without_sends(self, data: bytes) -> bytes:
        """Refuse the sends; the rest is to be read."""
        data = self._frames.take(data)
        return self._listener.refuse_stale(self, data) if data else data

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


def _packed_address(host: str, port: int) -> bytes:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host.partition("%")[0]) + struct.pack(">i", port)
    except OSError:  # not an IP peer (a unix socket in a test): the unspecified address
        return bytes(4) + struct.pack(">i", port)
