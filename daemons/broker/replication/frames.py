"""The replication protocol of 4.9 and plain 5.x: a byte stream in each direction.

    slave to master    i64  physical offset up to which it has the log; the first one is where it
                            wants to start
    master to slave    i64  physical offset, i32 size, then that many bytes of the log's file

A frame of the master may start and end inside a record; it never crosses the end of a file. A frame
of size 0 is a heartbeat. (Java: HAService, HAConnection; 5.x: DefaultHAConnection.)
"""

import struct
from collections.abc import Iterator

OFFSET = struct.Struct(">q")
FRAME_HEAD = struct.Struct(
    ">q"  # physical offset of the first byte
    "i"  # number of bytes that follow
)

# Java sends haTransferBatchSize, 32 KiB, and its slaves read into 4 MiB. No master sends more than
# a file of the log, which is 1 GiB.
MOST_FRAME = 1 << 30


class BadFrame(Exception):
    """The received bytes are not a replication frame. The text says why."""


class OffsetReader:
    """Parses the offsets of a slave, which arrive in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self, data: bytes) -> tuple[int, ...]:
        """The first and the last of the offsets that are complete now; empty without one."""
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
    """Parses a master's output, which arrives in pieces."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._offset = 0  # of the next byte
        self._left = 0  # bytes left of the frame

    def read(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Yield physical offsets with the bytes that have arrived so far; empty for a heartbeat.
        Raises BadFrame.
        """
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
                f"this is not a replication port: a frame of {self._left} bytes at {self._offset}"
            )
