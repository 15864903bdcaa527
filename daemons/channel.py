"""Channel: one connection of a peer, as used by handlers and the store.

One ``data_received`` reads every whole frame that has arrived and writes one joined reply. Requests
of the hot path go to a direct handler, undecoded except for the header's JSON.

A peer that does not read its replies is `stalled`: nothing is read from it, and data already read
or due to it waits until the peer has read its replies. The channel reports the memory that the peer
uses meanwhile to the memory budget (see memory.py).
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

import orjson

from mq.daemons.busy_polling import BusyPolling
from mq.daemons.memory import PIECE_COST, MemoryBudget
from mq.daemons.outgoing import Outgoing, Transport
from mq.daemons.overload.backlog import LARGE, Backlog
from mq.daemons.overload.busy_reply import BusyReply, opaque_in
from mq.daemons.pending_requests import PendingRequests
from mq.protocol.codes import Dialect
from mq.protocol.command import JSON, ONE_WAY, RESPONSE, Command, command_from_header, is_plain
from mq.protocol.command_reader import FrameBuffer, check_length
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import HEADER_LENGTH, PREFIX, decode
from mq.protocol.host import pack_address

_JSON = JSON
_RESPONSE = RESPONSE

# Errors of a direct handler, which gets an unchecked header, for a malformed one: a field that is
# missing, has another type, is not a number, or is too large.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, struct.error)

# Limit of unsent bytes of one slow peer before reading from it stops. Netty's default for the Java
# server is 64 KiB; a single pull reply has 256 KiB, so reading would stop and resume with every
# reply.
WRITE_BUFFER_LIMIT = 1024 * 1024

# Limit of bytes that one peer may have reserved, for instance for replies being read from the disk,
# before it is stalled: thirty pulls of 256 KiB.
MAX_PENDING_BYTES = 8 * 1024 * 1024

# If at least this many bytes follow a frame that arrived in pieces, they are not joined to it.
LARGE_REST = 16 * 1024

# Reasons to pause reading from a connection: it does not read its replies; the listener has enough
# to serve; too many bytes are reserved for it.
_WRITING, _BACKLOG, _RESERVED = range(3)
_LAST_READS = 0.5  # seconds for which an evicted connection is still read


class Port(Protocol):
    """The parts of its listener that a channel uses."""

    ticks: int  # the listener's clock
    closing: bool
    channels: "dict[Channel, None]"
    backlog: Backlog
    memory: MemoryBudget
    polling: BusyPolling

    def forget(self, channel: "Channel") -> None:
        """Remove a closed channel."""


# Serves the frames that it supports, starting at a position, and returns the position of the first
# other one.
Bulk = Callable[[bytes, int, "Channel"], int]

# Defers the received data, one whole frame, until the end of this turn of the event loop; returns
# whether it does. A frame that it cannot serve then is passed to `Channel.serve_frame`.
PutOff = Callable[[bytes, "Channel"], bool]


class NotReady(Exception):
    """Raised by a handler that has changed nothing yet and must wait for a preparation.

    The handler is called again after `prepare`, whose result is kept until then.
    """

    def __init__(self, prepare: Callable[["Channel"], Awaitable[object]]) -> None:
        super().__init__("not ready")
        self.prepare = prepare


class Requests(Protocol):
    """The parts of the dispatcher that a channel uses."""

    direct: dict[object, Callable[[dict[str, object], bytes, "Channel"], None]]
    bulk: Bulk | None
    defer: PutOff | None

    def handle(self, command: Command, channel: "Channel") -> None:
        """Serve a request."""

    def failed(self, command: Command, channel: "Channel", error: Exception) -> Command:
        """The reply for a request that raised an error, which is counted."""

    def complain(self, channel: "Channel", error: Exception) -> None:
        """Count malformed data."""

    def refuse_stale(self, channel: "Channel", data: bytes) -> bytes:
        """Refuse the sends and return the other requests."""


class Channel(Outgoing, asyncio.Protocol):
    """One connection of a peer, from accept to close."""

    def __init__(self, port: Port, requests: Requests) -> None:
        super().__init__(port.memory)
        self.attributes: dict[str, Any] = {}
        self.on_close: list[Callable[[Channel], None]] = []
        self.remote_address: tuple[str, int] = ("", 0)
        self.local_address: tuple[str, int] = ("", 0)
        self.remote = ""
        self.born_host = b""  # address and port in the form of a commit log record
        self.dialect = Dialect.ORDINARY  # the meaning of request codes
        self.active_at = 0  # the listener's clock, in its ticks
        self.waits = False  # whether the listener's backlog has data of it
        self._throttled = [False, False, False]  # by reason
        self.stalled = False  # for a reason of the channel itself: it is not served either
        self.kept: dict[str, int] = {}  # bytes of memory kept for this peer, by purpose
        self._reserved = 0  # reserved bytes: replies in preparation, and their requests
        # received data, and whether it is stale
        self._unserved: deque[tuple[bytes, bool]] = deque()
        self._unserved_bytes = 0
        self._postponed: deque[Callable[[], None]] = deque()
        self._port = port
        self._requests = requests
        self._direct = requests.direct
        self._frames = FrameBuffer()
        self._requests_to_peer = PendingRequests()

    # called by asyncio ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports are no instances
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
        self.active_at = self._port.ticks
        self._port.channels[self] = None
        if self._port.closing:  # accepted just before
            transport.abort()
            return
        if self._port.backlog.full:
            self._port.backlog.throttle(self)

    def connection_lost(self, error: Exception | None) -> None:
        # The last requests are still served, for instance an offset commit of a consumer.
        self.closed = True
        self.stalled = False
        self._resume()
        for data in self._port.backlog.rest(self):
            self.read(data)
        self._port.forget(self)
        self._requests_to_peer.fail(ConnectionError(f"{self.remote} closed the connection"))
        for callback in self.on_close:
            callback(self)
        self.on_close.clear()

    def pause_writing(self) -> None:
        self._throttle(_WRITING, True)

    def resume_writing(self) -> None:
        self._throttle(_WRITING, False)

    def throttle(self, on: bool) -> None:
        """Pause or resume reading."""
        self._throttle(_BACKLOG, on)

    def _throttle(self, reason: int, on: bool) -> None:
        self._throttled[reason] = on
        transport = self._transport
        if transport is None or self.closed or self._ended or transport.is_closing():
            return
        self.stalled = self._throttled[_WRITING] or self._throttled[_RESERVED]
        if any(self._throttled):
            transport.pause_reading()
        else:
            transport.resume_reading()
        if not self.stalled and (self._unserved or self._postponed):
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        """Serve the requests that waited while the peer was stalled, until it is stalled again."""
        while self._postponed and not self.stalled:
            self._postponed.popleft()()
        while self._unserved and not self.stalled:
            data, stale = self._unserved.popleft()
            self._unserved_bytes -= len(data) + PIECE_COST
            self._serve(data, stale)

    def _queue(self, data: bytes, stale: bool) -> None:
        self._unserved.append((data, stale))
        self._unserved_bytes += len(data) + PIECE_COST
        self._budget.took(len(data) + PIECE_COST)

    @property
    def memory(self) -> int:
        """Bytes of memory that this peer uses, except those in the listener's backlog."""
        size = self.unsent + self._unserved_bytes + self._reserved
        frames = self._frames
        if frames.size:
            size += frames.size + PIECE_COST * len(frames.pieces)
        return size + sum(self.kept.values()) if self.kept else size

    def data_received(self, data: bytes) -> None:
        if self._ended:  # evicted, and read for a moment: its data does not enter the backlog
            return
        port = self._port
        self.active_at = port.ticks
        if (self.waits or len(data) >= LARGE) and port.backlog.keeps(self, data):
            return
        if self.stalled or self._unserved:
            self._queue(data, False)
        else:
            self._serve(data, False)

    def read(self, data: bytes, stale: bool = False) -> None:
        """Serve received data, unless we have closed the channel; sends in `stale` data are
        refused.
        """
        if self._ended:
            return
        if self.stalled or self._unserved:
            self._queue(data, stale)
        else:
            self._serve(data, stale)

    def _serve(self, data: bytes, stale: bool) -> None:
        if self._ended:
            return
        defer = self._requests.defer
        if defer is not None and not stale and not self._frames.pieces and defer(data, self):
            self._port.polling.served()
            return
        self._reading = True
        try:
            self._read_frames(self._without_sends(data) if stale else data)
        except RemoteProtocolError as error:
            self._requests.complain(self, error)
            self.close()
        finally:
            self._reading = False
            if self._out:
                self.flush()

    def serve_frame(self, frame: bytes) -> None:
        """Serve a deferred whole frame, without offering it to be deferred again.

        The frame is served even if the peer is stalled by now: after data that waits, or part of
        another frame, it would be out of order.
        """
        was_reading, self._reading = self._reading, True
        was_stalled, self.stalled = self.stalled, False
        try:
            self._serve_frames(frame, 0, None)
        except RemoteProtocolError as error:
            self._requests.complain(self, error)
            self.close()
        finally:
            if was_stalled and not self.closed:
                self.stalled = (
                    self._ended or self._throttled[_WRITING] or self._throttled[_RESERVED]
                )
            self._reading = was_reading
            if self._out and not was_reading:
                self.flush()

    def encrypted(self, connection: Transport) -> None:
        """Send and receive through this connection from now on."""
        self._transport = connection

    def refuse(self, why: str) -> None:
        """Close a connection that is not allowed, before any request was read."""
        self._requests.complain(self, RemoteProtocolError(why))
        self.close()

    # used by handlers, in addition to sending
    # ------------------------------------------------------

    def keep(self, what: str, size: int) -> None:
        """Set the bytes that are kept for this peer for a purpose; 0 when they are freed."""
        before = self.kept.pop(what, 0)
        if size:
            self.kept[what] = size
        if size > before:
            self._budget.took(size - before)

    def reserve(self, size: int) -> None:
        """Reserve memory for a reply in preparation; a negative size releases it.

        Above MAX_PENDING_BYTES the peer is stalled.
        """
        self._reserved += size
        if size > 0:
            self._budget.took(size)
        if (self._reserved > MAX_PENDING_BYTES) != self._throttled[_RESERVED]:
            self._throttle(_RESERVED, not self._throttled[_RESERVED])

    def postpone(self, work: Callable[[], None]) -> None:
        """Call `work` once the peer is not stalled any more; never if it disconnects before."""
        self._postponed.append(work)

    def evict(self, reply: BusyReply) -> None:
        """Close, and drop all waiting data. A peer that is in the middle of a request gets `reply`,
        if that is possible.
        """
        if self._ended:
            self.abort()
            return
        opaque = None if self.unsent else opaque_in(b"".join(self._frames.pieces[:2])[:4096])
        self._ended = self.stalled = True
        self._out.clear()
        self._unserved.clear()
        self._unserved_bytes = 0
        self._postponed.clear()
        self._frames = FrameBuffer()
        if self._transport is None or self._transport.is_closing():
            return
        if opaque is None:
            self._transport.abort()
        else:
            self._transport.write(reply.frame(opaque))
            # Its data is read and dropped meanwhile: closing with unread data would make the kernel
            # reset the connection, and the peer would not see the reply.
            self._transport.resume_reading()
            asyncio.get_running_loop().call_later(_LAST_READS, self.close)

    def reply(
        self,
        request: Command,
        code: int = 0,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """Answer a request that was kept; does nothing if no reply is expected."""
        if not request.is_one_way and not self.closed:
            self.send(request.reply(code, fields, body, remark=remark))

    def reply_error(self, request: Command, error: Exception) -> None:
        """Answer a request that was kept with an error."""
        reply = self._requests.failed(request, self, error)
        if not request.is_one_way and not self.closed:
            self.send(reply)

    async def request(self, command: Command, timeout: float) -> Command:
        """Send a request to the peer, a client with handlers of its own, and wait for its reply.

        Raises TimeoutError after ``timeout`` seconds and ConnectionError if the peer disconnects.
        """
        if self.closed:
            raise ConnectionError(f"{self.remote} has closed the connection")
        return await self._requests_to_peer.ask(command, self.send, timeout)

    def notify(self, command: Command) -> None:
        """Send the peer a one-way request."""
        self._requests_to_peer.number(command)
        command.flag |= ONE_WAY
        self.send(command)

    # reading --------------------------------------------------------------------------------

    def _without_sends(self, data: bytes) -> bytes:
        """Refuse the sends and return the other requests."""
        data = self._frames.take(data)
        return self._requests.refuse_stale(self, data) if data else data

    def _read_frames(self, data: bytes) -> None:
        frames = self._frames
        begin = 0
        if frames.pieces:
            missing = frames.missing
            if missing and len(data) - missing >= LARGE_REST:
                first = frames.take(data[:missing])
                if self._serve_frames(first, 0, self._requests.bulk):
                    begin = missing
                else:  # the peer is stalled
                    data = first + data[missing:]
            else:
                size = len(data)
                data = frames.take(data)
                if not data:
                    self._budget.took(size + PIECE_COST)
                    return
        position = self._serve_frames(data, begin, self._requests.bulk)
        if position:
            self._port.polling.served()  # not while serving: deferred requests have arrived already
        left = len(data) - position
        if not left or self._ended:
            return
        if self.stalled:
            self._unserved.appendleft((data[position:], False))
            self._unserved_bytes += left + PIECE_COST
        else:
            frames.keep(data, position)
        self._budget.took(left + PIECE_COST)

    def _serve_frames(self, data: bytes, begin: int, bulk: Bulk | None) -> int:
        """Serve the whole frames from a position on, until the peer is stalled; returns the
        position of the rest. ``bulk`` gets them first.
        """
        position = begin
        direct_handlers = self._direct
        end = len(data)
        while end - position >= 8 and not self.stalled:
            if bulk is not None:
                position = bulk(data, position, self)
                if end - position < 8 or self.stalled:
                    break
            length, word = PREFIX.unpack_from(data, position)
            check_length(length)
            stop = position + 4 + length
            if stop > end:
                break
            start = position + 8
            if word >> 24 == _JSON:
                body = start + (word & HEADER_LENGTH)
                try:
                    header = orjson.loads(data[start:body])
                    direct = direct_handlers.get(header["code"])
                    if direct is not None and body <= stop and is_plain(header):
                        if not header["flag"] & _RESPONSE:
                            direct(header, data[body:stop], self)
                            position = stop
                            continue
                    is_read = body <= stop
                except Exception as error:
                    # Mostly a header that the hot path does not support: decode it in full, so that
                    # the peer gets a precise error.
                    self._refuse(data[position + 4 : stop], error)
                    position = stop
                    continue
                if is_read:
                    self._take(command_from_header(header, data[body:stop], _JSON))
                    position = stop
                    continue
            self._take(decode(data[position + 4 : stop]))
            position = stop
        return position

    def _refuse(self, frame: bytes, error: Exception) -> None:
        command = decode(frame)
        if isinstance(error, NotReady):  # the handler of whole requests is called, now and later
            self._requests.handle(command, self)
            return
        if isinstance(error, KeyError):
            error = RemoteProtocolError(f"the header lacks the field {error}")
        elif isinstance(error, _MALFORMED):
            error = RemoteProtocolError(f"a field of the header is malformed: {error}")
        reply = self._requests.failed(command, self, error)
        if not command.is_one_way and not command.is_response:
            self.send(reply)

    def _take(self, command: Command) -> None:
        if command.flag & RESPONSE:
            self._requests_to_peer.answered(command)
            return
        self._requests.handle(command, self)


def _packed_address(host: str, port: int) -> bytes:
    try:
        return pack_address(host, port)
    except ValueError:  # not an IP peer (a unix socket in a test): the unspecified address
        return pack_address("0.0.0.0", port)
