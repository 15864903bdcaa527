from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.command import Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import MAX_FRAME, encode

STREAM = b"".join(encode(Command(code, {"n": str(code)}, bytes(code))) for code in range(20))


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_commands_come_out_whole_however_the_bytes_arrive(cuts: list[int]) -> None:
    connection = CommandReader()
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:stop] for start, stop in pairwise(edges)]
    commands = [command for piece in pieces for command in connection.receive(piece)]
    assert [command.code for command in commands] == list(range(20))
    assert [len(command.body) for command in commands] == list(range(20))


def test_a_byte_at_a_time_is_enough() -> None:
    connection = CommandReader()
    commands = [c for byte in STREAM for c in connection.receive(bytes([byte]))]
    assert len(commands) == 20


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, MAX_FRAME + 1, 2**31 - 1])
def test_a_length_that_no_frame_has_is_refused_at_once(length: int) -> None:
    prefix = length.to_bytes(4, "big", signed=True)
    with pytest.raises(RemoteProtocolError, match=f"a frame of {length} bytes"):
        list(CommandReader().receive(prefix))


def test_a_bad_length_behind_a_good_frame_is_refused_after_it() -> None:
    received = CommandReader().receive(encode(Command(5)) + b"\xff\xff\xff\xff")
    assert next(received).code == 5
    with pytest.raises(RemoteProtocolError):
        next(received)
