"""A network with delays, partitions and resets, between the loops of simulated processes.

A connection delivers bytes in order, each chunk after a delay, while the link between the two
machines is open; while it is cut, they wait, as with TCP. Datagrams are lost then.
"""

import asyncio
import errno
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.connections import Address, End, FakeSocket
from tests.simulation.datagrams import NO_FAULTS, DatagramFaults, Datagrams
from tests.simulation.disk import error

if TYPE_CHECKING:
    from tests.simulation.world import Machine, Process, World

DELAY = (0.000_05, 0.001)  # seconds, one way
_LEAST_DELAY, _DELAY_SPAN = DELAY[0], DELAY[1] - DELAY[0]
_GIVE_UP = 127.0  # seconds for which a connection is tried


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


class Network:
    """The network between all machines of a world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.servers: dict[Address, Server] = {}
        self.sockets: dict[Address, Datagrams] = {}
        self.ends: dict[End, None] = {}
        # Machines with network faults, by address.
        self.delays: dict[str, tuple[float, float]] = {}
        self.datagrams_of: dict[str, DatagramFaults] = {}
        self.forgotten: dict[End, None] = {}
        # When a connection between two addresses was last broken.
        self.disturbed: dict[tuple[str, str], float] = {}
        # When the second of two addresses last accepted a connection of the first, and a datagram.
        self.taken: dict[tuple[str, str], float] = {}
        self.heard: dict[tuple[str, str], float] = {}
        self._cuts: dict[tuple[str, str], int] = {}  # number of cuts, by link
        self._chances: dict[tuple[str, str], random.Random] = {}
        self._waiting: list[tuple[End, Callable[[], None]]] = []
        self._ports: dict[str, int] = {}

    # faults -----------------------------------------------------------------------------------

    def cut(self, links: list[tuple[str, str]]) -> Callable[[], None]:
        """Cut links, each from one address to another; returns a function that repairs them.

        A link that was cut twice is open after both repairs.
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
        """Whether the other end's machine can be reached and can answer."""
        one, other = end.own[0], end.peer_address[0]
        return not (
            end.is_forgotten
            or self.is_cut(one, other)
            or self.is_cut(other, one)
            or not end.peer.process.machine.has_power
        )

    def of_machine(self, address: str) -> list[End]:
        """The open ends of a machine's connections."""
        return [end for end in self.ends if end.own[0] == address]

    def reset(self, end: End) -> None:
        """Break a connection at both ends, as a firewall does that has lost its state."""
        self.disturbed[end.own[0], end.peer_address[0]] = self.world.now
        self.disturbed[end.peer_address[0], end.own[0]] = self.world.now
        end.broken(error(errno.ECONNRESET))
        end.peer.broken(error(errno.ECONNRESET))

    def forget(self, end: End) -> None:
        """Drop everything that is sent on a connection, both ways, without notice."""
        end.is_forgotten = end.peer.is_forgotten = True
        self.forgotten[end] = self.forgotten[end.peer] = None

    def booted(self, machine: "Machine") -> None:
        """Notify peers that have sent something meanwhile; others when they send."""
        for end in [end for end in self.ends if end.peer_address[0] == machine.address]:
            if end.is_refused:
                end.broken(error(errno.ECONNRESET))

    def end_all_of(self, process: "Process", *, tells_peers: bool) -> None:
        """A process has ended."""
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

    # requests of loops ------------------------------------------------------------------------

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
            """Runs at the called machine."""
            if not process.is_alive or answer.done():
                return
            if self.is_cut(own[0], host) or self.is_cut(host, own[0]) or not self._has_power(host):
                # The kernel tries for this long; the program's next attempt starts again.
                if world.now + 1.0 < give_up:  # try again
                    world.at(world.now + 1.0, knock)
                else:
                    loop.call_soon(fail, error(errno.ETIMEDOUT))
                return
            server = self.servers.get((host, port))
            if server is None or not server.process.is_alive:
                world.at(
                    world.now + self._some_delay((host, own[0])),
                    lambda: loop.call_soon(fail, error(errno.ECONNREFUSED)),
                )
                return
            near = End(self, process, own, (host, port))
            far = End(self, server.process, (host, port), own)
            near.peer, far.peer = far, near
            self.ends[near] = self.ends[far] = None
            self._accept(server, far)
            back = world.now + self._some_delay((host, own[0]))
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

        world.at(world.now + self._some_delay((own[0], host)), knock)
        near = await answer
        protocol = near.protocol = factory()
        protocol.connection_made(near)
        if not near.is_open:  # reset since the peer's kernel has accepted it
            loop.call_soon(protocol.connection_lost, error(errno.ECONNRESET))
        return near, protocol

    def _accept(self, server: Server, far: End) -> None:
        def made() -> None:
            if not far.is_open:
                return
            if not server.serves:  # bound, but closed again or not accepting yet
                far.protocol = asyncio.Protocol()
                far.abort()
                return
            self.taken[far.peer_address[0], far.own[0]] = self.world.now
            far.protocol = server.factory()
            far.protocol.connection_made(far)

        far.protocol = asyncio.Protocol()
        server.process.loop.call_soon(made)

    def _has_power(self, address: str) -> bool:
        return any(m.address == address and m.has_power for m in self.world.machines)

    def _chance(self, link: tuple[str, str]) -> random.Random:
        found = self._chances.get(link)
        if found is None:
            one, other = link
            found = self._chances[link] = self.world.stream(f"from {one} to {other}")
        return found

    def _some_delay(self, link: tuple[str, str]) -> float:
        """Seconds from one address to another."""
        chance = self._chances.get(link) or self._chance(link)
        delay = _LEAST_DELAY + _DELAY_SPAN * chance.random()
        if self.delays:
            for address in link:
                slow = self.delays.get(address)
                if slow is not None:
                    delay += chance.uniform(*slow)
        return delay

    def deliver(self, end: End, work: Callable[[], None]) -> None:
        """Do something at the other end of a connection, after everything that was sent before."""
        if end.is_forgotten:
            return
        link = end.link
        if link in self._cuts:
            self._waiting.append((end, work))
            return
        world = self.world
        when = world.now + self._some_delay(link)
        end.last = when = when if when > end.last else end.last

        def arrive() -> None:
            if end.is_forgotten:
                return
            if link in self._cuts:
                self._waiting.append((end, work))
            else:
                work()

        world.at(when, arrive)

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
        chance = self._chance((one, other))
        faults = self.datagrams_of.get(one) or self.datagrams_of.get(other) or NO_FAULTS
        if chance.random() < faults.lost:
            return
        copies = 2 if chance.random() < faults.doubled else 1

        def arrive() -> None:
            target = self.sockets.get(to)
            if target is not None and target.process.is_alive:
                self.heard[one, other] = self.world.now
                target.process.loop.call_soon(target.protocol.datagram_received, data, source.own)

        for _ in range(copies):
            late = chance.uniform(0.0, faults.late)
            self.world.at(self.world.now + self._some_delay((one, other)) + late, arrive)
