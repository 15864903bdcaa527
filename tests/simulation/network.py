"""A network with delays, partitions and resets, between the loops of simulated processes.

A connection delivers bytes in order, each chunk after a delay, as long as the link between the two
machines is open; while it is cut, they wait, as TCP has them wait. Datagrams are lost then.

A machine that lost its power tells nobody: a peer learns of it by a reset when it sends something
to the machine that has booted, or by probes where it has asked the kernel for them (SO_KEEPALIVE
and TCP_USER_TIMEOUT). Until then its end is half open. So it is with a connection that something on
the way has forgotten, but there nothing answers.
"""

import asyncio
import errno
import random
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.disk import error

if TYPE_CHECKING:
    from tests.simulation.world import Machine, Process, World

DELAY = (0.000_05, 0.001)  # seconds, one way
_GIVE_UP = 127.0  # seconds that a connection is tried for
_WINDOW = 256 * 1024  # bytes on their way or not yet read by the receiver
_USER_TIMEOUT = (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18))
_PROBE_SECONDS = 1.0  # between two probes of a connection
_HIGH, _LOW = 64 * 1024, 16 * 1024

Address = tuple[str, int]


class FakeSocket:
    """What is asked of a socket beside its bytes."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM

    def __init__(self, name: Address, end: "End | None" = None) -> None:
        self._name = name
        self._end = end

    def getsockname(self) -> Address:
        return self._name

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """Of all options one counts: for how long nothing may be acknowledged."""
        if self._end is not None and (level, option) == _USER_TIMEOUT and value:
            self._end.probe(value / 1000)


class Server:
    """A port on which a process listens."""

    def __init__(
        self, network: "Network", process: "Process", factory: Any, address: Address
    ) -> None:
        self.process = process
        self.factory = factory
        self.address = address
        self.sockets = (FakeSocket(address),)
        self._network = network
        self.serves = False

    async def start_serving(self) -> None:
        self.serves = True

    def is_serving(self) -> bool:
        return self.serves

    def close(self) -> None:
        self.serves = False
        if self._network.servers.get(self.address) is self:
            del self._network.servers[self.address]

    async def wait_closed(self) -> None:
        pass


class End(asyncio.Transport):
    """One end of a connection: a transport of asyncio."""

    def __init__(self, network: "Network", process: "Process", own: Address, peer: Address) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.own, self.peer_address = own, peer
        self.peer: End
        self.protocol: Any = None
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._under_way = 0  # bytes sent that the peer has not read
        self._received: deque[bytes | None] = deque()  # by the kernel; None: the end
        self._reads = True
        self._high, self._low = _HIGH, _LOW
        self._writing_paused = False
        self._closing = False
        self.is_open = True  # until connection_lost is due
        self.is_forgotten = False  # on the way: nothing arrives, and nobody says so
        self.is_refused = False  # as soon as it sends something: a machine has booted
        self._probes_failed = 0
        self._last = 0.0  # when the last chunk arrives: none overtakes it

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

    # what is under way ------------------------------------------------------------------------

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
        """The kernel of this end has got bytes, or the end of them."""
        if self.is_open and self.process.is_alive:
            self._received.append(data)
            if len(self._received) == 1:
                self.process.loop.call_soon(self._read)
        elif self.process.machine.has_power:  # nothing here knows of this connection
            self.network.deliver(self, lambda: self.peer.broken(error(errno.ECONNRESET)))
        else:
            self.peer.is_refused = True  # it is sent again, until the machine answers

    def probe(self, seconds: float) -> None:
        """Have the kernel ask each second whether the peer's is there; so long it may not be."""
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
        """In the loop of this end."""
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
        data = b"".join(taken)
        taken.clear()
        self.network.deliver(self, lambda: self.peer.acknowledged(len(data)))
        if not self._closing:
            self.protocol.data_received(data)

    def acknowledged(self, size: int) -> None:
        self._under_way -= size
        if self._unsent and self.process.is_alive:
            self._send()

    def broken(self, why: OSError) -> None:
        """The peer has reset the connection, or the kernel has given it up."""
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


class Datagrams(asyncio.DatagramTransport):
    """A socket of datagrams."""

    def __init__(
        self, network: "Network", process: "Process", own: Address, peer: Address | None
    ) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.own, self.peer = own, peer
        self.protocol: Any = None
        self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": self.own, "peername": self.peer or ""}.get(name, default)

    def is_closing(self) -> bool:
        return self._closing

    def sendto(self, data: Any, addr: Any = None) -> None:
        to = addr or self.peer
        if not self._closing and to is not None:
            self.network.send_datagram(self, bytes(data), (to[0], to[1]))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.network.sockets.pop(self.own, None)
            if self.process.is_alive:
                self.process.loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


