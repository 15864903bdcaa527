"""The protocol of controller mode, in pieces of any size."""

import struct

import pytest

from mq.daemons.broker.replication.controlled_frames import (
    MasterHello,
    MasterReader,
    Piece,
    SlaveHello,
    SlaveReader,
)
from mq.daemons.broker.replication.epochs import Epoch
from mq.daemons.broker.replication.frames import BadFrame


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


SIZES = [1, 7, 9, 17, 1000]


@pytest.mark.parametrize("size", SIZES)
def test_a_slaves_input_is_parsed_however_it_is_split(size: int) -> None:
    data = struct.pack(">ihhq", 1, 1, 0, 5) + b"".join(
        struct.pack(">iq", 2, offset) for offset in (0, 70)
    )
    reader = SlaveReader()
    words = [word for piece in pieces(data, size) for word in reader.read(piece)]
    assert words == [SlaveHello(5, from_last_file=True, is_learner=False), 0, 70]
    assert SlaveHello(5, from_last_file=True, is_learner=False).encode() == data[:16]


@pytest.mark.parametrize("size", SIZES)
def test_a_masters_output_is_parsed_however_it_is_split(size: int) -> None:
    hello = struct.pack(">iiqi", 1, 24, 90, 3) + struct.pack(">iqiq", 1, 0, 3, 60)
    frame = struct.pack(">iiqiqq", 2, 5, 60, 3, 60, 60) + b"bytes"
    beat = struct.pack(">iiqiqq", 2, 0, 65, 3, 60, 62)
    reader = MasterReader()
    words = [word for piece in pieces(hello + frame + beat, size) for word in reader.read(piece)]
    assert words[0] == MasterHello(90, [Epoch(1, 0), Epoch(3, 60)])
    assert MasterHello(90, [Epoch(1, 0), Epoch(3, 60)]).encode() == hello
    data = [word for word in words[1:] if isinstance(word, Piece)]
    assert b"".join(bytes(piece.data) for piece in data) == b"bytes"
    at = 60
    for piece in data:
        assert piece.offset == at
        at += len(piece.data)
    assert {piece.epoch for piece in data} == {(3, 60)}
    assert data[-1].confirmed == 62


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">iiqiqq", 2, -1, 60, 3, 60, 60),
        struct.pack(">iiqiqq", 2, (1 << 31) - 1, 60, 3, 60, 60),
        struct.pack(">iiqiqq", 2, 5, 60, 3, 61, 60),
        struct.pack(">iiqi", 1, 13, 90, 3),
        struct.pack(">iiqi", 1, 12 * 1001, 90, 3),
        struct.pack(">iiqi", 1, 24, 90, 3) + struct.pack(">iqiq", 3, 0, 1, 60),
    ],
)
def test_invalid_output_of_a_master_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        list(MasterReader().read(data))


def test_invalid_input_of_a_slave_is_refused() -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", struct.pack(">q", 0) * 2):
        with pytest.raises(BadFrame):
            list(SlaveReader().read(data))
