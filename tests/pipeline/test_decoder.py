import json
import pickle
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mq.protocol import compression
from mq.protocol.compression import CompressionType
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.message import StoredMessage, encode_record
from tests.pipeline.conftest import require_spark

require_spark()

from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from mq.pipeline.columns import default_schema  # noqa: E402
from mq.pipeline.decoder import Decoder  # noqa: E402
from mq.pipeline.errors import DamagedBody, SchemaError  # noqa: E402
from mq.pipeline.records import walk  # noqa: E402

TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "string": StringType(),
    "timestamp": TimestampType(),
}
BORN = 1_700_000_000_123


def schema_of(ddl: str) -> StructType:
    """Like StructType.fromDDL, without a JVM."""
    schema = StructType()
    for column in ddl.split(", "):
        name, kind = column.split()
        schema.add(name, TYPES[kind])
    return schema


def message(offset: int, body: bytes = b"body", **other: Any) -> StoredMessage:
    values = {
        "properties": {"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": f"ID{offset}"},
        "queue_id": 3,
        "queue_offset": offset,
        "physical_offset": 1000 + offset,
        "flag": -7,
        "born_timestamp": BORN,
        "born_host": ("10.0.0.1", 50000),
        "store_timestamp": BORN + 1,
        "store_host": ("127.0.0.1", 10911),
    }
    return StoredMessage("Orders", body, **{**values, **other})


