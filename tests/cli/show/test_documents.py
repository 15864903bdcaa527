"""Output in pieces equals the output of the whole."""

import json
from typing import Any

import orjson
import pytest
import yaml

from mq.cli.show import bodies
from mq.cli.show.documents import MAX_FOLDED, csv_pieces, json_pieces, yaml_pieces
from mq.cli.show.lazy import PIECE, LongText, Mapped, Text
from mq.client.operations.csv_text import csv_text

AWKWARD = "a, \"b\"\n'c'\r\t\\ é 世 😀 \x00 \x7f \x85 \u2028 # - : "
LONG = AWKWARD * (PIECE // 20)
TEXTS = [LONG, "0" * (3 * PIECE), " " * (2 * PIECE) + "end", LONG + "\n"]


def pieced(text: str) -> Text:
    found, encoding = bodies.text_of(text.encode())
    assert isinstance(found, LongText) and encoding == "utf-8"
    return found


def document(data: Any) -> dict[str, Any]:
    return {"version": 1, "data": data, "totals": {}, "failures": ["one"]}


def items(text: Text) -> list[dict[str, Any]]:
    return [{"name": "é", "body": text, "n": {"a": [1, 2]}}, {"name": "", "body": "b"}]


def lazy(found: list[Any]) -> Mapped[Any]:
    return Mapped(lambda item: item, found)


@pytest.mark.parametrize("text", TEXTS)
def test_json_is_what_it_is_of_the_whole(text: str) -> None:
    whole, parts = document(items(text)), document(lazy(items(pieced(text))))
    plain = orjson.dumps(whole, option=orjson.OPT_APPEND_NEWLINE).decode()
    assert "".join(json_pieces(parts, indent=False)) == plain
    option = orjson.OPT_APPEND_NEWLINE | orjson.OPT_INDENT_2
    assert "".join(json_pieces(parts, indent=True)) == orjson.dumps(whole, option=option).decode()
    empty = "".join(json_pieces(document(lazy([])), indent=True))
    assert empty == orjson.dumps(document([]), option=option).decode()


def test_json_has_numbers_that_only_python_writes() -> None:
    parts = document(lazy([{"n": 1 << 70, "body": pieced(LONG)}, {"n": 1}]))
    for indent in (True, False):
        found = json.loads("".join(json_pieces(parts, indent=indent)))
        assert found == document([{"n": 1 << 70, "body": LONG}, {"n": 1}])


@pytest.mark.parametrize("text", TEXTS)
def test_csv_is_what_it_is_of_the_whole(text: str) -> None:
    rows: list[list[Any]] = [["1", pieced(text), "x,y"], ["", "b", ""]]
    whole = csv_text([["a", "b", "c"], ["1", text, "x,y"], ["", "b", ""]])
    assert "".join(csv_pieces(["a", "b", "c"], rows)) == whole


def test_yaml_is_what_it_is_of_the_whole() -> None:
    text = LONG[:PIECE]  # PyYAML takes its time
    whole = document(items(text))
    expected = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, explicit_start=True)
    parts = document(lazy(items(pieced(text))))
    assert "".join(yaml_pieces(parts, explicit=True)) == expected
    empty = yaml.safe_dump(document([]), sort_keys=False)
    assert "".join(yaml_pieces(document(lazy([])), explicit=False)) == empty


def test_yaml_of_a_very_long_text_reads_the_same() -> None:
    text = AWKWARD + "0123456789abcdef" * (MAX_FOLDED // 16) + AWKWARD
    found = "".join(yaml_pieces(document(lazy(items(pieced(text)))), explicit=False))
    assert yaml.safe_load(found) == document(items(text))


CHARSETS = ["utf-8", "gbk", "utf-16", "utf-16-le", "utf-7", "iso2022_jp", "big5"]


@pytest.mark.parametrize("charset", CHARSETS)
@pytest.mark.parametrize(
    "body", [LONG.encode(), LONG.encode()[:-1] + b"\xff\xfe" * PIECE, b"\x1b$" * PIECE]
)
def test_a_body_in_pieces_has_the_characters_of_the_whole(charset: str, body: bytes) -> None:
    assert str(bodies.decoded(body, charset)) == body.decode(charset, "replace")


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE + 2])
def test_bytes_are_written_the_same_in_pieces(size: int) -> None:
    from base64 import b64encode

    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    signed = str([byte - 256 if byte > 127 else byte for byte in body])
    assert str(bodies.signed_bytes(body)) == signed
    assert str(bodies.base64(body)) == b64encode(body).decode()
    assert str(bodies.hexadecimal(body)) == body.hex()
