"""Sends that are relayed natively: requests and replies keep their meaning."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.command import Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import MAX_FRAME
from mq.protocol.native import native

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")

ADDED = b'"o":"10.0.0.1:5","p":"10.0.0.2:11911",'
HOSTS = {"o": "10.0.0.1:5", "p": "10.0.0.2:11911"}
CHANNEL = 7
TEXTS = st.text('aé\x00"\\/😀{}:,', max_size=5)
FIELDS = st.dictionaries(
    st.sampled_from([*"abcdefghijklm", "é", 'quote"', "opaque", "new"]), TEXTS, max_size=6
)


def framed(
    header: dict[str, object], body: bytes, separators: tuple[str, str], ascii: bool = False
) -> bytes:
    text = json.dumps(header, separators=separators, ensure_ascii=ascii).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


@st.composite
def headers(draw: st.DrawFn, code: st.SearchStrategy[int], flag: int) -> dict[str, object]:
    """A header with its names in any order."""
    fields = {**draw(FIELDS), "b": "T"}
    if draw(st.booleans()):
        fields["n"] = draw(st.sampled_from(["broker-a", "broker-a", "broker-b", ""]))
    if draw(st.integers(0, 5)) == 0:
        fields[draw(st.sampled_from(["o", "p", "Signature", "AccessKey", "bname"]))] = "x"
    header: dict[str, object] = {
        "code": draw(code),
        "extFields": fields,
        "flag": flag | draw(st.sampled_from([0, 0, 2])),
        "language": "JAVA",
        "opaque": draw(st.integers(-(2**31), 2**31 - 1)),
        "version": 409,
    }
    if draw(st.booleans()):
        header["remark"] = draw(TEXTS)
    names = draw(st.permutations(sorted(header)))
    return {name: header[name] for name in names}


@st.composite
def sends(draw: st.DrawFn) -> bytes:
    header = draw(headers(st.sampled_from([310, 310, 310, 320, 30]), 0))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:")]))
    return framed(header, draw(st.binary(max_size=20)), separators, draw(st.booleans()))


def read(data: bytes) -> list[Command]:
    return list(CommandReader().receive(data))


def shown(command: Command) -> tuple[object, ...]:
    return (command.code, dict(command.fields), command.flag, command.remark,
            command.language, command.version, bytes(command.body))  # fmt: skip


@given(st.lists(sends(), min_size=1, max_size=6), st.binary(max_size=9))
def test_relayed_sends_have_another_opaque_and_the_clients_address(
    frames: list[bytes], rest: bytes
) -> None:
    relay = native.Relay(MAX_FRAME)
    data = b"".join(frames) + rest
    taken = relay.take(data, 0, CHANNEL, ADDED, "broker-a", 1.0, "broker-a")
    if taken is None:
        assert len(relay) == 0
        return
    behind, out, enode, count, pending_bytes = taken
    given_frames, sent = read(data[:behind]), read(out)
    assert enode == "broker-a"
    assert behind == sum(map(len, frames[:count]))
    assert [one.opaque for one in sent] == list(range(-1, -count - 1, -1))
    for before, after in zip(given_frames, sent, strict=True):
        assert before.code == 310
        assert not before.is_one_way
        assert before.fields.get("n") in (None, "", "broker-a")
        assert not {"o", "p", "Signature", "AccessKey", "bname"} & before.fields.keys()
        assert dict(after.fields) == {**before.fields, **HOSTS}
        before.fields = after.fields
        assert shown(before) == shown(after)
    assert pending_bytes == sum(2048 + len(one.body) for one in given_frames)
    assert len(relay) == count


@given(st.lists(headers(st.integers(0, 30), 1), min_size=1, max_size=6), st.data())
def test_replies_return_to_their_clients_with_their_opaques(
    answers: list[dict[str, object]], data: st.DataObject
) -> None:
    relay = native.Relay(MAX_FRAME)
    ask = {"code": 310, "extFields": {"b": "T", "n": "e"}, "flag": 0, "opaque": 0}
    for number in range(len(answers)):
        frame = framed({**ask, "opaque": 100 + number}, b"12345", (",", ":"))
        assert relay.take(frame, 0, number % 2, ADDED, "e", float(number)) is not None
    order = data.draw(st.permutations(range(len(answers))))
    frames = []
    for number, answer in zip(order, answers, strict=True):
        fields = answer["extFields"]
        assert isinstance(fields, dict)
        fields.pop('quote"', None)  # Python must read a name with an escape
        frames.append(framed({**answer, "opaque": -1 - number}, b"body", (",", ":")))
    joined = b"".join(frames)
    behind, found, sizes = relay.answers(joined, 0)
    assert behind == len(joined)
    assert len(relay) == 0
    came = {channel: read(out) for channel, out, *_ in found}
    for channel, commands in came.items():
        wanted = [number for number in order if number % 2 == channel]
        assert [one.opaque for one in commands] == [100 + number for number in wanted]
        for number, one in zip(wanted, commands, strict=True):
            (before,) = read(frames[order.index(number)])
            assert shown(before) == shown(one)
    stored = sum(answer["code"] == 0 for answer in answers)
    assert sizes == ([("T", 5 * stored, stored)] if stored else [])


@given(st.lists(sends(), min_size=1, max_size=3).map(b"".join), st.data())
def test_frames_are_relayed_only_if_python_reads_them_the_same(
    data: bytes, draw: st.DataObject
) -> None:
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        damaged[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    relay = native.Relay(MAX_FRAME)
    taken = relay.take(bytes(damaged), 0, CHANNEL, ADDED, "broker-a", 1.0, "broker-a")
    if taken is None:
        return
    behind, out, *_ = taken
    try:
        before = read(bytes(damaged[:behind]))
    except RemoteProtocolError as error:
        raise AssertionError("taken, though it is no command") from error
    for one, other in zip(before, read(out), strict=True):
        assert dict(other.fields) == {**one.fields, **HOSTS}
        one.fields = other.fields
        assert shown(one) == shown(other)


def test_unanswered_requests_time_out() -> None:
    relay = native.Relay(MAX_FRAME)
    for number in range(3):
        header = {"code": 310, "extFields": {"b": "T", "n": "e"}, "flag": 0, "opaque": number}
        relay.take(framed(header, b"", (",", ":")), 0, CHANNEL, b"", "e", float(number))
    assert sorted(relay.give_up(1.0)) == [
        (CHANNEL, 0, 310, 2048),
        (CHANNEL, 1, 310, 2048),
    ]
    assert relay.settle(-3) == (CHANNEL, 2, 310, 2048)
    assert relay.settle(-3) is None
    assert relay.give_up() == []


def test_sends_to_pushed_topics_are_left_to_python() -> None:
    relay = native.Relay(MAX_FRAME)
    frames = [
        framed(
            {"code": 310, "extFields": {"b": topic, "n": "e"}, "flag": 0, "opaque": 1},
            b"",
            (",", ":"),
        )
        for topic in ("T", "U", "T")
    ]
    data = b"".join(frames)
    taken = relay.take(data, 0, CHANNEL, b"", "e", 1.0, None, ["U"])
    assert (taken[0], taken[3]) == (len(frames[0]), 1)
    assert relay.take(data, taken[0], CHANNEL, b"", "e", 1.0, None, ["U"]) is None
