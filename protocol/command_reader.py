"""Readers of commands: bytes in, in whatever pieces, whole frames out. No I/O.

The same machine serves broker, name server, client and tests. It never holds more than one frame
that has not arrived whole; a frame over the limit is refused when its length is read, before any
of it is kept.
"""

from collections.abc import Iterator

from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import INT, MAX_FRAME, decode


class FrameBuffer:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_missing", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []  # of a frame that has not come whole
        self.size = 0  # their bytes
        self._missing = 0  # bytes the first frame still lacks, when that is known

    @property
    def missing(self) -> int:
        """The bytes that the frame in pieces still lacks, 0 where that is not known."""
        return self._missing if self.size >= INT.size else 0

    def take(self, data: bytes) -> bytes:
        """Join what came before with what came now, once it holds a whole frame; else b"".

        Large frames arrive in many pieces: joining only when the last one is here keeps the cost
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
        """Keep what follows position for the next time: a frame that has not arrived whole.

        Raises RemoteProtocolError for a length that no frame can have.
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
    """Raise RemoteProtocolError for a length that no frame can have."""
    if length < 4 or length > MAX_FRAME:
        raise RemoteProtocolError(f"a frame of {length} bytes; 4 to {MAX_FRAME} are accepted")


class CommandReader:
    """Reads commands from bytes in whatever pieces they arrive."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = FrameBuffer()

    def receive(self, data: bytes) -> Iterator[Command]:
        """Yield every command that is whole now; keep the rest.

        Raises RemoteProtocolError at bytes that are not a frame; the connection is then of no use,
        because nothing tells where the next frame begins.
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
