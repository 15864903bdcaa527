"""SQL92 filters: from the text of a consumer to a test of a message's properties.

The language is in sql92.lark. lark is imported, and its parser made, when the first expression
comes: a broker without such consumers pays nothing for it.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from mq.daemons.broker.filter.errors import FilterSyntaxError, NotComparableError
from mq.daemons.broker.filter.memory import Memory
from mq.daemons.broker.filter.program import programs

if TYPE_CHECKING:
    from lark import Lark
    from lark.exceptions import UnexpectedInput

    from mq.daemons.broker.filter.evaluation import Evaluate
    from mq.daemons.broker.filter.nodes import Form, Node

# A parser reads some ten thousand characters in a tenth of a second, in which the broker does
# nothing else. Java has no limit but that of a frame.
MOST_CHARACTERS = 16 * 1024
# Expressions remembered, invalid ones among them: a client that was refused asks again.
_MOST_REMEMBERED = 1000
# Of those with more characters only so many: what is read of one takes two hundred bytes for each.
_LONG = 1000
_MOST_LONG_REMEMBERED = 32

# What terminals of the grammar are called in errors, where their own name does not do.
_NAMES = {
    "STRING": "a string",
    "INTEGER": "a number",
    "FLOAT": "a number",
    "NAME": "a property",
    "TEXT_TEST": "CONTAINS, STARTSWITH, ENDSWITH",
    "$END": "the end",
    "ORDER": "'<', '<=', '>', '>='",
    "EQUAL": "'='",
    "__ANON_0": "'<>'",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "PLUS": "'+'",
    "MINUS": "'-'",
}


class Sql92Filter:
    """A filter that was read.

    Attributes:
        text: what it was read from.
        memory: what it has said of messages.
        program: the same on the native path; None where there is none.
    """

    __slots__ = ("_evaluate", "memory", "program", "text")

    def __init__(self, text: str, evaluate: "Evaluate", form: "Form", names: Iterable[str]) -> None:
        """For an expression that names these properties."""
        self.text = text
        self.program = programs.compile(names, form)
        self.memory = Memory(names, self.matches)
        self._evaluate = evaluate

    def matches(self, properties: bytes | memoryview) -> bool:
        """Whether a message is wanted, by its properties as they are stored.

        Never raises: a message that the filter cannot compare is not wanted.
        """
        try:
            return self._evaluate(b"\x02" + properties) is True
        except NotComparableError:
            return False

    def __repr__(self) -> str:
        return f"<filter {self.text}>"


def read_filter(text: str) -> Sql92Filter:
    """Read an expression.

    Raises:
        FilterSyntaxError: it is invalid; the text says in one line where and why.
    """
    if len(text) > MOST_CHARACTERS:
        raise FilterSyntaxError(
            f"the filter has {len(text)} characters, and {MOST_CHARACTERS} are allowed"
        )
    known = _read_short(text) if len(text) <= _LONG else _read_long(text)
    if isinstance(known, str):
        raise FilterSyntaxError(known)
    return known


def _read(text: str) -> Sql92Filter | str:
    """The filter, or what is wrong with it."""
    from lark.exceptions import UnexpectedInput

    try:
        root: Node = _parser().parse(text)  # type: ignore[assignment]
    except FilterSyntaxError as error:
        return str(error)
    except UnexpectedInput as error:
        return _explain(text, error)
    return Sql92Filter(text, root.evaluate, root.form, root.names)


_read_short = lru_cache(_MOST_REMEMBERED)(_read)
_read_long = lru_cache(_MOST_LONG_REMEMBERED)(_read)


@cache
def _parser() -> "Lark":
    from importlib.resources import files

    from lark import Lark

    from mq.daemons.broker.filter.nodes import Builder

    grammar = files(__package__).joinpath("sql92.lark").read_text("utf-8")
    # lark would keep a parser in a pickle; making one takes less than a tenth of a second.
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=Builder())


def _explain(text: str, error: "UnexpectedInput") -> str:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    line, column = error.line, error.column
    expected: set[str] = set()
    if isinstance(error, UnexpectedCharacters):
        found = text[error.pos_in_stream or 0]
        if found == "'":
            return f"line {line}, column {column}: the string that begins here does not end"
        expected = error.allowed or expected
    elif isinstance(error, UnexpectedToken):
        found = error.token[:40]
        expected = error.accepts or error.expected
        if error.token.type == "$END":
            found = ""
            line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    words = ", ".join(sorted({_NAMES.get(name, name.lstrip("_")) for name in expected}))
    there = repr(str(found)) if found else "the end"
    return f"line {line}, column {column}: {there} is not expected here, but one of {words}"
