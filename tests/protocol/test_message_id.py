import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.message_id import (
    OffsetId,
    UniqueIdMaker,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    is_offset_id,
    unique_id_time,
)


def test_offset_id_of_a_known_place() -> None:
    text = "7F00000100002A9F00000000000004D2"
    assert encode_offset_id("127.0.0.1", 10911, 1234) == text
    assert decode_offset_id(text) == OffsetId("127.0.0.1", 10911, 1234)
    assert decode_offset_id(text.lower()) == OffsetId("127.0.0.1", 10911, 1234)


def test_offset_id_of_an_ipv6_host_has_56_digits() -> None:
    text = encode_offset_id("2001:db8::1", 10911, 5)
    assert text == "20010DB800000000000000000000000100002A9F0000000000000005"
    assert decode_offset_id(text) == OffsetId("2001:db8::1", 10911, 5)


@given(st.ip_addresses(), st.integers(0, 65535), st.integers(0, 2**63 - 1))
def test_offset_id_is_read_back(host: object, port: int, offset: int) -> None:
    assert decode_offset_id(encode_offset_id(str(host), port, offset)) == (str(host), port, offset)


@pytest.mark.parametrize("text", ["", "7F", "x" * 32, "7F00000100002A9F00000000000004D", "é" * 32])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="32 or 56 hexadecimal digits"):
        decode_offset_id(text)
    with pytest.raises(ValueError, match="32 or 56 hexadecimal digits"):
        decode_unique_id(text)


def test_a_unique_id_is_told_from_an_offset_id_by_its_port() -> None:
    assert is_offset_id("7F00000100002A9F00000000000004D2")
    assert not is_offset_id("7F0000012F2C18B4AAC21B5A4F0A0000")


@pytest.mark.parametrize("host", ["256.1.1.1", "1.2.3", "localhost", "1.2.3.+4", "::g"])
def test_a_host_that_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(ValueError):
        encode_offset_id(host, 1, 1)


def test_unique_ids_have_the_layout_of_java() -> None:
    now = time.mktime((2024, 5, 1, 0, 0, 1, 0, 0, -1))
    make = UniqueIdMaker("192.0.2.7", 0x12345, lambda: now, salt=0xAABBCCDD)
    assert make() == "C00002072345AABBCCDD000003E80000"
    assert make() == "C00002072345AABBCCDD000003E80001"
    assert decode_unique_id(make()) == ("192.0.2.7", 0x2345, 0xAABBCCDD, 1000, 2)


def test_unique_ids_count_anew_from_each_month() -> None:
    now = time.mktime((2024, 12, 31, 23, 59, 59, 0, 0, -1))
    clock = [now]
    make = UniqueIdMaker("192.0.2.7", 1, lambda: clock[0], 1)
    assert decode_unique_id(make()).elapsed_ms == 31 * 86_400_000 - 1000
    clock[0] += 3
    assert decode_unique_id(make()).elapsed_ms == 2000
    clock[0] -= 3  # a clock that was set back across the start of the month
    assert decode_unique_id(make()).elapsed_ms == 0


def test_unique_ids_wrap_their_counter_after_65536() -> None:
    make = UniqueIdMaker("192.0.2.7", 1, lambda: 1e9, 1)
    ids = {make() for _ in range(65536)}
    assert len(ids) == 65536
    assert decode_unique_id(make()).counter == 0


def test_makers_in_one_process_make_different_ids() -> None:
    assert (
        UniqueIdMaker("192.0.2.7", 1, lambda: 1e9, 1)()
        != UniqueIdMaker("192.0.2.7", 1, lambda: 1e9, 2)()
    )


def test_unique_id_tells_when_it_was_made() -> None:
    made = time.mktime((2024, 4, 30, 12, 0, 0, 0, 0, -1))
    text = UniqueIdMaker("192.0.2.7", 1, lambda: made, 1)()
    assert unique_id_time(text, made + 60) == made
    may_second = time.mktime((2024, 5, 2, 0, 0, 0, 0, 0, -1))
    assert unique_id_time(text, may_second) == made
