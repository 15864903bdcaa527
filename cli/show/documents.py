"""JSON, YAML and CSV of results, in pieces: item by item, long texts piece by piece.

A mark replaces a long text while its item is formatted; the text is then inserted for the mark.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mq.cli.show.lazy import LongText, Mapped, Text, converted, pieces_of

JSON_INDENT = 4  # indentation of list items in an indented document

# The longest text, in characters, that YAML folds in its own layout, which takes a second for a
# million characters. A longer one is in double quotes, on one line, with the same meaning.
MAX_FOLDED = 1024 * 1024


def json_pieces(document: dict[str, Any], *, indent: bool) -> Iterator[str]:
    """Yield a document as JSON; its `data` may be a lazy sequence."""
    head, items, tail = _opened(document, lambda value: _json(value, indent=indent), '"')
    yield head
    margin = "\n" + " " * JSON_INDENT if indent else ""
    between = ""
    for item in items:  # enumerate() would hold an item while the next one is made
        yield between
        marks = _Marks('"', json_quoted)
        text = _json(marks.put(item), indent=indent).removesuffix("\n")
        yield from marks.filled(text.replace("\n", margin) if indent else text)
        between = f",{margin}"
        del item, marks
    yield tail


def _json(value: Any, *, indent: bool) -> str:
    import orjson

    option = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if indent else 0)
    try:
        return orjson.dumps(value, option=option).decode()
    except orjson.JSONEncodeError:  # a number over 64 bits: clients may commit any offset
        import json

        return json.dumps(value, ensure_ascii=False, indent=2 if indent else None) + "\n"


def json_quoted(text: Text) -> Iterator[str]:
    """Yield a text as a JSON string."""
    import orjson

    yield '"'
    yield from converted(pieces_of(text), lambda piece: orjson.dumps(piece)[1:-1].decode())
    yield '"'


def yaml_pieces(document: dict[str, Any], *, explicit: bool) -> Iterator[str]:
    """Yield a document as YAML, in the same way."""
    head, items, tail = _opened(document, lambda value: _yaml(value, explicit=explicit), "- ", "\n")
    yield head
    for item in items:
        marks = _Marks("", _yaml_quoted)
        yield from marks.filled(_yaml([marks.put(item, MAX_FOLDED)], explicit=False))
        del item, marks
    yield tail


def _yaml(value: Any, *, explicit: bool) -> str:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, explicit_start=explicit)
    return text


# Characters that end lines in YAML, or that it escapes, and that JSON leaves as they are.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def _yaml_quoted(text: LongText) -> Iterator[str]:
    def escaped(piece: str) -> str:
        return _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", piece)

    return converted(json_quoted(text), escaped)


def csv_pieces(head: Sequence[str], rows: Iterable[list[Any]]) -> Iterator[str]:
    """Yield a line of names, if any, and a line for each row."""
    from mq.client.operations.csv_text import csv_text

    if head:
        yield csv_text([head])
    for row in rows:
        marks = _Marks("", _csv_quoted)
        yield from marks.filled(csv_text([marks.put(row)]))
        del row, marks


_QUOTED_IN_CSV = re.compile('[,"\r\n]').search


def _csv_quoted(text: LongText) -> Iterator[str]:
    quote = '"' if any(map(_QUOTED_IN_CSV, text)) else ""
    yield quote
    yield from converted(text, lambda piece: piece.replace('"', '""'))
    yield quote


class _Marks:
    """Random words that replace the long texts of an item while it is formatted.

    The sender of the other texts cannot guess them.
    """

    def __init__(self, quote: str, write: Callable[[LongText], Iterator[str]]) -> None:
        """`quote` surrounds the formatted word, `write` yields the pieces of a text."""
        self._quote = quote
        self._write = write
        self._word = ""
        self._texts: list[LongText] = []

    def put(self, item: Any, least: int = 0) -> Any:
        """Return the item, a dict or a list, with marks for its long texts of at least `least`
        characters."""
        if isinstance(item, dict):
            return {key: self._mark(value, least) for key, value in item.items()}
        if isinstance(item, list):
            return [self._mark(value, least) for value in item]
        return item

    def _mark(self, value: Any, least: int) -> Any:
        if not isinstance(value, LongText):
            return value
        if least and not value.is_longer_than(least):
            return str(value)
        self._word = self._word or _word()
        self._texts.append(value)
        return self._word

    def filled(self, text: str) -> Iterator[str]:
        """Yield the pieces of the formatted item, with the long texts in place of their marks."""
        if not self._texts:
            yield text
            return
        first, *others = text.split(f"{self._quote}{self._word}{self._quote}")
        yield first
        for long, after in zip(self._texts, others, strict=True):
            yield from self._write(long)
            yield after


def _word() -> str:
    import secrets

    return f"mark{secrets.token_hex(16)}"


def _opened(
    document: dict[str, Any], write: Callable[[Any], str], before: str, after: str | None = None
) -> tuple[str, Iterable[Any], str]:
    """Return the text before the items of `data`, the items, and the text after them.

    Items that are not lazy are part of the text before.
    """
    data = document["data"]
    if not isinstance(data, Mapped) or not len(data):
        if isinstance(data, Mapped):
            document = {**document, "data": []}
        return write(document), (), ""
    word = _word()
    text = write({**document, "data": [word]})
    head, tail = text.split(f"{before}{word}{before if after is None else after}")
    return head, data, tail
