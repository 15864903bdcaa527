"""Doors in front of daemons, which can swallow traffic as a cut network does.

A door has the address that others know. It forwards bytes of TCP connections and datagrams until it
is shut: then nothing gets through, without any notice. When it opens again, `After` decides what
happens to the existing connections.
"""

import asyncio
import contextlib
import socket
import struct
from enum import Enum

_CHUNK = 1 << 16
_BACKLOG = 128
# So that an end is a reset at once, without waiting for unread data.
_RESET = struct.pack("ii", 1, 0)


class Cut(Enum):
    """What a door swallows."""

    ALL = "both ways; new connections are accepted and never served"
    REQUESTS = "what clients send"
    REPLIES = "what the daemon sends"
    CONNECTS = "both ways; SYNs are not answered"


class After(Enum):
    """What happens to connections when a door opens again."""

    GOES_ON = "goes on"  # TCP retransmits lost data
    ENDS = "ends"  # a middlebox forgot them: the first packet is answered by a reset
    STAYS = "leads nowhere for ever"  # a middlebox swallows and acknowledges their data


class _Passage:
    """A connection through a door."""

    def __init__(self, client: socket.socket) -> None:
        self.sockets = [client]
        self.leads_nowhere = False

    async def through(self, gate: asyncio.Event) -> None:
        await gate.wait()
        if self.leads_nowhere:
            await asyncio.Event().wait()

    def reset(self) -> None:
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, door: "Door") -> None:
        self._door = door

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._door.pass_datagram(data)


class Door:
    """`host:port` in front of the same port, or another, of 127.0.0.1."""

    def __init__(self, host: str, port: int, backend: int, *, datagrams: bool = False) -> None:
        self.host = host
        self.port = port
        self.address = f"{host}:{port}"
        self._backend = ("127.0.0.1", backend)
        self._has_datagrams = datagrams
        self._listening: socket.socket
        self._accepting: asyncio.Task[None]
        self._requests = asyncio.Event()
        self._replies = asyncio.Event()
        self._passages: dict[asyncio.Task[None], _Passage] = {}
        self._fillers: list[socket.socket] = []
        self._transports: list[asyncio.DatagramTransport] = []

    async def open(self) -> None:
        self._requests.set()
        self._replies.set()
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.setblocking(False)
        self._listening.bind((self.host, self.port))
        self._listening.listen(_BACKLOG)
        self._accepting = asyncio.create_task(self._accept())
        if self._has_datagrams:
            loop = asyncio.get_running_loop()
            inner, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=self._backend
            )
            self._transports.append(inner)
            outer, _ = await loop.create_datagram_endpoint(
                lambda: _Datagrams(self), local_addr=(self.host, self.port)
            )
            self._transports.append(outer)

    async def close(self) -> None:
        self._accepting.cancel()
        self._listening.close()
        for transport in self._transports:
            transport.close()
        for filler in self._fillers:
            filler.close()
        tasks = list(self._passages)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # a cut ----------------------------------------------------------------------------------

    async def shut(self, cut: Cut) -> None:
        """Swallow traffic from now on."""
        if cut is not Cut.REPLIES:
            self._requests.clear()
        if cut is not Cut.REQUESTS:
            self._replies.clear()
        if cut is Cut.CONNECTS:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
            # A full backlog makes the kernel drop SYNs.
            self._listening.listen(0)
            for _ in range(2):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex((self.host, self.port))
                self._fillers.append(filler)

    async def reopen(self, after: After) -> None:
        """Forward everything again."""
        former = dict(self._passages)
        if after is After.STAYS:
            for passage in former.values():
                passage.leads_nowhere = True
        elif after is After.ENDS:
            for task, passage in former.items():
                passage.reset()
                task.cancel()
            if former:
                await asyncio.wait(former)
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        self._requests.set()
        self._replies.set()
        if self._accepting.done():
            self._listening.listen(_BACKLOG)
            self._accepting = asyncio.create_task(self._accept())

    # forwarding -----------------------------------------------------------------------------------

    def pass_datagram(self, data: bytes) -> None:
        if self._requests.is_set():
            self._transports[0].sendto(data)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(self._listening)
            passage = _Passage(client)
            task = asyncio.create_task(self._serve(client, passage))
            self._passages[task] = passage
            task.add_done_callback(self._passages.pop)

    async def _serve(self, client: socket.socket, passage: _Passage) -> None:
        loop = asyncio.get_running_loop()
        with client, socket.socket() as server:
            for sock in (client, server):
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            passage.sockets.append(server)
            await passage.through(self._requests)
            try:
                await loop.sock_connect(server, self._backend)
            except OSError:  # the daemon is dead: the client notices
                passage.reset()
                return
            there = asyncio.ensure_future(_pump(client, server, passage, self._requests))
            back = asyncio.ensure_future(_pump(server, client, passage, self._replies))
            try:
                # The end of one direction is the end of both, if it gets through.
                await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in (there, back):
                    pump.cancel()
                await asyncio.wait((there, back))


async def _pump(
    source: socket.socket, sink: socket.socket, passage: _Passage, gate: asyncio.Event
) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, _CHUNK):
            await passage.through(gate)
            await loop.sock_sendall(sink, data)
    await passage.through(gate)
