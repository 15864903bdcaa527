"""Embedded mode: a broker in the snode's process, connected without a socket.

    snode: Session - LocalPeer --- Pipe --- Channel - dispatcher of the broker

Both ends are those of real connections, so the same rules apply: memory limits, paused reading,
failures when a connection ends. Like a socket, a pipe delivers in the next turn of the event loop
the data written in this one.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from mq.client.options import ClientKeywords
from mq.client.transport.peer import Owner, Peer
from mq.client.transport.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError

if TYPE_CHECKING:
    from mq.daemons.broker.app import Broker

_HIGH = 64 * 1024  # bytes in flight above which the writer pauses, as in asyncio


class Pipe:
    """One direction of a connection: the transport of `writer`, whose bytes `reader` receives."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._reader: asyncio.Protocol
        self._writer: asyncio.Protocol
        self._other: Pipe
        self._chunks: list[bytes | memoryview] = []
        self._size = 0
        self._high = _HIGH
        self._due = False
        self._held = False  # the reader has paused reading
        self._full = False
        self._closing = False
        self._lost = False

    def join(self, writer: asyncio.Protocol, reader: asyncio.Protocol, other: "Pipe") -> None:
        self._writer, self._reader, self._other = writer, reader, other

    # the transport's methods ----------------------------------------------------

    def write(self, data: bytes | memoryview) -> None:
        if self._closing or not len(data):
            return
        # The store's views may refer to reused memory; a socket would have copied, too.
        self._chunks.append(bytes(data) if isinstance(data, memoryview) else data)
        self._size += len(data)
        if self._size > self._high and not self._full:
            self._full = True
            self._writer.pause_writing()
        self._deliver_soon()

    def writelines(self, parts: Sequence[bytes | memoryview]) -> None:
        for part in parts:
            self.write(part)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._deliver_soon()

    def abort(self) -> None:
        self._chunks.clear()
        self._size = 0
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return self._size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH if high is None else high

    def pause_reading(self) -> None:
        self._other._held = True

    def resume_reading(self) -> None:
        self._other._held = False
        self._other._deliver_soon()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._address if name in ("peername", "sockname") else default

    # delivery to the other end ----------------------------------------------------------------

    def _deliver_soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._due = False
        if self._held and not self._closing:
            return
        if self._chunks and not self._lost:
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._size = 0
            if self._full:
                self._full = False
                self._writer.resume_writing()
            self._reader.data_received(data)
        if self._closing and not self._chunks:
            for one in (self, self._other):
                one._end()

    def _end(self) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._loop.call_soon(self._writer.connection_lost, None)


class LocalPeer(Peer):
    """A connection to the broker of this process."""

    def __init__(
        self, session: Owner, address: str, loop: asyncio.AbstractEventLoop, broker: "Broker"
    ) -> None:
        self._broker = broker
        super().__init__(session, address, loop)

    async def _dial(self) -> None:
        listener = self._broker.listener
        channel = Channel(listener, listener.dispatcher)
        where = ("127.0.0.1", listener.port)
        ours, theirs = Pipe(where), Pipe(where)
        ours.join(self, channel, theirs)
        theirs.join(channel, self, ours)
        channel.connection_made(cast(asyncio.BaseTransport, theirs))
        self.connection_made(cast(asyncio.Transport, ours))

    def _made(self, transport: asyncio.Transport) -> None:
        """Does nothing: there is no socket to configure."""


class EmbeddedSession(Session):
    """A session that reaches the broker of this process without a socket."""

    def __init__(
        self, broker: "Broker", namesrv: str | Sequence[str], **keywords: Unpack[ClientKeywords]
    ) -> None:
        self._broker = broker
        super().__init__(namesrv, **keywords)

    def _peer(self, address: str) -> Peer:
        if address != self._broker.address or address in self._peers or self._loop is None:
            return super()._peer(address)
        peer = self._peers[address] = LocalPeer(self, address, self._loop, self._broker)
        return peer


def embedded_settings(file: str, name_servers: str | None) -> BrokerSettings:
    """The settings of the broker; it uses the snode's name servers unless its file names some.

    Raises ConfigError.
    """
    settings = BrokerSettings.load(Path(file))
    if settings.broker.enable_controller_mode:
        raise ConfigError(
            "enableControllerMode=true: a broker in a snode's process cannot change its role"
        )
    if not settings.broker.namesrv_addr and name_servers:
        settings.broker = settings.broker.replace(namesrv_addr=name_servers)
    return settings