def decode(
    schema: str,
    *messages: StoredMessage,
    tags: tuple[str, ...] = (),
    fail_on_damage: bool = True,
) -> list[Any]:
    """Return the rows of a buffer with other bytes before, between and after the records."""
    buffer = bytearray(b"header")
    positions: list[int] = []
    for each in messages:
        start = len(buffer)
        buffer += encode_record(each)
        positions += walk(buffer, start, len(buffer)).tolist()
        buffer += b"between"
    decoder = Decoder(schema_of(schema), tags, fail_on_damage=fail_on_damage)
    batches = list(decoder.batches(buffer, np.array(positions, np.int64), "broker-a"))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_every_column_of_a_message_has_its_stored_value() -> None:
    (row,) = decode(default_schema(properties_as_map=False), message(5, b"\x00\xffbytes"))
    properties = json.loads(row.pop("properties"))
    assert properties == {"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "ID5"}
    assert row == {
        "topic": "Orders",
        "flag": -7,
        "body": b"\x00\xffbytes",
        "tags": "TagA",
        "keys": "k1 k2",
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": 5,
        "bornTimestamp": datetime.fromtimestamp(BORN / 1000, UTC),
        "storeTimestamp": datetime.fromtimestamp((BORN + 1) / 1000, UTC),
        "bornHost": "10.0.0.1:50000",
        "msgId": "ID5",
    }


def test_columns_have_the_order_and_spelling_of_the_schema() -> None:
    rows = decode("QUEUEOFFSET bigint, body binary", message(1), message(2, b""))
    assert rows == [{"QUEUEOFFSET": 1, "body": b"body"}, {"QUEUEOFFSET": 2, "body": b""}]
    assert [list(row) for row in rows] == [["QUEUEOFFSET", "body"]] * 2


def test_properties_can_be_a_map_and_times_milliseconds() -> None:
    schema = "properties map<string,string>, bornTimestamp bigint"
    rows = decode(schema, message(1, properties={"a": "1"}), message(2, properties={}))
    assert [row["properties"] for row in rows] == [[("a", "1")], []]
    assert {row["bornTimestamp"] for row in rows} == {BORN}


@pytest.mark.parametrize("kind", [None, *CompressionType])
def test_compressed_bodies_are_returned_as_sent(kind: CompressionType | None) -> None:
    body = b"again and " * 1000
    flag = 1 if kind is None else kind.sys_flag
    packed = compression.compress(body, kind or CompressionType.ZLIB)
    rows = decode("body binary", message(1), message(2, packed, sys_flag=flag), message(3, b""))
    assert [row["body"] for row in rows] == [b"body", body, b""]


DAMAGED = (
    b"x\x9c!",
    "queue 3 of topic Orders at broker broker-a: the message at offset 2: the zlib body is ",
)


def test_a_damaged_body_is_reported_with_the_option_that_accepts_it() -> None:
    for schema in ("body binary", "bodyError string"):
        with pytest.raises(DamagedBody) as raised:
            decode(schema, message(1), message(2, DAMAGED[0], sys_flag=1))
        assert str(raised.value).startswith(DAMAGED[1])
        assert '.option("failOnDamage", "false")' in str(raised.value)
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert decode("queueOffset bigint", message(2, DAMAGED[0], sys_flag=1)) == [{"queueOffset": 2}]


def test_a_damaged_body_is_returned_as_stored_if_wanted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    messages = [
        message(1, compression.compress(b"whole"), sys_flag=1),
        message(2, DAMAGED[0], sys_flag=1),
        message(3),
    ]
    rows = decode("body binary, bodyError string", *messages, fail_on_damage=False)
    assert [row["body"] for row in rows] == [b"whole", DAMAGED[0], b"body"]
    errors = [row["bodyError"] for row in rows]
    assert errors[::2] == [None, None] and errors[1].startswith("the zlib body is ")
    (logged,) = caplog.messages
    assert logged.startswith(DAMAGED[1]) and logged.endswith("as stored: 1 of 3")


def test_a_lack_of_memory_is_not_reported_as_a_damaged_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Exhausted:
        def decompress(self, *_: object) -> bytes:
            raise MemoryError

    packed = compression.compress(b"whole")
    monkeypatch.setattr("zlib.decompressobj", Exhausted)
    with pytest.raises(RemoteProtocolError):
        decode("body binary", message(1, packed, sys_flag=1), fail_on_damage=False)


def test_intact_bodies_have_no_error() -> None:
    assert decode("bodyError string", message(1)) == [{"bodyError": None}]


def test_bodies_that_decompress_to_many_bytes_are_split_into_batches() -> None:
    packed = compression.compress(bytes(20 << 20))
    messages = [message(n, packed, sys_flag=0x301) for n in range(4)]
    buffer = bytearray(b"".join(map(encode_record, messages)))
    decoder = Decoder(schema_of("body binary, queueOffset bigint"))
    batches = list(decoder.batches(buffer, walk(buffer, 0, len(buffer)), "broker-a"))
    assert [batch.num_rows for batch in batches] == [2, 2]
    assert pa.Table.from_batches(batches)["queueOffset"].to_pylist() == [0, 1, 2, 3]


def test_ipv6_hosts_shift_the_following_fields() -> None:
    schema = "bornHost string, storeTimestamp bigint, body binary, msgId string"
    ipv6 = ("2001:db8::1", 10911)
    rows = decode(
        schema,
        message(1, born_host=ipv6),
        message(2, store_host=ipv6, properties={}),
        message(3, born_host=ipv6, store_host=ipv6),
    )
    assert [row["bornHost"] for row in rows] == [
        "[2001:db8::1]:10911",
        "10.0.0.1:50000",
        "[2001:db8::1]:10911",
    ]
    assert [row["body"] for row in rows] == [b"body"] * 3
    assert {row["storeTimestamp"] for row in rows} == {BORN + 1}
    assert rows[1]["msgId"] == "20010DB8000000000000000000000001" + "00002A9F" + "00000000000003EA"


def test_records_of_version_2_may_have_long_topics() -> None:
    long = message(1, version=2)
    long.topic = "%RETRY%" + "g" * 200
    rows = decode("topic string, body binary", long, message(2))
    assert [row["topic"] for row in rows] == [long.topic, "Orders"]


def test_a_message_without_a_unique_id_gets_the_id_of_its_position() -> None:
    (row,) = decode("msgId string", message(0, physical_offset=1234, properties={}))
    assert row["msgId"] == "7F00000100002A9F00000000000004D2"


@pytest.mark.parametrize(
    ("stored", "tag"),
    [
        ({"TAGS": "B"}, "B"),
        ({"XTAGS": "no"}, None),
        ({"a": "TAGS"}, None),
        ({"XTAGS": "no", "TAGS": "yes", "YTAGS": "no"}, "yes"),
        ({"TAGS": "ü"}, "ü"),
        ({}, None),
    ],
)
def test_a_tag_is_found_in_the_properties(stored: dict[str, str], tag: str | None) -> None:
    (row,) = decode("tags string", message(1, properties=stored))
    assert row["tags"] == tag


def test_messages_with_other_tags_are_skipped() -> None:
    messages = [message(n, properties={"TAGS": tag}) for n, tag in enumerate("ABAC")]
    rows = decode("queueOffset bigint", *messages, message(9, properties={}), tags=("A", "C"))
    assert [row["queueOffset"] for row in rows] == [0, 2, 3]
    assert decode("queueOffset bigint", *messages, tags=("D",)) == []


def test_a_count_may_have_an_empty_schema() -> None:
    buffer = bytearray(encode_record(message(1)) * 3)
    decoder = Decoder(StructType([]))
    (batch,) = decoder.batches(buffer, walk(buffer, 0, len(buffer)), "broker-a")
    assert (batch.num_rows, batch.num_columns) == (3, 0)


def test_unknown_columns_and_types_are_named() -> None:
    with pytest.raises(SchemaError, match="no column value; columns are topic, flag, body"):
        Decoder(schema_of("value binary"))
    with pytest.raises(SchemaError, match="column body cannot be int; it is binary"):
        Decoder(schema_of("body int"))


@pytest.mark.parametrize("position", [0, 4, 84, 92])
def test_damaged_records_are_refused(position: int) -> None:
    buffer = bytearray(encode_record(message(1)))
    buffer[position] ^= 0x40
    with pytest.raises(RemoteProtocolError):
        positions = walk(buffer, 0, len(buffer))
        list(Decoder(schema_of("body binary")).batches(buffer, positions, "broker-a"))


def test_truncated_records_are_refused() -> None:
    record = encode_record(message(1))
    for length in (1, 90, len(record) - 1):
        with pytest.raises(RemoteProtocolError, match="does not begin a message record"):
            walk(bytearray(record), 0, length)


def test_some_columns_are_not_in_the_default_schema() -> None:
    messages = [
        message(0, b"four", reconsume_times=3),
        message(1, b"", born_host=("::1", 1), store_host=("::1", 2), reconsume_times=16),
    ]
    rows = decode("reconsumeTimes int, storedSize int", *messages)
    assert [row["reconsumeTimes"] for row in rows] == [3, 16]
    assert [row["storedSize"] for row in rows] == [len(encode_record(each)) for each in messages]
    assert "reconsumeTimes" not in default_schema(properties_as_map=False)


@pytest.mark.parametrize("lengths", [[5, 5, 5], [5, 6, 4], [5, 5, 4], [0], []])
def test_consecutive_records_of_any_length_are_found(lengths: list[int]) -> None:
    buffer, expected = bytearray(b"header"), []
    for length in lengths:
        expected.append(len(buffer))
        buffer += encode_record(message(0, b"x" * length))
    assert walk(buffer, 6, len(buffer)).tolist() == expected


def test_records_with_wrong_lengths_are_refused() -> None:
    """The second record states the length of the first, and is longer: no third record is found."""
    first, second = (encode_record(message(0, b"x" * length)) for length in (5, 10))
    third = b"\0" * (len(first) - 5)
    buffer = bytearray(first + first[:4] + second[4:] + third)
    with pytest.raises(RemoteProtocolError, match=r"byte \d+ of \d+ does not begin"):
        walk(buffer, 0, len(buffer))
