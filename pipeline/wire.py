"""A connection to a broker for pulls: requests in advance, replies in large buffers.

Replies stay where they were received: a frame refers to its place in a buffer that holds many of
them, so that the records of many replies are decoded at once.
"""

import socket
import ssl
from typing import NamedTuple

from mq.client.errors import BadAnswer, ConnectError, RequestTimeout, reason_of
from mq.client.transport.caller import parse_address
from mq.protocol.codes import RequestCode
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import HEADER_LENGTH, MAX_FRAME, PREFIX, decode_header

# Maximum size of one record batch: thousands of rows of a kilobyte.
BUFFER_BYTES = 4 * 1024 * 1024
# For a large frame no more is received than its own bytes and the start of the next one: a partial
# frame that does not fit into the rest of a buffer has to be copied to another.
_LARGE = 128 * 1024
_AHEAD = 4096
_MOST_SPARE = 2  # buffers kept for reuse


class Frame(NamedTuple):
    """A reply: its header, and the buffer with its body."""

    header: dict[str, object]
    buffer: bytearray
    body_start: int
    body_end: int


class Wire:
    """One connection. Close it after any error: its requests in flight are lost."""

    def __init__(self, address: str, timeout: float, tls: ssl.SSLContext | None) -> None:
        """Connect. `timeout` in seconds is for that and for each reply. Raises ConnectError."""
        self.address = address
        self._timeout = timeout
        endpoint = parse_address(address)
        try:
            plain = socket.create_connection(endpoint, timeout)
        except OSError as error:
            raise ConnectError(address, reason_of(error)) from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain
        if tls is not None:
            try:
                self._socket = tls.wrap_socket(plain, server_hostname=endpoint.host)
            except OSError as error:
                plain.close()
                raise ConnectError(address, reason_of(error)) from None
        self._spare: list[bytearray] = []
        self._new_buffer(b"", 0)

    def send(self, data: bytes) -> None:
        """Send whole requests. Raises ConnectError."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectError(self.address, reason_of(error)) from None

    def receive(self) -> Frame:
        """Wait for the next frame.

        Raises ConnectError, RequestTimeout if nothing arrives in time, BadAnswer for bytes that are
        not a frame.
        """
        self._need(PREFIX.size)
        length, word = PREFIX.unpack_from(self._buffer, self._read)
        header_length = word & HEADER_LENGTH
        if not 4 + header_length <= length <= MAX_FRAME:
            raise BadAnswer(self.address, f"a frame of {length} bytes, its header {header_length}")
        self._need(4 + length)
        start = self._read + PREFIX.size
        body_start = start + header_length
        self._read += 4 + length
        try:
            header = decode_header(bytes(self._buffer[start:body_start]), word >> 24)
        except RemoteProtocolError as error:
            raise BadAnswer(self.address, str(error)) from None
        return Frame(header, self._buffer, body_start, self._read)

    def recycle(self, buffer: bytearray) -> None:
        """Reuse this buffer, whose contents are not needed any more.

        A new one would have to be zeroed, and mapped page by page.
        """
        if (
            buffer is not self._buffer
            and len(buffer) == BUFFER_BYTES
            and len(self._spare) < _MOST_SPARE
            and not any(buffer is other for other in self._spare)
        ):
            self._spare.append(buffer)

    def close(self) -> None:
        self._socket.close()

    def _need(self, count: int) -> None:
        """Wait until this many bytes of the next frame are in one buffer."""
        if self._read + count > len(self._buffer):
            self._new_buffer(self._buffer[self._read : self._filled], count)
        end = len(self._buffer) if count < _LARGE else self._read + count + _AHEAD
        while self._filled - self._read < count:
            try:
                received = self._socket.recv_into(self._view[self._filled : end])
            except TimeoutError:
                raise RequestTimeout(
                    self.address, self._timeout, RequestCode.PULL_MESSAGE
                ) from None
            except OSError as error:
                raise ConnectError(self.address, reason_of(error)) from None
            if not received:
                raise ConnectError(self.address, "the peer closed the connection")
            self._filled += received

    def _new_buffer(self, begun: bytes | bytearray, least: int) -> None:
        """Continue in a new buffer with the received part of a frame; users of the old one may keep
        it.
        """
        fits = self._spare and least <= BUFFER_BYTES
        self._buffer = self._spare.pop() if fits else bytearray(max(BUFFER_BYTES, least))
        self._buffer[: len(begun)] = begun
        self._view = memoryview(self._buffer)
        self._read, self._filled = 0, len(begun)
