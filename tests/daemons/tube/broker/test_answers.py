"""The answer to a get, built natively and in Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.daemons.tube.broker.answers import BadRecords, answer, answer_in_python
from mq.daemons.tube.broker.store.layout import HEAD, TOKEN
from mq.protocol.native import native
from mq.protocol.tube.frame import FrameDecoder
from mq.protocol.tube.messages import GetMessageResponseB2C, parse
from mq.protocol.tube.payload import checksum
from mq.protocol.tube.rpc import decode_response

LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INT = st.integers(-(1 << 31), (1 << 31) - 1)


def record(payload: bytes, message_id: int = 1, flag: int = 0, **changes: int) -> bytes:
    length = changes.get("length", 48 + len(payload))
    token = changes.get("token", TOKEN)
    crc = changes.get("crc", checksum(payload))
    return HEAD.pack(length, token, crc, 0, 0, 0, 0, -1, message_id, flag) + payload


def read(frame: bytes) -> GetMessageResponseB2C:
    ((_, payload),) = FrameDecoder().feed(frame)
    return parse(GetMessageResponseB2C, decode_response(payload, 17))


def test_an_answer_has_the_messages_of_all_runs() -> None:
    runs = [record(b"a", 1) + record(b"b", -2, 2), record(b"c" * 20_000, 1 << 40)]
    frame, count = answer(7, runs, 28, 5, True, 112)
    found = read(frame)
    assert count == 3
    assert [m.payLoadData for m in found.messages] == [b"a", b"b", b"c" * 20_000]
    assert [m.messageId for m in found.messages] == [1, -2, 1 << 40]
    assert [m.flag for m in found.messages] == [0, 2, 0]
    assert (found.currOffset, found.currDataDlt, found.maxOffset) == (28, 5, 112)
    assert (found.success, found.errCode, found.requireSlow) == (True, 200, True)


@given(
    messages=st.lists(st.tuples(st.binary(min_size=1, max_size=9000), LONG, INT, INT), max_size=5),
    serial=st.integers(0, (1 << 32) - 1),
    numbers=st.tuples(LONG, LONG, st.booleans(), LONG),
)
@pytest.mark.skipif(native is None, reason="it is not built")
def test_both_make_the_same_frame(
    messages: list[tuple[bytes, int, int, int]],
    serial: int,
    numbers: tuple[int, int, bool, int],
) -> None:
    runs = [record(p, i, flag & ~1, crc=crc) for p, i, flag, crc in messages]
    assert answer(serial, runs, *numbers) == answer_in_python(serial, runs, *numbers)


@pytest.mark.parametrize("make", [answer, answer_in_python])
@pytest.mark.parametrize(
    ("wanted", "found"),
    [(None, 3), ((0, None), 2), ((1, None), 1), ((0, {7}), 1), ((0, set()), 0), ((9, None), 0)],
)
def test_of_a_span_those_that_are_wanted_are_in_the_answer(
    make: Callable[..., tuple[bytes, int]], wanted: object, found: int
) -> None:
    span = b"".join(
        HEAD.pack(49, TOKEN, checksum(b"a"), of, 0, 0, 0, code, 1, 0) + b"a"
        for of, code in ((0, 7), (1, 7), (0, -1))
    )
    frame, count = make(1, [span], 0, 0, False, 0, wanted)
    assert (count, len(read(frame).messages)) == (found, found)


@pytest.mark.parametrize("make", [answer, answer_in_python])
@pytest.mark.parametrize(
    "run",
    [
        record(b"a", token=1),
        record(b"", length=48),
        record(b"a", length=47),
        record(b"a", length=-1),
        record(b"a", length=60),
        record(b"a")[:-1] + b"",
        record(b"ab", flag=1),
        record(b"\0\0\0\5abc", flag=1),
        record(b"a") + b"tail",
    ],
)
def test_what_is_no_record_is_said(make: Callable[..., object], run: bytes) -> None:
    with pytest.raises(BadRecords):
        make(1, [run], 0, 0, False, 0)


def test_attributes_that_are_there_are_no_damage() -> None:
    frame, _ = answer(1, [record(b"\0\0\0\3a=1body", flag=1)], 0, 0, False, 0)
    assert read(frame).messages[0].flag == 1
