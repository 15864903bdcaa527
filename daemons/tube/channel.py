"""One connection of a client to a TubeMQ server: requests are served, answers are sent.

The memory for one client is bounded. While it does not read its answers, or has too many pending
requests, the server does not read from it, and the requests that were already read wait undecoded.
"""

import asyncio
import logging
import socket
from collections import deque
from typing import Protocol, cast

from mq.daemons.memory import PIECE_COST, MemoryBudget
from mq.daemons.outgoing import Transport
from mq.daemons.overload.busy_reply import BusyReply
from mq.daemons.tube.calls import Call
from mq.protocol.tube.errors import FrameError
from mq.protocol.tube.frame import FrameDecoder

log = logging.getLogger(__name__)

# Limits of pending requests of one connection, and their bytes; beyond them reading pauses.
MAX_CALLS = 4096
MAX_OWED = 32 * 1024 * 1024

# Unsent bytes for a slow client before reading pauses: two answers of the usual size.
WRITE_LIMIT = 1024 * 1024

# Answers to requests that arrived together are joined up to this size.
_JOINED = 256 * 1024


class Port(Protocol):
    """The part of its port that a connection needs."""

    max_chunks: int
    memory: MemoryBudget
    ticks: int
    closing: bool
    channels: "dict[RpcChannel, None]"

    def now(self) -> float: ...
    def count(self, what: str) -> None: ...
    def serve(self, channel: "RpcChannel", serial: int, payload: bytes, came: float) -> None: ...
    def forget(self, channel: "RpcChannel") -> None: ...


class RpcChannel(asyncio.Protocol):
    """One connection of a client, from accept to close."""

    def __init__(self, listener: Port) -> None:
        self.host = ""
        self.remote = ""
        self.tls = False
        self.closed = False
        self.active_at = listener.ticks
        self._listener = listener
        self._transport: Transport | None = None
        self._decoder = FrameDecoder(listener.max_chunks)
        self._unserved: deque[tuple[int, bytes, float]] = deque()  # with the time of arrival
        self._unserved_bytes = 0
        self._calls = 0
        self._owed = 0
        self._writing_paused = False
        self._reading_paused = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._serving = False
        self._flush_is_due = False

    # asyncio calls these ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_LIMIT)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.host = peer[0]
        self.remote = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        self._listener.channels[self] = None
        if self._listener.closing:  # accepted just before
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._unserved.clear()
        self._unserved_bytes = 0
        self._listener.forget(self)

    def encrypted(self, connection: Transport) -> None:
        """Use this encrypted connection from now on."""
        self._transport = connection
        self.tls = True

    def refuse(self, why: str) -> None:
        """Close an invalid connection before reading from it."""
        self._listener.count("broken_frames")
        log.warning("closing %s: %s", self.remote, why, extra={"failure": "frame"})
        self.close()

    def data_received(self, data: bytes) -> None:
        self.active_at = self._listener.ticks
        now = self._listener.now()
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            self.refuse(str(error))
            return
        for serial, payload in frames:
            self._unserved.append((serial, payload, now))
            self._unserved_bytes += len(payload) + PIECE_COST
        if frames:
            self._serve()
        if self._unserved or self._decoder.held:
            self._listener.memory.took(len(data))

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._throttle()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._throttle()

    # ------------------------------------------------------------------------------------------

    @property
    def stalled(self) -> bool:
        """Whether the client must read answers before more of its requests are processed."""
        return self._writing_paused or self._calls >= MAX_CALLS or self._owed >= MAX_OWED

    def _throttle(self) -> None:
        transport = self._transport
        if transport is None or self.closed or transport.is_closing():
            return
        if self.stalled != self._reading_paused:
            self._reading_paused = not self._reading_paused
            if self._reading_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()
        if self._unserved and not self.stalled and not self._serving:
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Process received requests until the client is stalled."""
        if self._serving:
            return
        self._serving = True
        try:
            while self._unserved and not self.closed:
                if self.stalled:
                    self._throttle()
                    break
                serial, payload, came = self._unserved.popleft()
                self._unserved_bytes -= len(payload) + PIECE_COST
                self._listener.serve(self, serial, payload, came)
        finally:
            self._serving = False
        self._flush()

    def begin(self, size: int) -> None:
        """Count a pending request of this size."""
        self._calls += 1
        self._owed += size

    def answered(self, call: Call, frame: bytes) -> None:
        """Send the answer to a pending request."""
        self._calls -= 1
        self._owed -= len(call.request.body)
        if self._listener.now() >= call.deadline:
            # The original drops it silently, too: its client has timed out
            # (NettyRequestContext.write).
            self._listener.count("expired_requests")
        else:
            self.send(frame)
        if self._reading_paused:
            self._throttle()

    def send(self, frame: bytes) -> None:
        """Send a frame, together with the others of this turn of the loop."""
        if self.closed:
            return
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > _JOINED:
            self._flush()
        elif not self._serving and not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        out = self._out
        if not out or self.closed or self._transport is None:
            return
        self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        self._listener.memory.took(self._out_bytes)
        out.clear()
        self._out_bytes = 0

    @property
    def memory(self) -> int:
        """Return the bytes of memory for this client."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._decoder.held + self._unserved_bytes + self._owed + self._out_bytes + unsent

    def evict(self, reply: BusyReply) -> None:
        """Close at once; TubeMQ has no answer for the reason."""
        self.abort()

    def close(self) -> None:
        """Close after sending the pending answers. Idempotent."""
        self._unserved.clear()
        self._unserved_bytes = 0
        if self._transport is not None and not self._transport.is_closing():
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once, even with unsent answers."""
        if self._transport is not None:
            self._transport.abort()
