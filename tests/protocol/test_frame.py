import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.command import JSON, ROCKETMQ, Command
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError
from mq.protocol.frame import MAX_FRAME, decode, encode

JSON_HEADER = (
    b'{"code":30,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}'
)
BINARY_HEADER = bytes.fromhex(
    "001e"  # code 30
    "03"  # Python
    "0199"  # version 409
    "00000007"  # opaque
    "00000000"  # flag
    "00000003"
    "776879"  # remark: why
    "0000000c"  # extFields: 12 bytes
    "0005"
    "746f706963"  # topic
    "00000001"
    "54"  # T
)


def framed(serialization: int, header: bytes, body: bytes = b"") -> bytes:
    length = 4 + len(header) + len(body)
    word = serialization << 24 | len(header)
    return length.to_bytes(4, "big") + word.to_bytes(4, "big") + header + body


def test_a_json_frame_is_written() -> None:
    command = Command(30, {"topic": "T"}, b"body", opaque=7)
    assert encode(command) == framed(JSON, JSON_HEADER, b"body")


def test_a_binary_frame_is_written() -> None:
    command = Command(30, {"topic": "T"}, b"body", opaque=7, remark="why", serialization=ROCKETMQ)
    assert encode(command) == framed(ROCKETMQ, BINARY_HEADER, b"body")


@pytest.mark.parametrize(
    ("serialization", "header", "remark"),
    [(JSON, JSON_HEADER, None), (ROCKETMQ, BINARY_HEADER, "why")],
)
def test_a_frame_is_read(serialization: int, header: bytes, remark: str | None) -> None:
    command = decode(framed(serialization, header, b"body")[4:])
    assert (command.code, command.opaque, command.flag, command.version) == (30, 7, 0, 409)
    assert (command.language, command.remark, command.serialization) == (3, remark, serialization)
    assert (dict(command.fields), bytes(command.body)) == ({"topic": "T"}, b"body")


def test_bare_values_among_the_extfields_become_text() -> None:
    header = b'{"code":1,"extFields":{"a":1,"b":true,"c":null,"d":"x","e":[1,{"f":2}],"g":0.5}}'
    fields = {"a": "1", "b": "true", "d": "x", "e": '[1,{"f":2}]', "g": "0.5"}
    assert decode(framed(JSON, header)[4:]).fields == fields


def test_numbers_of_a_header_are_converted_as_java_converts_them() -> None:
    header = b'{"code":"30","opaque":7.5,"flag":null,"version":true,"remark":5}'
    command = decode(framed(JSON, header)[4:])
    assert (command.code, command.opaque, command.flag, command.version) == (30, 7, 0, 1)
    assert command.remark == "5"
    assert decode(framed(JSON, b'{"opaque":""}')[4:]).code == 0


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "no room for its header"),
        (b"\0\0\0", "no room for its header"),
        (b"\0\0\0\x05{}", "a header of 5 bytes in a frame of 6"),
        (framed(JSON, b"{")[4:], "not JSON"),
        (framed(JSON, b"[]")[4:], "not a JSON object"),
        (framed(JSON, b'{"code":"x"}')[4:], "code must be an integer"),
        (framed(JSON, b'{"code":1,"flag":[]}')[4:], "flag must be an integer"),
        (framed(JSON, b'{"code":1,"opaque":-9223372036854777216}')[4:], "opaque must be an"),
        (framed(JSON, b'{"code":1,"extFields":[]}')[4:], "extFields must be an object"),
        (
            framed(JSON, b'{"code":1,"extFields":{"a":' + b"[" * 300 + b"]" * 300 + b"}}")[4:],
            "nested too deeply",
        ),
        (framed(2, b"{}")[4:], "unknown serialization 2"),
        (framed(ROCKETMQ, BINARY_HEADER[:-1])[4:], "do not fit"),
        (framed(ROCKETMQ, BINARY_HEADER[:10])[4:], "broken binary header"),
        (framed(ROCKETMQ, BINARY_HEADER[:-1] + b"\xff")[4:], "broken binary header"),
    ],
)
def test_bytes_that_are_no_command_are_refused(frame: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        decode(frame)


def test_a_frame_over_the_limit_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="over the limit"):
        encode(Command(10, None, bytes(MAX_FRAME)))


def test_a_code_too_large_for_the_binary_form_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="binary header cannot carry"):
        encode(Command(200_050, serialization=ROCKETMQ))


text = st.text(st.characters(codec="utf-8"))


@given(
    st.integers(-(2**15), 2**15 - 1),
    st.dictionaries(text.filter(bool), text),
    st.binary(),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | text.filter(bool),
    st.sampled_from([JSON, ROCKETMQ]),
)
def test_what_is_written_is_read_back(
    code: int,
    fields: dict[str, str],
    body: bytes,
    opaque: int,
    remark: str | None,
    serialization: int,
) -> None:
    written = Command(code, fields, body, opaque=opaque, remark=remark, serialization=serialization)
    read = decode(encode(written)[4:])
    for name in filter(str.isalpha, Command.__slots__):  # not what was read from them
        assert getattr(read, name) == getattr(written, name), name


@pytest.mark.parametrize("serialization", [0, 1])
def test_a_remark_with_half_a_character_is_sent_all_the_same(serialization: int) -> None:
    frame = encode(Command(1, {"a": "b"}, remark="what \ud800 is", serialization=serialization))
    assert decode(frame[4:]).remark == "what ? is"


@pytest.mark.parametrize("serialization", [0, 1])
def test_a_field_with_half_a_character_is_an_error_of_ours(serialization: int) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be sent"):
        encode(Command(1, {"a": "\ud800"}, serialization=serialization))
