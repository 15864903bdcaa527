"""Records on their way through a filter server: exact, and only those that the class selected."""

import struct
import zlib

import pytest

from mq.daemons.filtersrv.handlers import Writer, places
from mq.protocol.compression import CompressionType, compress
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.message import decode_records
from mq.protocol.record import BLANK, MAGIC_BLANK
from mq.protocol.record_codec import encode_record
from mq.protocol.stored_message import StoredMessage

WRITER = Writer(8192, 5)
ALL = b"\xff"


def record(body: bytes, sys_flag: int = 0, host: str = "10.0.0.1", version: int = 1) -> bytes:
    return encode_record(
        StoredMessage(
            "Orders",
            body,
            {"TAGS": "a", "KEYS": "k", "amount": "5"},
            queue_id=3,
            queue_offset=7,
            physical_offset=1 << 40,
            flag=9,
            sys_flag=sys_flag,
            born_timestamp=1_700_000_000_000,
            born_host=(host, 1234),
            store_timestamp=1_700_000_000_001,
            store_host=("10.0.0.2", 10911),
            reconsume_times=2,
            prepared_transaction_offset=11,
            version=version,
        )
    )


def through(data: bytes, writer: Writer = WRITER) -> bytes:
    written, count = writer.chosen(data, places(data), ALL)
    assert count == len(places(data))
    return written


def test_a_small_body_is_unchanged() -> None:
    for data in (
        record(b""),
        record(b"x" * 8191),
        record(b"x", host="::1"),
        record(b"x", version=2),
    ):
        assert through(data) == data
        assert not WRITER.changes_any(data, places(data))


def test_a_large_body_is_compressed_and_its_record_is_as_java_writes_it() -> None:
    body = b"0123456789abcdef" * 512  # 8192 bytes: exactly the threshold
    packed = zlib.compress(body, 5)
    properties = b"TAGS\x01a\x02KEYS\x01k\x02amount\x015"
    size = 4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 8 + 8 + 8 + 8 + 4 + 8 + 4 + len(packed) + 1 + 6 + 2
    size += len(properties)
    # DefaultRequestProcessor.messageToByteBuffer, field by field.
    expected = struct.pack(
        ">iiiiiqqiq4siq4siiqi",
        *(size, -626843481, zlib.crc32(packed) & 0x7FFFFFFF, 3, 9, 7, 1 << 40),
        *(SysFlag.COMPRESSED, 1_700_000_000_000, bytes((10, 0, 0, 1)), 1234),
        *(1_700_000_000_001, bytes((10, 0, 0, 2)), 10911, 2, 11, len(packed)),
    )
    expected += packed + b"\x06Orders" + struct.pack(">h", len(properties)) + properties
    assert through(record(body)) == expected


@pytest.mark.parametrize("kind", [None, *CompressionType])
def test_a_small_compressed_body_is_decompressed(kind: CompressionType | None) -> None:
    body = b"hello" * 100
    flag = SysFlag.COMPRESSED if kind is None else kind.sys_flag
    stored = compress(body, kind or CompressionType.ZLIB)
    assert through(record(stored, flag | SysFlag.TRANSACTION_COMMIT)) == record(
        body, SysFlag.TRANSACTION_COMMIT
    )


def test_a_large_compressed_body_is_recompressed_with_zlib() -> None:
    body = bytes(range(256)) * 100
    (message,) = decode_records(
        through(record(compress(body, CompressionType.ZSTD), CompressionType.ZSTD.sys_flag)),
        check_crc=True,
        decompress=False,
    )
    assert message.body == zlib.compress(body, 5)
    assert message.sys_flag == SysFlag.COMPRESSED


def test_a_damaged_record_stays_damaged_and_its_checksum_shows_it() -> None:
    whole = bytearray(record(b"x" * 9000))
    whole[200] ^= 1
    assert through(bytes(whole)) == bytes(whole)
    lies = record(b"no zlib at all", SysFlag.COMPRESSED)
    assert through(lies) == lies


def test_only_selected_records_are_written() -> None:
    one, two, three = (record(body) for body in (b"1", b"2", b"3"))
    data = one + two + three
    assert WRITER.chosen(data, places(data), b"\x05") == (one + three, 2)
    assert WRITER.chosen(data, places(data), b"\x00") == (b"", 0)


def test_a_blank_record_ends_the_list() -> None:
    one = record(b"1")
    assert places(one + BLANK.pack(100, MAGIC_BLANK)) == [(0, len(one))]


@pytest.mark.parametrize(
    "data", [b"x", record(b"1")[:-1], record(b"1") + b"\0" * 100, b"\xff" * 200]
)
def test_invalid_records_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no message record at byte"):
        places(data)
