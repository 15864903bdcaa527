"""The test of each request that the daemons answer.

A test declares it: `@answered.by_broker(RequestCode.PULL_MESSAGE)`. The part of docs/protocol.md
between START and END is generated from these declarations: after a change run `python -m
tests.answered` in the root of the project. tests/test_answered.py compares it with the daemons.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

from mq.protocol.codes import AnyCode, RequestCode, SnodeCode

START = "<!-- generated from here on: python -m tests.answered -->\n"
END = "<!-- generated up to here: python -m tests.answered -->\n"
PATH = Path("docs/protocol.md")

_TESTS = Path(__file__).parent
_CODES = {kind.__name__: kind for kind in (RequestCode, SnodeCode)}

_Test = TypeVar("_Test")


def _shows(*codes: AnyCode) -> Callable[[_Test], _Test]:
    """Mark a test that shows the answers to these requests."""
    return lambda test: test


by_broker = by_name_server = by_controller = by_filter_server = by_snode = _shows
by_broker_of_snodes = _shows  # a broker on a connection opened by a snode


@cache
def tables() -> Mapping[str, Mapping[AnyCode, str]]:
    """Return the file and name of each code's test, by marker; files are relative to tests/.

    Raises ValueError for a code with two tests.
    """
    found: dict[str, dict[AnyCode, str]] = {}
    for path in sorted(_TESTS.glob("**/test_*.py")):
        source = path.read_text(encoding="utf-8")
        for marker, code, name in _marks(source) if "\n@answered." in source else ():
            table = found.setdefault(marker, {})
            test = f"{path.relative_to(_TESTS)}::{name}"
            if table.setdefault(code, test) != test:
                raise ValueError(f"{code.name} has two tests, {table[code]} and {test}")
    return found


def _marks(source: str) -> Iterator[tuple[str, AnyCode, str]]:
    """Marker, code and test."""
    tests = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    for test in tests:
        for mark in test.decorator_list:
            match mark:
                case ast.Call(func=ast.Attribute(ast.Name("answered"), marker), args=codes):
                    for code in codes:
                        assert isinstance(code, ast.Attribute) and isinstance(code.value, ast.Name)
                        yield marker, _CODES[code.value.id][code.attr], test.name


def text() -> str:
    """The generated part of the document."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for title, marker in (
        ("A broker", "by_broker"),
        ("A name server", "by_name_server"),
        ("A controller", "by_controller"),
        ("A filter server", "by_filter_server"),
        ("A snode", "by_snode"),
        ("A broker, on a connection that a snode has opened, besides", "by_broker_of_snodes"),
    ):
        yield f"{title} answers:\n"
        yield "| code | name | releases | test |"
        yield "|---|---|---|---|"
        for code, test in sorted(tables()[marker].items()):
            path, _, name = test.partition("::")
            yield f"| {int(code)} | {code.name} | {code.release or 'all'} | `{path}` {name} |"
        yield ""


def write(path: Path = PATH) -> None:
    """Write the tables to the document at `path`, between START and END."""
    before, start, rest = path.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise SystemExit(f"{path} lacks one of the lines {START!r} and {END!r}")
    path.write_text(before + START + text() + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    write()
