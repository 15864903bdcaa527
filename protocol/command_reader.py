"""Readers of commands: from arbitrary pieces of bytes to whole frames. No I/O.

Broker, name server, client and tests use the same reader. It never holds more than one incomplete
frame; a frame over the limit is refused when its length is read, before any of it is stored.
"""

from collections.abc import Iterator

from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import INT, MAX_FRAME, decode


class FrameBuffer:
    """Splits a stream of bytes into frames."""

    __slots__ = ("_missing", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []  # of an incomplete frame
        self.size = 0  # total of their bytes
        self._missing = 0  # bytes that the first frame still lacks, if known

    @property
    def missing(self) -> int:
        """The number of bytes that the incomplete frame still lacks, 0 if unknown."""
        return self._missing if self.size >= INT.size else 0

    def take(self, data: bytes) -> bytes:
        """Join earlier and new bytes when they hold a whole frame; otherwise return b"".

        Large frames arrive in many pieces: joining them only after the last one keeps the cost
        linear.
        """
        if not self.pieces:
            return data
        self.pieces.append(data)
        self.size += len(data)
        self._missing -= len(data)
        if self._missing > 0:
            return b""
        whole = b"".join(self.pieces)
        self.pieces.clear()
        self.size = 0
        return whole

    def keep(self, data: bytes, position: int) -> None:
        """Keep the bytes from `position` on, an incomplete frame, for the next call.

        Raises RemoteProtocolError for an invalid frame length.
        """
        left = len(data) - position
        if left == 0:
            return
        if left < 4:
            self._missing = 1
        else:
            (length,) = INT.unpack_from(data, position)
            check_length(length)
            self._missing = 4 + length - left
        self.pieces.append(data[position:])
        self.size = left


def check_length(length: int) -> None:
    """Raise RemoteProtocolError for an invalid frame length."""
    if length < 4 or length > MAX_FRAME:
        raise RemoteProtocolError(f"a frame of {length} bytes; 4 to {MAX_FRAME} are accepted")


class CommandReader:
    """Reads commands from bytes that arrive in arbitrary pieces."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = FrameBuffer()

    def receive(self, data: bytes) -> Iterator[Command]:
        """Yield every complete command; keep the rest.

        Raises RemoteProtocolError at bytes that are not a frame; the connection is then unusable,
        because the start of the next frame is unknown.
        """
        data = self._buffer.take(data)
        position = 0
        end = len(data)
        while end - position >= 4:
            (length,) = INT.unpack_from(data, position)
            check_length(length)
            stop = position + 4 + length
            if stop > end:
                break
            yield decode(data[position + 4 : stop])
            position = stop
        self._buffer.keep(data, position)
