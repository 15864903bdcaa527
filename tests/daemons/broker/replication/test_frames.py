"""The replication protocol, in pieces of any size."""

import pytest

from mq.daemons.broker.replication.frames import BadFrame, FrameReader, OffsetReader
from tests.daemons.broker.replication.pair import HEAD, OFFSET


@pytest.mark.parametrize("size", [1, 7, 8, 9, 17, 100])
def test_offsets_are_read_from_pieces(size: int) -> None:
    raw = b"".join(OFFSET.pack(number * 1000) for number in range(20))
    reader = OffsetReader()
    found: list[int] = []
    for start in range(0, len(raw), size):
        found += reader.read(raw[start : start + size])
    assert found[0] == 0 and found[-1] == 19_000
    assert found == sorted(found)


@pytest.mark.parametrize("size", [1, 7, 12, 13, 17, 1000])
def test_frames_are_read_from_pieces(size: int) -> None:
    bodies = [b"a" * 5, b"", b"b" * 300, b"c", b""]
    raw, offset = b"", 4096
    for body in bodies:
        raw += HEAD.pack(offset, len(body)) + body
        offset += len(body)
    reader, got, beats = FrameReader(), b"", []
    for start in range(0, len(raw), size):
        for at, piece in reader.read(raw[start : start + size]):
            if piece:
                assert at == 4096 + len(got)
                got += piece
            else:
                beats.append(at)
    assert got == b"".join(bodies)
    assert beats == [4096 + 5, 4096 + 306]


@pytest.mark.parametrize(("offset", "size"), [(-1, 5), (0, -1), (0, (1 << 30) + 1)])
def test_an_invalid_frame_is_refused(offset: int, size: int) -> None:
    with pytest.raises(BadFrame):
        list(FrameReader().read(HEAD.pack(offset, size)))
