"""A function fits on a screen, and a module can be read as a whole."""

import ast
import functools
from collections.abc import Iterator

import pytest

from tests.source_tree import ALLOWED, ROOT, sources, tree_of

MOST_LINES = 60  # of a function, from `def` to its end, with its docstring
MOST_LINES_OF_MODULE = 600  # most have 60 to 300
# Code that runs for every message: it avoids calls (CONTRIBUTING.md).
HOT = {
    "protocol/record_codec.py:_decode": "each record read",
    "daemons/broker/store/log/append.py:Appender.append": "each message stored",
    "daemons/broker/store/log/append.py:Appender.append_batch": "each batch stored",
    "daemons/broker/send/send_handlers.py:SendHandlers.send": "each send",
    "daemons/broker/send/send_handlers.py:SendHandlers.batch": "each send of a batch",
    "daemons/broker/filters/properties.py:PropertyExpression._select_on": "each message that a "
    "filter checks in Python: joining ranges in a separate function took 33 ns of 567 more",
}


def parts() -> list[str]:
    """The folders that the rule applies to: all but tests."""
    return [*ALLOWED, "bench"]


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, int]]:
    """Name and lines of each function, with its enclosing classes and functions."""
    for node in ast.iter_child_nodes(tree):
        name = within
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{node.name}" if within else node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield name, node.end_lineno - node.lineno + 1
        yield from functions(node, name)


@functools.cache
def long_functions() -> dict[str, int]:
    """Line counts of functions that are too long, by `path:name`."""
    return {
        f"{source.relative_to(ROOT)}:{name}": lines
        for part in parts()
        for source in sources(part)
        for name, lines in functions(tree_of(source))
        if lines > MOST_LINES
    }


def test_only_measured_hot_paths_have_long_functions() -> None:
    assert {name: n for name, n in long_functions().items() if name not in HOT} == {}


@pytest.mark.parametrize("function", HOT)
def test_every_excepted_function_is_long(function: str) -> None:
    assert function in long_functions(), "take it off the list"


def test_no_module_is_too_long() -> None:
    lengths = {
        str(source.relative_to(ROOT)): source.read_text("utf-8").count("\n")
        for part in parts()
        for source in sources(part)
    }
    assert lengths["cli/command_table.py"] > 300  # shows that this file was read
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_OF_MODULE} == {}


def test_lines_count_from_the_def_and_inner_functions_have_qualified_names() -> None:
    code = "@mark\nclass C:\n  @mark(\n    1\n  )\n  async def f():\n    '''a\n    b'''\n"
    code += "    if f:\n      def g():\n        pass\n    return g\n"
    assert list(functions(ast.parse(code))) == [("C.f", 7), ("C.f.g", 2)]
