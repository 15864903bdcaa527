"""Filter classes: from a text to something that is called for each message. In the sandbox."""

import __future__

import inspect
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from mq.protocol.stored_message import StoredMessage

# A source is cut out of a module of its user's, whose imports are not with it: what annotations of
# a class name need not be there.
_ANNOTATIONS = __future__.annotations.compiler_flag
FILE = "<filter>"  # what the source is called in tracebacks
Match = Callable[[StoredMessage], Any]


class FilterContext(NamedTuple):
    """What a class is told beside the message (Java: FilterContext)."""

    consumer_group: str


class BadClass(Exception):
    """A class that cannot be used; the text has line and reason."""


def load(group: str, name: str, source: str) -> Match:
    """Make the filter of a class. Raises BadClass."""
    space: dict[str, Any] = {"__name__": "filter", "__builtins__": __builtins__}
    try:
        exec(compile(source, FILE, "exec", _ANNOTATIONS, dont_inherit=True), space)
    except SyntaxError as error:
        raise BadClass(f"line {error.lineno}: {error.msg}") from None
    except MemoryError:
        raise
    except BaseException as error:
        raise BadClass(describe(error)) from None
    kind = space.get(name.rpartition(".")[2])
    if not isinstance(kind, type):
        raise BadClass(f"there is no class {name.rpartition('.')[2]} in it")
    match = getattr(kind, "match", None)
    if not callable(match):
        raise BadClass(f"class {name} has no match(message)")
    try:
        bound: Callable[..., Any] = kind().match
        wants_context = _wants_context(bound)
    except MemoryError:
        raise
    except BaseException as error:
        raise BadClass(describe(error)) from None
    if not wants_context:
        return bound
    context = FilterContext(group)
    return lambda message: bound(message, context)


def _wants_context(match: Callable[..., Any]) -> bool:
    signature = inspect.signature(match)
    for arguments, wants in (((None,), False), ((None, None), True)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return wants
    raise TypeError("match takes (message) or (message, context)")


def describe(error: BaseException) -> str:
    """An error of the class: where in its source, and what."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == FILE]  # fmt: skip
    where = f"line {lines[-1]}: " if lines else ""
    try:
        text = str(error)
    except BaseException:  # it is the class's own
        text = "an error that cannot be shown"
    return f"{where}{type(error).__name__}: {text}"
