"""Properties found by numpy equal those decoded one by one."""

import json
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mq.pipeline.property_columns import PropertyTable
from mq.pipeline.records import Records, walk
from mq.protocol.message import StoredMessage, encode_record
from mq.protocol.properties import decode


def table(*texts: bytes) -> PropertyTable:
    """Return the table of records that have these bytes as their properties."""
    buffer = bytearray()
    for text in texts:
        empty = encode_record(StoredMessage("Orders", b"body", properties={}))
        record = empty[:-2] + struct.pack(">h", len(text)) + text
        buffer += struct.pack(">i", len(record)) + record[4:]
    return PropertyTable(Records(buffer, walk(buffer, 0, len(buffer))))


def values(array: pa.Array | None) -> list[Any]:
    assert array is not None
    array.validate(full=True)
    found: list[Any] = array.to_pylist()
    return found


TEXTS = [
    b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ID",
    b"TAGS\x01TagB\x02",  # with the end that 5.x writes
    b"",
    b"KEYS\x01k\x02XTAGS\x01no\x02TAGSY\x01no",
    b"A\x01b\x02TAGS\x01last",
]


def test_a_property_is_found_by_its_full_name_and_null_if_absent() -> None:
    found = table(*TEXTS)
    assert values(found.find("TAGS")) == ["TagA", "TagB", None, None, "last"]
    assert values(found.find("KEYS")) == ["k1 k2", None, None, "k", None]
    assert values(found.find("NONE")) == [None] * 5


def test_all_properties_are_returned_as_json_and_as_a_map() -> None:
    found = table(*TEXTS)
    expected = [decode(text.decode()) for text in TEXTS]
    assert [json.loads(text) for text in values(found.as_json())] == expected
    assert [dict(pairs) for pairs in values(found.as_map())] == expected


@pytest.mark.parametrize(
    ("text", "is_found", "is_map", "is_json"),
    [
        ("ü\x01ö".encode(), True, True, True),
        (b"a\x01\xff", False, False, False),  # not UTF-8
        (b"a\x01b\x02a\x01c", True, False, False),  # a repeated name
        (b'a\x01say "no"', True, True, False),
        (b"a\x01b\\c", True, True, False),
        (b"a\x01b\nc", True, True, False),
        (b"a\x01b\x01c", True, True, False),
        (b"a\x02b\x01c", True, True, False),
        (b"a\x01b\x02\x02c\x01d", True, True, False),
        (b"a\x01\x02b\x01c", True, True, False),
        (b"\x01a\x02b\x01c", True, True, False),
        (b"a", True, True, False),
    ],
)
def test_unusual_properties_are_left_to_the_caller(
    text: bytes, is_found: bool, is_map: bool, is_json: bool
) -> None:
    found = table(b"x\x01y", text, b"TAGS\x01z")
    assert (found.find("TAGS") is not None) == is_found
    assert (found.as_map() is not None) == is_map
    assert (found.as_json() is not None) == is_json


def test_any_text_gives_the_result_of_single_decoding() -> None:
    chance = random.Random(11)
    alphabet = [b"\x01", b"\x02", b"a", b"b", b"TAGS", "ü".encode(), b'"', b"\xff"]
    told = np.zeros(3, np.int64)
    for _ in range(400):
        texts = [
            b"".join(chance.choices(alphabet, (4, 3, 3, 3, 3, 0.1, 0.1, 0.02), k=size))
            for size in chance.choices(range(12), k=chance.randrange(4))
        ]
        found = table(*texts)
        expected = [decode(text.decode("utf-8", "replace")) for text in texts]
        tags, maps, json_texts = found.find("TAGS"), found.as_map(), found.as_json()
        if tags is not None:
            assert values(tags) == [each.get("TAGS") for each in expected], texts
        if maps is not None:
            assert [dict(pairs) for pairs in values(maps)] == expected, texts
        if json_texts is not None:
            assert [json.loads(text) for text in values(json_texts)] == expected, texts
        told += [tags is not None, maps is not None, json_texts is not None]
    assert told.min() > 50
