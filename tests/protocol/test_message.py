import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.compression import CompressionType, compress
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.message import (
    Message,
    StoredMessage,
    decode_record,
    decode_records,
    encode_record,
)
from mq.protocol.record import BLANK, MAGIC_BLANK

# spec: a record of Java, both hosts IPv4
RECORD = bytes.fromhex(
    "00000072DAA320A777D189820000000300000007000000000000000500000000000004D200000000"
    "0000018BCFE568007F0000010000C3500000018BCFE568017F00000100002A9F00000002"
    "0000000000000009"
    "0000000548656C6C6F09546F706963546573740009544147530154616741"
)


def test_a_record_of_java_is_read() -> None:
    message = decode_record(RECORD, check_crc=True)
    assert (message.topic, message.body, message.properties) == (
        "TopicTest",
        b"Hello",
        {"TAGS": "TagA"},
    )
    assert (message.queue_id, message.flag, message.queue_offset) == (3, 7, 5)
    assert (message.physical_offset, message.store_size, message.sys_flag) == (1234, 114, 0)
    assert (message.born_timestamp, message.born_host) == (1700000000000, ("127.0.0.1", 50000))
    assert (message.store_timestamp, message.store_host) == (1700000000001, ("127.0.0.1", 10911))
    assert (message.reconsume_times, message.prepared_transaction_offset) == (2, 9)
    assert message.offset_id == message.message_id == "7F00000100002A9F00000000000004D2"
    assert (message.tags, message.keys, message.broker_name, message.version) == ("TagA", (), "", 1)


def test_a_record_is_written_as_java_writes_it() -> None:
    message = StoredMessage(
        "TopicTest",
        b"Hello",
        {"TAGS": "TagA"},
        queue_id=3,
        flag=7,
        queue_offset=5,
        physical_offset=1234,
        born_timestamp=1700000000000,
        born_host=("127.0.0.1", 50000),
        store_timestamp=1700000000001,
        store_host=("127.0.0.1", 10911),
        reconsume_times=2,
        prepared_transaction_offset=9,
    )
    assert encode_record(message) == RECORD


def test_the_second_form_has_16_bits_for_the_topic() -> None:
    message = StoredMessage("%RETRY%" + "g" * 200, b"", version=2)
    record = encode_record(message)
    assert record[4:8].hex() == "daa320ab"
    assert record[88:90] == struct.pack(">h", 207)
    assert decode_record(record).topic == message.topic


def test_a_topic_too_long_for_the_first_form_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="does not fit a record"):
        encode_record(StoredMessage("t" * 128, b""))


def test_text_that_utf8_cannot_hold_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="does not fit a record"):
        encode_record(StoredMessage("T", b"", {"a": "\ud800"}))


def test_ipv6_hosts_have_16_bytes_and_a_bit() -> None:
    message = StoredMessage("T", b"x", born_host=("2001:db8::1", 1), store_host=("::1", 2))
    assert message.sys_flag == SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
    record = encode_record(message)
    assert len(record) == 91 + 24 + 1 + 1
    again = decode_record(record)
    assert (again.born_host, again.store_host) == (("2001:db8::1", 1), ("::1", 2))
    assert len(again.offset_id) == 56


def test_the_unique_key_is_the_message_id_and_keys_are_words() -> None:
    message = StoredMessage("T", b"", {"UNIQ_KEY": "ABC", "KEYS": "one two"})
    assert (message.message_id, message.keys, message.tags) == ("ABC", ("one", "two"), None)


@pytest.mark.parametrize("kind", CompressionType)
def test_a_compressed_body_is_restored_and_compressed_again(kind: CompressionType) -> None:
    packed = compress(b"abc" * 100, kind)
    record = encode_record(StoredMessage("T", packed, sys_flag=kind.sys_flag))
    message = decode_record(record, check_crc=True)
    assert (message.body, message.sys_flag) == (b"abc" * 100, kind.sys_flag)
    assert message.body_crc == crc32(packed) & 0x7FFFFFFF
    assert decode_record(encode_record(message)).body == message.body
    stored = decode_record(record, decompress=False)
    assert stored.body == packed
    assert encode_record(stored) == record
    assert decode_record(record, read_body=False).body == b""


def test_records_are_read_one_behind_the_other_up_to_a_blank() -> None:
    blank = BLANK.pack(1000, MAGIC_BLANK)
    assert len(decode_records(RECORD * 3)) == 3
    assert len(decode_records(memoryview(RECORD * 2 + blank + b"\0" * 50))) == 2
    assert decode_records(b"") == []


