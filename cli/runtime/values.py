"""Declared options: flags, metavar, value type; and conversion of texts to values.

Typer converts with pydantic, whose import takes as long as the rest of a command (55 ms). Our
options have few types.
"""

import inspect
import types
import typing
from enum import Enum
from typing import Any


def metavar_of(option: Any, kind: Any) -> str:
    """Return the placeholder for the value of a click option; empty for a flag without a value."""
    if getattr(option, "is_flag", False):
        return ""
    if option.metavar:
        return str(option.metavar)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    return {int: "N", float: "NUMBER"}.get(kind, "TEXT")


def declarations(parameter: inspect.Parameter) -> list[str]:
    """Return the flags of a parameter; none for an argument."""
    option = typing.get_args(parameter.annotation)[1]
    # In Annotated, typer keeps the first flag in the place of a default.
    flags = [option.default, *(option.param_decls or ())]
    return [flag for flag in flags if isinstance(flag, str)]


def plain_type(annotation: Any) -> Any:
    """Return `int` for `Annotated[int | None, …]`."""
    kind = typing.get_args(annotation)[0]
    if isinstance(kind, types.UnionType):
        kind = next(member for member in kind.__args__ if member is not type(None))
    return kind


def convert(raw: Any, kind: Any) -> Any:
    """Return the value of an option, trimmed as in Java. Raises ValueError with the reason."""
    if kind is bool:
        return bool(raw)
    if typing.get_origin(kind) is list:
        return [convert(item, typing.get_args(kind)[0]) for item in raw]
    text = str(raw).strip()
    if kind is str:
        return text
    if issubclass(kind, Enum):
        for member in kind:
            if member.value == text.lower():
                return member
        raise ValueError(f"{text!r} is not one of {', '.join(member.value for member in kind)}")
    try:
        return kind(text)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise ValueError(f"{text!r} is not {noun}") from None
