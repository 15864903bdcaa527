import json
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.operations.messages.body_view import (
    MOST_JSON,
    SHOWN,
    SHOWN_AS_HEX,
    BodyView,
    first_line,
    hex_dump,
    indented,
    view,
)
from mq.protocol.flags import SysFlag
from mq.protocol.message import StoredMessage, restore_body


def of(body: bytes, form: str | None = None, sys_flag: int = 0) -> BodyView:
    return view(StoredMessage("topic", body, sys_flag=sys_flag), form)


@pytest.mark.parametrize(
    ("body", "form", "text"),
    [
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        ("grüße 🎈".encode(), "text", "grüße 🎈"),
        (b"12", "text", "12"),
        (b'{"a":1}', "json", '{\n  "a": 1\n}'),
        (b' [1, {}, []]', "json", "[\n  1,\n  {},\n  []\n]"),
        (b"{broken", "text", "{broken"),
        (b"\xff\x00", "hex", "00000000  ff 00                                            .."),
    ],
)  # fmt: skip
def test_a_body_is_shown_in_the_form_that_fits(body: bytes, form: str, text: str) -> None:
    found = of(body)
    assert (found.form, found.text, found.size, found.is_cut) == (form, text, len(body), False)


def test_a_form_that_is_asked_for_is_given_where_it_can_be() -> None:
    assert of(b'{"a":1}', "text").text == '{"a":1}'
    assert of(b'{"a":1}', "hex").text.startswith("00000000  7b 22")
    assert of(b"no json", "json").form == "text"
    assert of(b"a\xff", "text").text == "a�"


def test_numbers_and_equal_names_stay_as_they_are_written() -> None:
    text = '{"n":9223372036854775807,"big":123456789012345678901234567890,"n":1.0,"e":"\\u0041,{"}'
    shown, is_cut = indented(text, SHOWN)
    assert "123456789012345678901234567890" in shown and '"n": 1.0' in shown
    assert '"e": "\\u0041,{"' in shown and not is_cut
    assert "".join(shown.split()) == text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_what_is_indented_is_the_same_value(value: object) -> None:
    assert json.loads(indented(json.dumps(value), 10**6)[0]) == value


def test_long_bodies_are_cut_and_say_so() -> None:
    text = of("é".encode() * SHOWN, "text")
    assert text.is_cut and text.text == "é" * (SHOWN // 2) and text.size == 2 * SHOWN
    dumped = of(b"\xff" * SHOWN)
    assert dumped.is_cut and dumped.shown == SHOWN_AS_HEX
    assert len(dumped.text.splitlines()) == SHOWN_AS_HEX // 16
    nested = of(b"[" * 500 + b"1," * 100_000 + b"1" + b"]" * 500)
    assert nested.form == "json" and nested.is_cut and len(nested.text) == SHOWN


def test_a_rune_at_the_cut_is_left_out_whole() -> None:
    assert of(b"x" + "é".encode() * SHOWN, "text").text.endswith("é")


def test_a_compressed_body_names_its_codec() -> None:
    message = StoredMessage("topic", zlib.compress(b"plain"), sys_flag=int(SysFlag.COMPRESSED))
    restore_body(message, 100)
    found = view(message)
    assert (found.text, found.codec, found.size, found.problem) == ("plain", "zlib", 5, "")


def test_a_bomb_stays_as_it_is_stored_and_says_why() -> None:
    packed = zlib.compress(bytes(10_000_000))
    message = StoredMessage("topic", packed, sys_flag=int(SysFlag.COMPRESSED))
    restore_body(message, 1_000_000)
    found = view(message)
    assert found.size == len(packed) and found.form == "hex"
    assert found.problem == "the zlib body is larger than 1000000 bytes when decompressed"


def test_lists_show_the_beginning_of_a_body() -> None:
    assert first_line(b"short") == "short"
    assert first_line("é".encode() * 100, 121) == "é" * 60
    assert first_line(b"\xff\xfe") == "ff fe"
    assert hex_dump(b"") == ""


@pytest.mark.parametrize(
    "body",
    [
        b'["' + b"a" * 4_000_000 + b'"]',
        b'["' + b"a" * (MOST_JSON - 4) + b'"]',
        b"[" + b"[]," * 1_300_000 + b"[]]",
        b"[" * 1_000_000 + b"]" * 1_000_000,
        "🎈".encode() * 1_000_000,
        bytes(4_000_000),
    ],
)
def test_a_large_body_is_looked_at_in_little_memory(body: bytes) -> None:
    message = StoredMessage("topic", body)
    tracemalloc.start()
    try:
        found = view(message)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.is_cut and found.is_utf8
    assert peak < 20_000_000
