import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol import properties
from mq.protocol.batch import decode_batch, encode_batch
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.message import Message

ONE = bytes.fromhex(
    "00000021"  # size 33
    "00000000"
    "00000000"
    "00000007"  # flag
    "00000002"
    "6869"  # hi
    "0009"
    "57414954"
    "01"
    "74727565"  # WAIT true
)


def test_a_batch_is_written_as_java_writes_it() -> None:
    assert encode_batch([Message("T", b"hi", flag=7)]) == ONE


def test_a_batch_is_read() -> None:
    elements = [
        (e.flag, bytes(e.body), properties.decode(str(e.properties, "utf-8")))
        for e in decode_batch(ONE * 2)
    ]
    assert elements == [(7, b"hi", {"WAIT": "true"})] * 2


@pytest.mark.parametrize("length", range(1, len(ONE)))
def test_a_batch_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match="batch: no whole message at byte 33"):
        list(decode_batch(ONE + ONE[:length]))


@pytest.mark.parametrize(("position", "byte"), [(0, 0xFF), (3, 0x20), (16, 0xFF), (22, 0xFF)])
def test_a_batch_with_wrong_lengths_is_refused(position: int, byte: int) -> None:
    damaged = bytearray(ONE)
    damaged[position] = byte
    with pytest.raises(RemoteProtocolError, match="at byte 0"):
        list(decode_batch(damaged))


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "at least one"),
        ([Message("A", b"x"), Message("B", b"x")], "one topic"),
        ([Message("A", b"x"), Message("A", b"x", wait_store_ok=False)], "wait_store_ok"),
        ([Message("A", b"x", delay_level=1)], "delayed"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
    ],
)
def test_messages_that_cannot_go_together_are_refused(messages: list[Message], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_batch(messages)


@given(st.lists(st.tuples(st.binary(), st.integers(-(2**31), 2**31 - 1)), min_size=1))
def test_what_is_written_is_read_back(contents: list[tuple[bytes, int]]) -> None:
    batch = encode_batch([Message("T", body, flag=flag) for body, flag in contents])
    assert [(bytes(e.body), e.flag) for e in decode_batch(batch)] == contents