@dataclass(frozen=True)
class DatagramFaults:
    """What happens to datagrams from or to a machine: probabilities, and seconds at most."""

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0


_NONE = DatagramFaults()


class Network:
    """Between all machines of a world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.servers: dict[Address, Server] = {}
        self.sockets: dict[Address, Datagrams] = {}
        self.ends: dict[End, None] = {}
        #: Of machines whose network is not as it should be, by address.
        self.delays: dict[str, tuple[float, float]] = {}
        self.datagrams_of: dict[str, DatagramFaults] = {}
        self.forgotten: dict[End, None] = {}
        #: When a connection between two addresses was last broken.
        self.disturbed: dict[tuple[str, str], float] = {}
        self._cuts: dict[tuple[str, str], int] = {}  # how many cut it, from one address to another
        self._chances: dict[tuple[str, str], random.Random] = {}
        self._waiting: list[tuple[End, Callable[[], None]]] = []
        self._ports: dict[str, int] = {}

    # faults -----------------------------------------------------------------------------------

    def cut(self, links: list[tuple[str, str]]) -> Callable[[], None]:
        """Let nothing through, each from one address to another; returns what mends it.

        A link that two have cut is whole when both have mended it.
        """
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1

        def mend() -> None:
            for link in links:
                self._cuts[link] -= 1
                if not self._cuts[link]:
                    del self._cuts[link]
            waiting, self._waiting = self._waiting, []
            for end, work in waiting:
                self.deliver(end, work)

        return mend

    def is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self._cuts

    def is_through(self, end: End) -> bool:
        """Whether the other end's machine can be asked, and answer."""
        one, other = end.own[0], end.peer_address[0]
        return not (
            end.is_forgotten
            or self.is_cut(one, other)
            or self.is_cut(other, one)
            or not end.peer.process.machine.has_power
        )

    def of_machine(self, address: str) -> list[End]:
        """The ends of its connections that are open."""
        return [end for end in self.ends if end.own[0] == address]

    def reset(self, end: End) -> None:
        """Break a connection at both ends, as a firewall does that knows it no more."""
        self.disturbed[end.own[0], end.peer_address[0]] = self.world.now
        self.disturbed[end.peer_address[0], end.own[0]] = self.world.now
        end.broken(error(errno.ECONNRESET))
        end.peer.broken(error(errno.ECONNRESET))

    def forget(self, end: End) -> None:
        """Let all that is sent on a connection vanish, both ways, and tell nobody."""
        end.is_forgotten = end.peer.is_forgotten = True
        self.forgotten[end] = self.forgotten[end.peer] = None

    def booted(self, machine: "Machine") -> None:
        """Who has sent it something meanwhile is told now; others when they do."""
        for end in [end for end in self.ends if end.peer_address[0] == machine.address]:
            if end.is_refused:
                end.broken(error(errno.ECONNRESET))

    def end_all_of(self, process: "Process", *, tells_peers: bool) -> None:
        """The process is no more."""
        for address in [a for a, server in self.servers.items() if server.process is process]:
            del self.servers[address]
        for address in [a for a, sock in self.sockets.items() if sock.process is process]:
            del self.sockets[address]
        for end in [end for end in self.ends if end.process is process]:
            end.is_open = False
            del self.ends[end]
            self.forgotten.pop(end, None)
            if tells_peers:
                self.deliver(end, lambda end=end: end.peer.broken(error(errno.ECONNRESET)))  # type: ignore[misc]

    # what loops ask ---------------------------------------------------------------------------

    def _port(self, address: str) -> int:
        self._ports[address] = self._ports.get(address, 40000) + 1
        return self._ports[address]

    def listen(
        self, process: "Process", factory: Any, host: Any, port: Any, **options: Any
    ) -> Server:
        address = (process.machine.address, port or self._port(process.machine.address))
        if address in self.servers:
            raise error(errno.EADDRINUSE)
        server = self.servers[address] = Server(self, process, factory, address)
        server.serves = bool(options.get("start_serving", True))
        return server

    async def connect(
        self, process: "Process", factory: Any, host: str, port: int
    ) -> tuple[End, Any]:
        loop, world = process.loop, self.world
        own = (process.machine.address, self._port(process.machine.address))
        answer: asyncio.Future[End] = loop.create_future()
        give_up = world.now + _GIVE_UP

        def knock() -> None:
            """At the machine that is called."""
            if not process.is_alive or answer.done():
                return
            if self.is_cut(own[0], host) or self.is_cut(host, own[0]) or not self._has_power(host):
                # So long the kernel tries; one that is asked again by the program tries anew.
                if world.now + 1.0 < give_up:  # it is tried again
                    world.at(world.now + 1.0, knock)
                else:
                    loop.call_soon(fail, error(errno.ETIMEDOUT))
                return
            server = self.servers.get((host, port))
            if server is None or not server.process.is_alive:
                world.at(
                    world.now + self._some_delay(host, own[0]),
                    lambda: loop.call_soon(fail, error(errno.ECONNREFUSED)),
                )
                return
            near = End(self, process, own, (host, port))
            far = End(self, server.process, (host, port), own)
            near.peer, far.peer = far, near
            self.ends[near] = self.ends[far] = None
            self._accept(server, far)
            back = world.now + self._some_delay(host, own[0])
            world.at(back, lambda: loop.call_soon(connected, near))

        def fail(why: OSError) -> None:
            if not answer.done():
                answer.set_exception(why)

        def connected(near: End) -> None:
            if answer.done():
                near.protocol = asyncio.Protocol()
                near.abort()
            else:
                answer.set_result(near)

        world.at(world.now + self._some_delay(own[0], host), knock)
        near = await answer
        protocol = near.protocol = factory()
        protocol.connection_made(near)
        return near, protocol

    def _accept(self, server: Server, far: End) -> None:
        def made() -> None:
            if not far.is_open:
                return
            if not server.serves:  # bound, but closed again, or not accepting yet
                far.protocol = asyncio.Protocol()
                far.abort()
                return
            far.protocol = server.factory()
            far.protocol.connection_made(far)

        far.protocol = asyncio.Protocol()
        server.process.loop.call_soon(made)

    def _has_power(self, address: str) -> bool:
        return any(m.address == address and m.has_power for m in self.world.machines)

    def _chance(self, one: str, other: str) -> random.Random:
        found = self._chances.get((one, other))
        if found is None:
            found = self._chances[one, other] = self.world.stream(f"from {one} to {other}")
        return found

    def _some_delay(self, one: str, other: str) -> float:
        delay = self._chance(one, other).uniform(*DELAY)
        for address in (one, other):
            slow = self.delays.get(address)
            if slow is not None:
                delay += self._chance(one, other).uniform(*slow)
        return delay

    def deliver(self, end: End, work: Callable[[], None]) -> None:
        """Do something at the other end of a connection, behind what was sent before."""
        one, other = end.own[0], end.peer_address[0]
        if end.is_forgotten:
            return
        if (one, other) in self._cuts:
            self._waiting.append((end, work))
            return
        end._last = max(end._last, self.world.now + self._some_delay(one, other))

        def arrive() -> None:
            if end.is_forgotten:
                return
            if self.is_cut(end.own[0], end.peer_address[0]):
                self._waiting.append((end, work))
            else:
                work()

        self.world.at(end._last, arrive)

    def datagrams(
        self, process: "Process", factory: Any, local: Address | None, remote: Address | None
    ) -> tuple[Datagrams, Any]:
        address = process.machine.address
        own = (address, local[1] if local and local[1] else self._port(address))
        if own in self.sockets:
            raise error(errno.EADDRINUSE)
        transport = self.sockets[own] = Datagrams(self, process, own, remote)
        transport.protocol = factory()
        transport.protocol.connection_made(transport)
        return transport, transport.protocol

    def send_datagram(self, source: Datagrams, data: bytes, to: Address) -> None:
        one, other = source.own[0], to[0]
        if self.is_cut(one, other):
            return
        chance = self._chance(one, other)
        faults = self.datagrams_of.get(one) or self.datagrams_of.get(other) or _NONE
        if chance.random() < faults.lost:
            return
        copies = 2 if chance.random() < faults.doubled else 1

        def arrive() -> None:
            target = self.sockets.get(to)
            if target is not None and target.process.is_alive:
                target.process.loop.call_soon(target.protocol.datagram_received, data, source.own)

        for _ in range(copies):
            late = chance.uniform(0.0, faults.late)
            self.world.at(self.world.now + self._some_delay(one, other) + late, arrive)
