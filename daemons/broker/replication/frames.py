"""The wire of replication, as 4.9 and plain 5.x have it: a byte stream in each direction.

    slave to master    i64  up to which physical offset it has the log; the first one is where it
                            wants to begin
    master to slave    i64  physical offset, i32 size, then so many bytes of the log's file

A frame of the master may begin and end amid a record; it never reaches into the next file. One of
size 0 says that the connection lives. (Java: HAService, HAConnection; 5.x: DefaultHAConnection.)
"""

import struct
from collections.abc import Iterator

OFFSET = struct.Struct(">q")
FRAME_HEAD = struct.Struct(
    ">q"  # physical offset of the first byte
    "i"  # how many bytes follow
)

# Java sends haTransferBatchSize, 32 KiB, and its slaves read into 4 MiB. Nobody sends more than a
# file of the log, which is a gigabyte.
MOST_FRAME = 1 << 30


class BadFrame(Exception):
    """What has come is no frame of replication. The text says why."""


class OffsetReader:
    """Reads what a slave says from bytes that come in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self, data: bytes) -> tuple[int, ...]:
        """The first and the last offset of those that are whole now; none if none is."""
        if self._rest:
            data = self._rest + data
        whole = len(data) - len(data) % OFFSET.size
        self._rest = bytes(data[whole:])
        if not whole:
            return ()
        (first,) = OFFSET.unpack_from(data)
        (last,) = OFFSET.unpack_from(data, whole - OFFSET.size)
        return first, last


class FrameReader:
    """Reads what a master sends from bytes that come in pieces."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._offset = 0  # of the byte that comes next
        self._left = 0  # of the frame

    def read(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Yield physical offsets, and the bytes there as far as they have come; none for a frame
        without any. Raises BadFrame."""
        view = memoryview(data)
        position = 0
        while position < len(view):
            if self._left:
                piece = view[position : position + self._left]
                yield self._offset, piece
                self._left -= len(piece)
                self._offset += len(piece)
                position += len(piece)
                continue
            missing = FRAME_HEAD.size - len(self._head)
            self._head += view[position : position + missing]
            position += missing
            if len(self._head) == FRAME_HEAD.size:
                self._begin()
                if not self._left:
                    yield self._offset, view[:0]

    def _begin(self) -> None:
        self._offset, self._left = FRAME_HEAD.unpack(self._head)
        self._head.clear()
        if self._offset < 0 or not 0 <= self._left <= MOST_FRAME:
            raise BadFrame(
                f"this is no port of replication: a frame of {self._left} bytes at {self._offset}"
            )
