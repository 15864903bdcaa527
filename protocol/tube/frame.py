"""Frames of TubeMQ: a payload in chunks, with a serial number that its response repeats.

    token u32 | serial u32 | chunks u32 | chunks x (length i32 | bytes)

All numbers are big-endian. The payload is the concatenation of the chunks. Senders cut it at 8192
bytes; receivers accept chunks of any size (docs/protocol.md, the part on TubeMQ).
"""

import struct

from mq.protocol.tube.errors import FrameError

TOKEN = 0xFF7FF4FE
CHUNK = 8192

# The original accepts (20 MiB + 8 MiB) / 8192 chunks (RpcConstants.MAX_FRAME_MAX_LIST_SIZE): its
# largest message and the rest of the response. Its C++ client accepts 1024.
MAX_CHUNKS = 28 * 1024 * 1024 // CHUNK

_HEAD = struct.Struct(
    ">I"  # token
    "I"  # serial
    "I"  # chunks
)
_ONE_CHUNK = struct.Struct(">IIII")  # the same, and the length of the only chunk
_LENGTH = struct.Struct(">i")
_FULL_LENGTH = _LENGTH.pack(CHUNK)


def encode_frame(serial: int, payload: bytes) -> bytes:
    """Return the frame of a payload. Only the lowest 32 bits of the serial are sent.

    Raises ValueError if no peer would accept it: over 28 MiB.
    """
    length = len(payload)
    if length <= CHUNK:
        return b"%b%b" % (_ONE_CHUNK.pack(TOKEN, serial & 0xFFFFFFFF, 1, length), payload)
    chunks = -(-length // CHUNK)
    if chunks > MAX_CHUNKS:
        raise ValueError(f"a payload of {length} bytes is over the limit of {MAX_CHUNKS * CHUNK}")
    view = memoryview(payload)
    pieces: list[bytes | memoryview] = [_HEAD.pack(TOKEN, serial & 0xFFFFFFFF, chunks)]
    last = length - length % CHUNK
    for start in range(0, last, CHUNK):
        pieces.append(_FULL_LENGTH)
        pieces.append(view[start : start + CHUNK])
    if last < length:
        pieces.append(_LENGTH.pack(length - last))
        pieces.append(view[last:])
    return b"".join(pieces)


class FrameDecoder:
    """Extracts frames from the bytes of a connection, in arbitrary pieces.

    Each byte is read and copied a bounded number of times: parsed parts of a frame are not read
    again when more arrives. It holds at most one frame, and the bytes that arrived with its end.
    """

    def __init__(self, max_chunks: int = MAX_CHUNKS) -> None:
        self._max_chunks = max_chunks
        self._max_payload = max_chunks * CHUNK
        self._held = bytearray()  # begins with an incomplete frame
        # State of that frame, once its head is there: the positions of the parsed chunks, and the
        # number of bytes needed before parsing can continue.
        self._parts: list[tuple[int, int]] = []
        self._size = 0
        self._position = 0
        self._needed = _HEAD.size
        self._broken: str | None = None

    @property
    def held(self) -> int:
        """The number of bytes that wait for the rest of their frame."""
        return len(self._held)

    def feed(self, data: bytes | bytearray | memoryview) -> list[tuple[int, bytes]]:
        """Return the frames that these bytes complete: serial and payload of each.

        Raises FrameError for anything but a frame, and at every later call.
        """
        if self._broken is not None:
            raise FrameError(self._broken)
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return []
            source: bytes | bytearray | memoryview = self._held
        else:
            source = data
        frames: list[tuple[int, bytes]] = []
        try:
            with memoryview(source) as view:
                start = self._frames(view, frames)
        except FrameError as error:
            self._broken = str(error)
            self._held = bytearray()
            raise
        if source is self._held:
            del self._held[:start]
        elif start < len(data):
            self._held += data[start:]
        return frames

    def _frames(self, view: memoryview, frames: list[tuple[int, bytes]]) -> int:
        """Read whole frames; returns the start of the first incomplete one."""
        start = 0
        end = len(view)
        while end - start >= 16 and not self._parts:  # the usual frame: complete, in one chunk
            token, serial, chunks, length = _ONE_CHUNK.unpack_from(view, start)
            stop = start + 16 + length
            if token != TOKEN or chunks != 1 or length > self._max_payload or stop > end:
                break
            frames.append((serial, bytes(view[start + 16 : stop])))
            start = stop
        while self._read_chunks(view, start):
            _, serial, _ = _HEAD.unpack_from(view, start)
            parts = [view[start + first : start + stop] for first, stop in self._parts]
            frames.append((serial, b"".join(parts)))
            start += self._position
            self._parts.clear()
            self._size = self._position = 0
        return start

    def _read_chunks(self, view: memoryview, start: int) -> bool:
        """Continue to read the chunks of the frame at `start`; returns whether it is complete."""
        there = len(view) - start
        if there < _HEAD.size:
            self._needed = _HEAD.size
            return False
        token, _, chunks = _HEAD.unpack_from(view, start)
        if token != TOKEN:
            raise FrameError(f"a frame begins with {token:#010x} instead of {TOKEN:#010x}")
        if not 0 < chunks <= self._max_chunks:
            raise FrameError(f"a frame of {chunks} chunks: from 1 to {self._max_chunks} are taken")
        position = self._position or _HEAD.size
        while len(self._parts) < chunks:
            self._needed = position + 4
            if there < self._needed:
                break
            (length,) = _LENGTH.unpack_from(view, start + position)
            if length < 0 or self._size + length > self._max_payload:
                raise FrameError(f"a chunk of {length} bytes behind {self._size} in its frame")
            self._needed += length
            if there < self._needed:
                break
            self._parts.append((position + 4, self._needed))
            self._size += length
            position = self._needed
        self._position = position
        whole: bool = len(self._parts) == chunks
        return whole
