"""The ends of connections: asyncio transports that hand bytes to the network.

A machine that loses power notifies no peer. A peer notices by a reset when it sends something to
the rebooted machine, or by probes of the kernel (SO_KEEPALIVE and TCP_USER_TIMEOUT). Until then its
end is half open. The same holds for a connection that the network has forgotten, but there nothing
answers.
"""

import asyncio
import errno
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.simulation.disk import error

if TYPE_CHECKING:
    from tests.simulation.network import Network
    from tests.simulation.world import Process

_WINDOW = 256 * 1024  # bytes in flight or not yet read by the receiver
_ACKNOWLEDGES = _WINDOW // 4  # bytes read before an acknowledgement is sent
_USER_TIMEOUT = (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18))
_PROBE_SECONDS = 1.0  # between two probes of a connection
_HIGH, _LOW = 64 * 1024, 16 * 1024

Address = tuple[str, int]


class FakeSocket:
    """The methods of a socket besides sending and receiving."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM

    def __init__(self, name: Address, end: "End | None" = None) -> None:
        self._name = name
        self._end = end

    def getsockname(self) -> Address:
        return self._name

    def fileno(self) -> int:
        """Neither a descriptor of this process nor that of a closed socket."""
        return 1 << 30

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """Only TCP_USER_TIMEOUT has an effect: how long nothing may be acknowledged."""
        if self._end is not None and (level, option) == _USER_TIMEOUT and value:
            self._end.probe(value / 1000)


class End(asyncio.Transport):
    """One end of a connection: an asyncio transport."""

    def __init__(self, network: "Network", process: "Process", own: Address, peer: Address) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.own, self.peer_address = own, peer
        self.peer: End
        self.protocol: Any = asyncio.Protocol()  # until the owner sets one
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._under_way = 0  # bytes sent and not known to be read by the peer
        self._read_bytes = 0  # bytes read that the peer does not know of
        self._received: deque[bytes | None] = deque()  # received by the kernel; None: the end
        self._reads = True
        self._high, self._low = _HIGH, _LOW
        self._writing_paused = False
        self._closing = False
        self.is_open = True  # until connection_lost is due
        self.is_forgotten = False  # by the network: nothing arrives, without notice
        self.is_refused = False  # reset at the next send: the machine has rebooted
        self._probes_failed = 0
        # Addresses of both ends; and the arrival of the last chunk: none overtakes it.
        self.link = own[0], peer[0]
        self.last = 0.0

    # transport --------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return FakeSocket(self.own, self)
        return {"sockname": self.own, "peername": self.peer_address}.get(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        if not self._reads:
            self._reads = True
            self.process.loop.call_soon(self._read)

    def is_reading(self) -> bool:
        return self._reads

    def write(self, data: Any) -> None:
        if self._closing or not self.is_open:
            return
        raw = bytes(data)
        if raw:
            self._unsent.append(raw)
            self._unsent_bytes += len(raw)
            self._send()
            if self._unsent_bytes > self._high and not self._writing_paused:
                self._writing_paused = True
                self.protocol.pause_writing()

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._unsent:
                self._finish()

    def abort(self) -> None:
        self._closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        if self.is_open:
            self.network.deliver(self, lambda: self.peer.broken(error(errno.ECONNRESET)))
            self.lost(None)

    # bytes in flight --------------------------------------------------------------------------

    def _send(self) -> None:
        while self._unsent and self._under_way < _WINDOW:
            data = self._unsent.popleft()
            self._unsent_bytes -= len(data)
            self._under_way += len(data)
            self.network.deliver(self, lambda data=data: self.peer.arrived(data))  # type: ignore[misc]
        if self._writing_paused and self._unsent_bytes <= self._low:
            self._writing_paused = False
            self.process.loop.call_soon(self.protocol.resume_writing)
        if self._closing and not self._unsent:
            self._finish()

    def _finish(self) -> None:
        if self.is_open:
            self.network.deliver(self, lambda: self.peer.arrived(None))
            self.lost(None)

    def arrived(self, data: bytes | None) -> None:
        """The kernel of this end has received bytes, or the end of the stream."""
        if self.is_open and self.process.is_alive:
            self._received.append(data)
            if len(self._received) == 1:
                self.process.loop.call_soon(self._read)
        elif self.process.machine.has_power:  # no process knows this connection
            self.network.deliver(self, lambda: self.peer.broken(error(errno.ECONNRESET)))
        else:
            self.peer.is_refused = True  # it is sent again until the machine answers

    def probe(self, seconds: float) -> None:
        """Let the kernel probe the peer each second; it may be silent for some seconds."""
        loop = self.process.loop
        most = max(1, int(seconds / _PROBE_SECONDS))

        def look() -> None:
            if not self.is_open or not self.process.is_alive:
                return
            far = self.peer.process.machine
            if self.network.is_through(self):
                self._probes_failed = 0
                if far.has_power and not (self.peer.is_open and self.peer.process.is_alive):
                    self.broken(error(errno.ECONNRESET))
                    return
            else:
                self._probes_failed += 1
                if self._probes_failed > most:
                    self.broken(error(errno.ETIMEDOUT))
                    return
            self.network.world.at(loop.time() + _PROBE_SECONDS, look)

        self.network.world.at(loop.time() + _PROBE_SECONDS, look)

    def _read(self) -> None:
        """Called in the loop of this end."""
        taken: list[bytes] = []
        while self._reads and self._received and self.is_open:
            data = self._received.popleft()
            if data is None:
                self._give(taken)
                self.lost(None)
                return
            taken.append(data)
        self._give(taken)

    def _give(self, taken: list[bytes]) -> None:
        if not taken:
            return
        data = taken[0] if len(taken) == 1 else b"".join(taken)
        taken.clear()
        self._read_bytes += len(data)
        if self._read_bytes >= _ACKNOWLEDGES:
            size, self._read_bytes = self._read_bytes, 0
            self.network.deliver(self, lambda: self.peer.acknowledged(size))
        if not self._closing:
            self.protocol.data_received(data)

    def acknowledged(self, size: int) -> None:
        self._under_way -= size
        if self._unsent and self.process.is_alive:
            self._send()

    def broken(self, why: OSError) -> None:
        """The peer has reset the connection, or the kernel has given up."""
        if self.is_open and self.process.is_alive:
            self._unsent.clear()
            self._unsent_bytes = 0
            self.lost(why)

    def lost(self, why: OSError | None) -> None:
        if self.is_open:
            self.is_open = False
            self._closing = True
            self.network.ends.pop(self, None)
            self.network.forgotten.pop(self, None)
            self.process.loop.call_soon(self.protocol.connection_lost, why)
