"""Filter classes: from a source to a function called for each message. Runs in the sandbox."""

import __future__

import inspect
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from mq.protocol.stored_message import StoredMessage

# A source is cut out of its user's module, without the imports, so class names in annotations may
# be missing.
_ANNOTATIONS = __future__.annotations.compiler_flag
FILE = "<filter>"  # the file name of the source in tracebacks
Match = Callable[[StoredMessage], Any]


class FilterContext(NamedTuple):
    """The data of a class in addition to the message (Java: FilterContext)."""

    consumer_group: str


class BadClass(Exception):
    """A class that is not usable; the text has line and reason."""


def load(group: str, name: str, source: str) -> Match:
    """Create the filter of a class. Raises BadClass."""
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
        raise BadClass(f"the source has no class {name.rpartition('.')[2]}")
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
    """An error of the class: its line in the source, and its text."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == FILE]  # fmt: skip
    where = f"line {lines[-1]}: " if lines else ""
    try:
        text = str(error)
    except BaseException:  # raised by the class itself
        text = "an error that cannot be shown"
    return f"{where}{type(error).__name__}: {text}"