def test_a_position_inside_a_buffer_can_be_read() -> None:
    assert decode_record(bytearray(b"xyz" + RECORD), 3).queue_offset == 5


@pytest.mark.parametrize("length", range(len(RECORD)))
def test_a_record_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match="no message record at byte 0"):
        decode_record(RECORD[:length])


def with_bytes(position: int, new: bytes) -> bytes:
    return RECORD[:position] + new + RECORD[position + len(new) :]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (with_bytes(0, b"\xff"), "size -"),
        (with_bytes(0, struct.pack(">i", 113)), "do not make its size"),
        (with_bytes(4, b"\0\0\0\0"), "magic 0x00000000"),
        (with_bytes(84, struct.pack(">i", -1)), "body -1 bytes"),
        (with_bytes(84, struct.pack(">i", 2**31 - 1)), "not a whole one"),
        (with_bytes(93, b"\xff"), "not a whole one|do not make its size"),
        (with_bytes(103, b"\xff\xff"), "do not make its size"),
        (with_bytes(88, b"J"), "CRC"),
    ],
)
def test_a_damaged_record_is_refused_with_the_reason(record: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        decode_record(record, check_crc=True)


def test_a_damaged_record_among_others_is_named_by_its_position() -> None:
    with pytest.raises(RemoteProtocolError, match="at byte 114: magic"):
        decode_records(RECORD + with_bytes(4, b"\0\0\0\0"))


def test_text_that_is_not_utf8_is_read_with_marks() -> None:
    assert decode_record(with_bytes(94, b"\xff")).topic == "\ufffdopicTest"
    assert decode_record(with_bytes(110, b"\xff")).tags == "\ufffdagA"


hosts = st.tuples(st.ip_addresses().map(str), st.integers(0, 65535))
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
words = st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=10
)
messages = st.builds(
    StoredMessage,
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.binary(max_size=100),
    st.dictionaries(words, words, max_size=5),
    queue_id=int32,
    flag=int32,
    queue_offset=int64,
    physical_offset=int64,
    sys_flag=int32.map(lambda flag: flag & ~SysFlag.COMPRESSED),
    born_timestamp=int64,
    born_host=hosts,
    store_timestamp=int64,
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
    version=st.sampled_from([1, 2]),
)


@given(st.lists(messages, max_size=3))
def test_what_is_written_is_read_back(written: list[StoredMessage]) -> None:
    records = [encode_record(message) for message in written]
    again = decode_records(b"".join(records), check_crc=True)
    assert [encode_record(message) for message in again] == records
    for message, record in zip(written, records, strict=True):
        message.store_size = len(record)
    assert again == written


def test_a_message_has_the_properties_that_java_gives_it() -> None:
    message = Message("T", b"x", "TagA", "k1 k2", {"user": "1"}, delay_level=3, wait_store_ok=False)
    message.system["UNIQ_KEY"] = "U"
    assert message.all_properties() == {
        "user": "1",
        "KEYS": "k1 k2",
        "TAGS": "TagA",
        "DELAY": "3",
        "WAIT": "false",
        "UNIQ_KEY": "U",
    }
    assert Message("T", b"x").all_properties() == {"WAIT": "true"}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("TAGS", "x", "used by RocketMQ"),
        ("TIMER_DELAY_MS", "x", "used by RocketMQ"),
        ("", "x", "needs a name and a value"),
        ("x", "", "needs a name and a value"),
        ("x", "a\x01b", "0x01 or 0x02"),
        ("a\x02b", "x", "0x01 or 0x02"),
    ],
)
def test_properties_that_cannot_be_stored_are_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Message("T", b"x", properties={name: value})


@pytest.mark.parametrize("separator", ["\x01", "\x02"])
def test_a_tag_or_key_that_would_be_read_as_further_properties_is_refused(separator: str) -> None:
    forged = f"k{separator}TRAN_MSG\x01true"
    with pytest.raises(ValueError, match="its tag has a character that separates properties"):
        Message("T", b"x", forged)
    for keys in (forged, ["k", forged]):
        with pytest.raises(ValueError, match="its key has a character that separates properties"):
            Message("T", b"x", keys=keys)


def test_properties_over_the_limit_are_refused() -> None:
    assert len(Message("T", b"x", properties={"a": "b" * 32000}).encode_properties()) > 32000
    with pytest.raises(ValueError, match=r"limit 32767"):
        Message("T", b"x", properties={"a": "ä" * 17000}).encode_properties()
