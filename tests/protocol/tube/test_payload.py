import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.tube import payload
from mq.protocol.tube.errors import MalformedPayload

WITH_ATTRIBUTES = bytes.fromhex("00000003 613d31 68656c6c6f")  # a=1, hello

PARTS = st.text(
    st.characters(exclude_characters=",=", exclude_categories=["Cs"]), min_size=1, max_size=10
).filter(lambda text: text.strip() != "" and "$msg" not in text)


def test_a_body_alone_is_the_payload() -> None:
    assert payload.encode(b"hello") == (b"hello", 0)
    assert payload.encode(b"hello", {}) == (b"hello", 0)
    assert payload.decode(b"hello", 0) == (b"hello", "")


def test_attributes_come_first_behind_their_length() -> None:
    assert payload.encode(b"hello", {"a": "1"}) == (WITH_ATTRIBUTES, 1)
    assert payload.decode(WITH_ATTRIBUTES, 1) == (b"hello", "a=1")


def test_other_bits_of_the_flag_say_nothing() -> None:
    assert payload.decode(WITH_ATTRIBUTES, 0xFF) == (b"hello", "a=1")
    assert payload.decode(WITH_ATTRIBUTES, 0xFE) == (WITH_ATTRIBUTES, "")


def test_type_and_time_are_attributes_before_the_others() -> None:
    text = payload.attribute_text({"b": "2"}, " abc ", "202611231015")
    assert text == "$msgType$=abc,$msgTime$=202611231015,b=2"
    assert payload.parse_attributes(text) == {
        payload.MESSAGE_TYPE: "abc",
        payload.MESSAGE_TIME: "202611231015",
        "b": "2",
    }


@pytest.mark.parametrize(
    ("data", "expected"), [(b"hello", 907060870), (WITH_ATTRIBUTES, 683219854), (b"", 0)]
)
def test_checksums_are_those_of_the_original(data: bytes, expected: int) -> None:
    assert payload.checksum(data) == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("abc", 96354),
        (None, -1),
        ("", -1),
        ("polygenelubricants", -(2**31)),
        ("zzzzzz", -685785664),
    ],
)
def test_key_codes_are_javas_hashes(text: str | None, code: int) -> None:
    assert payload.key_code(text) == code


@given(st.binary(max_size=100), st.dictionaries(PARTS, PARTS, max_size=4))
def test_what_is_written_is_read(body: bytes, attributes: dict[str, str]) -> None:
    data, flag = payload.encode(body, attributes)
    read, text = payload.decode(data, flag)
    assert (read, payload.parse_attributes(text)) == (body, attributes)


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0", b"\0\0\0\x02a", b"\xff\xff\xff\xffa", b"\x7f\xff\xff\xff"]
)
def test_attributes_that_do_not_fit_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedPayload):
        payload.decode(data, 1)


def test_an_empty_text_of_attributes_is_read() -> None:
    assert payload.decode(b"\0\0\0\0body", 1) == (b"body", "")


def test_attributes_that_are_no_text_keep_the_message() -> None:
    assert payload.decode(b"\0\0\0\x02\xff=body", 1) == (b"body", "\ufffd=")


@pytest.mark.parametrize(
    "attributes",
    [
        {"": "1"},
        {" ": "1"},
        {"a": ""},
        {"a,b": "1"},
        {"a": "b=c"},
        {"$msgType$": "1"},
        {"a": "$msgTime$"},
    ],
)
def test_attributes_that_would_be_read_otherwise_are_refused(attributes: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        payload.encode(b"x", attributes)


@pytest.mark.parametrize(
    "time", ["", "20261123101", "2026112310155", "202613231015", "\uff1202611231015"]
)
def test_a_time_that_is_none_is_refused(time: str) -> None:
    with pytest.raises(ValueError):
        payload.encode(b"x", message_time=time)


def test_of_a_key_that_is_there_twice_the_first_counts() -> None:
    assert payload.parse_attributes("a=1,a=2,b,=3,c=,,d=4=5") == {"a": "1", "d": "4"}
