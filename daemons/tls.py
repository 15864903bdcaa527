"""TLS on a listener, together with plain connections on the same port.

The first byte of a connection distinguishes them: a TLS handshake starts with 22, which as the
first byte of a frame's length would be a frame of 350 MB (NettyRemotingServer.HandshakeHandler).
`FirstByte` checks that byte and removes itself; a plain connection has no overhead from then on.

asyncio can turn a connection to TLS only before anything has been read from it, so `TlsConnection`
runs the handshake and the encryption itself, in memory (ssl.MemoryBIO). It sits between the
transport and the channel: a protocol for the one, a transport for the other.
"""

import asyncio
import logging
import ssl
from typing import Any, NamedTuple, Protocol, cast

from mq.daemons.config import ConfigError
from mq.daemons.outgoing import Transport
from mq.daemons.tls_config import TlsConfig, TlsMode

log = logging.getLogger(__name__)

HANDSHAKE = 22  # the first byte of a TLS connection: the content type of its records
WATCH_SECONDS = 1.0
_CHUNK = 256 * 1024


class Encryption(Protocol):
    """The encryption of connections to a port."""

    @property
    def only(self) -> bool:
        """Whether connections must be encrypted."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context for new connections."""


class OnlyTls(NamedTuple):
    """The encryption of a port without plain connections."""

    context: ssl.SSLContext
    only: bool = True


class EncryptedChannel(Protocol):
    """The parts of the channel that a TLS connection uses."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

    def encrypted(self, connection: Transport) -> None:
        """Send and receive through this connection from now on."""

    def refuse(self, why: str) -> None:
        """Count a connection that is not allowed, and close it."""


class ServerTls:
    """The certificate in force. Raises ConfigError if the files are invalid at the start."""

    def __init__(self, config: TlsConfig) -> None:
        self.config = config
        self.only = config.mode is TlsMode.enforcing
        self.context = config.server_context()
        self._fingerprint = self._file_states()
        log.info("TLS: %s", config.mode)

    def reload(self) -> None:
        """Read the files again for new connections; if they are invalid, nothing changes."""
        self._fingerprint = self._file_states()
        if self.config.test_mode:
            return
        try:
            self.context = self.config.server_context()
        except ConfigError as error:
            log.error("keeping the old TLS certificate: %s", error)
            return
        log.info("TLS certificate reloaded")

    async def watch(self) -> None:
        """Read the files again whenever they change."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self._file_states() != self._fingerprint:
                self.reload()

    def _file_states(self) -> tuple[object, ...]:
        marks: list[object] = []
        for path in self.config.files:
            try:
                status = path.stat()
            except OSError:
                marks.append(None)
            else:
                marks.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(marks)


def server_tls(config: TlsConfig) -> ServerTls | None:
    """The TLS of a listener, None for a plain one.

    Raises:
        ConfigError: the files are invalid.
    """
    if config.mode is TlsMode.disabled or not config.has_certificate:
        return None
    return ServerTls(config)


class FirstByte(asyncio.Protocol):
    """A connection from which nothing has been received yet."""

    def __init__(self, channel: EncryptedChannel, tls: Encryption) -> None:
        self._channel = channel
        self._tls = tls
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._channel.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._channel.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        if data[0] == HANDSHAKE:
            connection = TlsConnection(transport, self._channel, self._tls.context)
            self._channel.encrypted(connection)
            transport.set_protocol(connection)
            connection.data_received(data)
        elif self._tls.only:
            self._channel.refuse("a plain connection, and tls.server.mode is enforcing")
        else:
            transport.set_protocol(cast(asyncio.Protocol, self._channel))
            self._channel.data_received(data)


class TlsConnection(asyncio.Protocol):
    """An encrypted connection; it has the methods of a transport that a channel uses."""

    def __init__(
        self, transport: asyncio.Transport, channel: EncryptedChannel, context: ssl.SSLContext
    ) -> None:
        self._transport = transport
        self._channel = channel
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._established = False

    # called by asyncio ------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            if not self._established:
                self._object.do_handshake()
                self._established = True
            received, ended = self._read()
        except ssl.SSLWantReadError:
            self._flush()  # our part of the handshake
            return
        except ssl.SSLError as error:
            self._flush()  # the alert that reports the reason to the peer
            self._channel.refuse(f"TLS: {error.reason or error}")
            return
        self._flush()
        if received:
            self._channel.data_received(received)
        if ended:
            self.close()

    def _read(self) -> tuple[bytes, bool]:
        """The data received in whole records, and whether the peer has closed the connection."""
        chunks = []
        try:
            while chunk := self._object.read(_CHUNK):
                chunks.append(chunk)
        except ssl.SSLWantReadError:
            return b"".join(chunks), False
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(chunks), True

    def connection_lost(self, error: Exception | None) -> None:
        self._channel.connection_lost(error)

    def pause_writing(self) -> None:
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        self._channel.resume_writing()

    # called by the channel --------------------------------------------------------------

    def write(self, data: bytes | memoryview) -> None:
        """Encrypt and send. Data sent before the end of the handshake is dropped."""
        if not self._established or self._transport.is_closing():
            return
        self._object.write(data)
        self._flush()

    def close(self) -> None:
        if self._established and not self._transport.is_closing():
            try:
                self._object.unwrap()
            except ssl.SSLError:
                pass  # the peer's close has not arrived, and is not waited for
            self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._object if name == "ssl_object" else self._transport.get_extra_info(name)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())
