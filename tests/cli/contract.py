"""Compares the JSON output of a command with its declaration (`effects.gives`).

Every run of `mq` in the tests that prints JSON is checked here, so that the tests of a command are
also the test of its contract.
"""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from mq.cli import catalog
from mq.cli.main import load
from mq.cli.runtime import global_options
from mq.cli.runtime.effects import Columns, ResultShape, given_by
from mq.cli.show import changes_text
from mq.cli.show.output import JSON_VERSION
from mq.client.operations.columns import Column, Kind

_ENVELOPE = ["version", "command", "status", "data", "totals", "failures"]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def check(arguments: Sequence[str], out: str) -> None:
    """Raises AssertionError for JSON that does not match the declaration."""
    found = catalog.find(global_options.after(arguments))
    if found is None or not _asks_for_json(arguments):
        return
    given = given_by(load(found[0], found[1]).function)
    assert given is not None, f"{found[1]} does not declare what it gives: see effects.gives"
    chosen = "--columns" in arguments
    for document in _documents(out):
        assert list(document) == _ENVELOPE
        assert (document["version"], document["command"]) == (JSON_VERSION, found[1])
        assert isinstance(document["failures"], list)
        if "--dry-run" in arguments and "changes" in document["totals"]:
            given = ResultShape(data=changes_text.DATA)
            document["totals"].pop("changes")
        assert document["totals"].keys() <= {column.name for column in given.totals}, found[1]
        _values(given.totals, document["totals"])
        _data(given, document["data"], chosen=chosen)


def _asks_for_json(arguments: Sequence[str]) -> bool:
    given = [value for flag, value in pairwise(arguments) if flag in ("-o", "--output")]
    return given[-1:] == ["json"]


def _documents(out: str) -> Iterable[dict[str, Any]]:
    if out.startswith("{\n"):
        return [json.loads(out)]
    return [json.loads(line) for line in out.splitlines()]


def _data(given: ResultShape, data: Any, *, chosen: bool) -> None:
    shapes = [given.data] if given.data and not chosen else []
    if isinstance(given.data, str) and not chosen:
        return
    shapes += given.tables
    assert isinstance(data, list)
    for item in data:
        fitting = [
            shape
            for shape in shapes
            if not isinstance(shape, str) and _fits(shape, item, chosen=chosen)
        ]
        assert fitting, f"not declared: {list(item)}"


def _fits(shape: Columns, item: dict[str, Any], *, chosen: bool) -> bool:
    names = {column.name for column in shape}
    if not (item.keys() <= names if chosen else item.keys() == names):
        return False
    _values(shape, item)
    return True


def _values(columns: Columns, item: dict[str, Any]) -> None:
    for column in columns:
        if item.get(column.name) is not None:
            value = item[column.name]
            assert _is(column, value), f"{column.name}: {value!r} is no {column.kind.value}"


def _is(column: Column, value: Any) -> bool:
    if column.kind is Kind.TEXT:
        return isinstance(value, str)
    if column.kind is Kind.NUMBER:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if column.kind is Kind.FLAG:
        return isinstance(value, bool)
    if column.kind is Kind.TIME:
        return isinstance(value, str) and _TIME.fullmatch(value) is not None
    return True
