import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.tube.errors import FrameError
from mq.protocol.tube.frame import CHUNK, MAX_CHUNKS, FrameDecoder, encode_frame
from tests.protocol.tube.examples import FRAME, PAYLOAD


def chunked(serial: int, *chunks: bytes) -> bytes:
    """A frame with chunks of any size."""
    head = b"".join(number.to_bytes(4, "big") for number in (0xFF7FF4FE, serial, len(chunks)))
    return head + b"".join(len(chunk).to_bytes(4, "big") + chunk for chunk in chunks)


def test_a_short_payload_is_one_chunk() -> None:
    assert encode_frame(7, PAYLOAD) == FRAME


def test_a_frame_is_read() -> None:
    assert FrameDecoder().feed(FRAME) == [(7, PAYLOAD)]


@pytest.mark.parametrize(
    ("length", "chunks"),
    [
        (0, [0]),
        (CHUNK, [CHUNK]),
        (CHUNK + 1, [CHUNK, 1]),
        (2 * CHUNK, [CHUNK] * 2),
        (20000, [CHUNK, CHUNK, 3616]),
    ],
)
def test_a_payload_is_cut_at_8192_bytes(length: int, chunks: list[int]) -> None:
    payload = bytes(index % 251 for index in range(length))
    pieces, start = [], 0
    for size in chunks:
        pieces.append(payload[start : start + size])
        start += size
    assert encode_frame(3, payload) == chunked(3, *pieces)


def test_a_serial_is_of_32_bits() -> None:
    assert FrameDecoder().feed(encode_frame(2**32 + 5, b"x")) == [(5, b"x")]
    assert FrameDecoder().feed(encode_frame(-1, b"x")) == [(2**32 - 1, b"x")]


def test_a_payload_over_the_limit_is_not_written() -> None:
    largest = bytes(MAX_CHUNKS * CHUNK)
    ((_, read),) = FrameDecoder().feed(encode_frame(1, largest))
    assert read == largest
    with pytest.raises(ValueError, match="over the limit"):
        encode_frame(1, largest + b"x")


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.lists(st.binary(max_size=40), min_size=1))),
    st.lists(st.integers(1, 60)),
)
def test_frames_are_read_in_whatever_pieces_they_come(
    frames: list[tuple[int, list[bytes]]], cuts: list[int]
) -> None:
    data = b"".join(chunked(serial, *chunks) for serial, chunks in frames)
    decoder = FrameDecoder()
    read = []
    for cut in [*cuts, len(data)]:
        piece, data = data[:cut], data[cut:]
        read += decoder.feed(piece)
    assert read == [(serial, b"".join(chunks)) for serial, chunks in frames]
    assert decoder.held == 0


@given(st.lists(st.binary(max_size=20000), max_size=4), st.integers(1, 5000))
def test_what_is_written_is_read(payloads: list[bytes], step: int) -> None:
    data = b"".join(encode_frame(serial, payload) for serial, payload in enumerate(payloads))
    decoder = FrameDecoder()
    read = [
        frame for at in range(0, len(data), step) for frame in decoder.feed(data[at : at + step])
    ]
    assert read == list(enumerate(payloads))


def test_a_chunk_of_any_size_is_taken() -> None:
    assert FrameDecoder().feed(chunked(9, b"", b"a" * 10000, b"bc")) == [(9, b"a" * 10000 + b"bc")]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0" + FRAME, "begins with 0x00ff7ff4"),
        (FRAME + b"GET / HTTP/1.1\r\n", "begins with 0x47455420"),
        (FRAME[:8] + (0).to_bytes(4, "big"), "of 0 chunks"),
        (FRAME[:8] + (17).to_bytes(4, "big"), "of 17 chunks"),
        (FRAME[:8] + b"\xff" * 4, "of 4294967295 chunks"),
        (FRAME[:12] + b"\xff" * 4, "a chunk of -1 bytes"),
        (FRAME[:12] + (16 * CHUNK + 1).to_bytes(4, "big"), "a chunk of 131073 bytes"),
        (chunked(1, bytes(16 * CHUNK), b"x"), "a chunk of 1 bytes behind 131072"),
    ],
)
def test_what_is_no_frame_is_refused_and_so_is_all_behind_it(data: bytes, why: str) -> None:
    for step in (1, len(data)):
        decoder = FrameDecoder(max_chunks=16)
        with pytest.raises(FrameError, match=why):
            for at in range(0, len(data), step):
                decoder.feed(data[at : at + step])
        with pytest.raises(FrameError, match=why):
            decoder.feed(FRAME)
        assert decoder.held == 0


def test_what_is_held_is_not_read_again() -> None:
    data = encode_frame(1, bytes(MAX_CHUNKS * CHUNK))
    looked_at = 0

    class Counted(FrameDecoder):
        def _read_chunks(self, view: memoryview, start: int) -> bool:
            nonlocal looked_at
            before = len(self._parts)
            whole = super()._read_chunks(view, start)
            looked_at += len(self._parts) - before
            return whole

    decoder = Counted()
    for at in range(0, len(data), 1000):
        decoder.feed(data[at : at + 1000])
    assert looked_at == MAX_CHUNKS
