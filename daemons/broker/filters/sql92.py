"""SQL92 filters: from the text of a consumer to a test of a message's properties.

The language is defined in sql92.lark. lark is imported, and its parser built, when the first
expression arrives: a broker without such consumers does not pay for it.
"""

from collections import OrderedDict
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from mq.daemons.broker.filters.errors import FilterSyntaxError, NotComparableError
from mq.daemons.broker.filters.match_cache import MatchCache
from mq.daemons.broker.filters.program import programs

if TYPE_CHECKING:
    from lark import Lark
    from lark.exceptions import UnexpectedInput

    from mq.daemons.broker.filters.evaluation import Evaluate
    from mq.daemons.broker.filters.nodes import Form, Node

# A parser reads ten thousand characters in 0.15 s. Java's only limit is that of a frame.
MOST_CHARACTERS = 16 * 1024
# At each -- the lexer searches for the end of a line comment, perhaps through the whole text.
_MOST_DASHES = 500
# Limit of remembered expressions, including invalid ones: a refused client sends its expression
# again.
_MOST_REMEMBERED = 1000
# Limit of remembered expressions with more than _LONG characters: a parsed one takes two hundred
# bytes per character.
_LONG = 1000
_MOST_LONG_REMEMBERED = 32

# Names of the grammar's terminals in errors, if their own names are unsuitable.
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
    """A parsed filter.

    Attributes:
        text: the expression.
        memory: its cached results.
        program: the compiled filter of the native path; None if there is none.
    """

    __slots__ = ("__weakref__", "_evaluate", "memory", "program", "text")

    def __init__(self, text: str, evaluate: "Evaluate", form: "Form", names: Iterable[str]) -> None:
        """``names`` are the properties in the expression."""
        self.text = text
        self.program = programs.compile(names, form)
        self.memory = MatchCache(names, self.matches)
        self._evaluate = evaluate

    def matches(self, properties: bytes | memoryview) -> bool:
        """Whether a message matches, by its properties as stored.

        Never raises: a message that the filter cannot compare does not match.
        """
        try:
            return self._evaluate(b"\x02" + properties) is True
        except NotComparableError:
            return False

    def __repr__(self) -> str:
        return f"<filter {self.text}>"


class Invalid:
    """A text that is not a valid expression, and the reason."""

    __slots__ = ("__weakref__", "reason")

    def __init__(self, reason: str) -> None:
        self.reason = reason


Read = Sql92Filter | Invalid


class _Cache:
    """Parsed expressions by text: the last ones, and all that are still referenced elsewhere."""

    def __init__(self) -> None:
        self.short: OrderedDict[str, Read] = OrderedDict()
        self.long: OrderedDict[str, Read] = OrderedDict()
        self._alive: WeakValueDictionary[str, Read] = WeakValueDictionary()

    def get(self, text: str) -> Read | None:
        last, _ = self._last(text)
        if (found := last.get(text)) is not None:
            last.move_to_end(text)
            return found
        return self._alive.get(text)

    def put(self, text: str, read: Read) -> None:
        last, most = self._last(text)
        last[text] = self._alive[text] = read
        if len(last) > most:
            last.popitem(last=False)

    def _last(self, text: str) -> tuple[OrderedDict[str, Read], int]:
        if len(text) <= _LONG:
            return self.short, _MOST_REMEMBERED
        return self.long, _MOST_LONG_REMEMBERED


_cache = _Cache()


def read_filter(text: str) -> Sql92Filter:
    """Parse an expression, in this thread.

    Raises:
        FilterSyntaxError: it is invalid; the text says in one line where and why.
    """
    return valid(known_filter(text) or finish(text, parse(text)))


def known_filter(text: str) -> Read | None:
    """The result of parsing this text, if it was parsed before."""
    if len(text) > MOST_CHARACTERS:
        return Invalid(f"the filter has {len(text)} characters, and {MOST_CHARACTERS} are allowed")
    if text.count("--") > _MOST_DASHES:
        return Invalid(f"the filter has more than {_MOST_DASHES} occurrences of --")
    return _cache.get(text)


def valid(read: Read) -> Sql92Filter:
    """The filter. Raises FilterSyntaxError if the expression is invalid."""
    if isinstance(read, Invalid):
        raise FilterSyntaxError(read.reason)
    return read


def parse(text: str) -> "Node | Invalid":
    """The first, long part of parsing. It may run in a thread, one at a time."""
    from lark.exceptions import UnexpectedInput

    try:
        root: Node = _parser().parse(text)  # type: ignore[assignment]
    except FilterSyntaxError as error:
        return Invalid(str(error))
    except UnexpectedInput as error:
        return Invalid(_explain(text, error))
    return root


def finish(text: str, parsed: "Node | Invalid") -> Read:
    """The second part of parsing, in the thread of the event loop."""
    read: Read
    if isinstance(parsed, Invalid):
        read = parsed
    else:
        read = Sql92Filter(text, parsed.evaluate, parsed.form, parsed.names)
    _cache.put(text, read)
    return read


@cache
def _parser() -> "Lark":
    from importlib.resources import files

    from lark import Lark

    from mq.daemons.broker.filters.nodes import Builder

    grammar = files(__package__).joinpath("sql92.lark").read_text("utf-8")
    # lark could cache a parser in a pickle, but building one takes less than a tenth of a second.
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=Builder())


def _explain(text: str, error: "UnexpectedInput") -> str:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    line, column = error.line, error.column
    expected: set[str] = set()
    if isinstance(error, UnexpectedCharacters):
        found = text[error.pos_in_stream or 0]
        if found == "'":
            return f"line {line}, column {column}: the string that starts here does not end"
        expected = error.allowed or expected
    elif isinstance(error, UnexpectedToken):
        found = error.token[:40]
        expected = error.accepts or error.expected
        if error.token.type == "$END":
            found = ""
            line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    words = ", ".join(sorted({_NAMES.get(name, name.lstrip("_")) for name in expected}))
    there = repr(str(found)) if found else "the end"
    return f"line {line}, column {column}: {there} is unexpected; expected one of {words}"
