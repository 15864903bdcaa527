"""The layout of a record, held to the bytes that Java writes and to what the documents show."""

import re
import struct
from pathlib import Path

import pytest

from mq.protocol import record
from mq.protocol.flags import SysFlag
from mq.protocol.message import StoredMessage, encode_record

ROOT = Path(__file__).resolve().parents[2]
HOSTS = {False: ("10.0.0.1", 7), True: ("2001:db8::1", 7)}


def test_the_head_has_the_fields_of_java_in_their_order() -> None:
    # CommitLog.calMsgLength and MessageExtEncoder.encode, field by field.
    assert record.HEAD_V4.format == ">iiiiiqqiq4siq4siiqi"
    assert record.RECORD_HEAD.format == ">iiiiiqqiq8sq8siqi"
    assert record.SMALLEST_RECORD == 91


@pytest.mark.parametrize("born", [False, True])
@pytest.mark.parametrize("store", [False, True])
def test_every_field_lies_where_it_is_said_for_both_families_of_hosts(
    born: bool, store: bool
) -> None:
    message = StoredMessage(
        "T",
        b"body",
        queue_id=3,
        queue_offset=4,
        physical_offset=5,
        flag=6,
        born_timestamp=7,
        born_host=HOSTS[born],
        store_timestamp=8,
        store_host=HOSTS[store],
        reconsume_times=9,
        prepared_transaction_offset=10,
    )
    encoded = encode_record(message)
    numbers = {"queue_id": 3, "flag": 6, "queue_offset": 4, "physical_offset": 5} | {
        "born_timestamp": 7,
        "store_timestamp": 8,
        "reconsume_times": 9,
        "prepared_offset": 10,
        "body_length": 4,
    }
    letters = {field.name: field.letter for field in record.HEAD}
    for name, value in numbers.items():
        at = record.AT[name] + record.shift(name, message.sys_flag)
        assert struct.unpack_from(">" + letters[name], encoded, at) == (value,), name
    assert record.head(message.sys_flag).unpack_from(encoded)[0] == len(encoded)
    sizes = record.host_sizes(message.sys_flag)
    whole = record.part("size", "body_length", *sizes)
    values = whole.unpack_from(encoded)
    shared = record.common(*sizes).pack(*values[7:14])
    around = record.around_common(len(shared))
    assert around.pack(*values[:7], shared, values[14]) == encoded[: around.size]


def test_a_view_of_some_fields_passes_over_the_others() -> None:
    encoded = encode_record(StoredMessage("T", b"body", queue_id=3, queue_offset=4))
    assert record.RECORD_IDENTITY.unpack_from(encoded) == (len(encoded), record.MAGIC_V1, 3, 4)
    seen = record.struct_of("sys_flag", "born_host", "body_length").unpack_from(encoded)
    assert seen == (0, bytes(8), 4)


def test_bits_of_a_flag_that_are_none_of_a_hosts_move_nothing() -> None:
    compressed = SysFlag.COMPRESSED | SysFlag.TRANSACTION_COMMIT
    assert record.head(compressed) is record.HEAD_V4
    assert record.shift("body_length", compressed) == 0


def test_the_documented_table_shows_these_fields_with_the_bytes_of_its_example() -> None:
    page = (ROOT / "docs" / "store-format.md").read_text(encoding="utf-8")
    table = page.partition("| bytes | value | field |\n|---|---|---|\n")[2].splitlines()
    kinds = {"i": "i32", "q": "i64", record.HOST: "host"}
    example = b""
    for row, field in zip(table, record.HEAD[:-1], strict=False):
        raw, _, shown = (cell.strip() for cell in row.strip("|").split("|"))
        assert shown == f"{kinds[field.letter]}: {field.meaning}"
        example += bytes.fromhex(re.sub("[` ]", "", raw))
    values = record.part("size", "prepared_offset").unpack(example)
    assert values[:2] == (191, record.MAGIC_V1)
