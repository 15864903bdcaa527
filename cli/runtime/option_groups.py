"""Options that belong together, declared once as the fields of a class.

    @option_group
    class Narrowing:
        # Which messages of a topic.
        tag: Annotated[str | None, typer.Option("--tag", …)] = None
        key: Annotated[str | None, typer.Option("--key", …)] = None

A command takes them as one keyword, `narrowing: Narrowing`. They appear in its place among the
command's options, as separate parameters.
"""

import inspect
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeGuard, TypeVar, dataclass_transform

T = TypeVar("T")

_MARK = "__option_group__"


@dataclass_transform(frozen_default=True)
def option_group(declared: type[T]) -> type[T]:
    """Make a frozen dataclass whose fields are options."""
    setattr(declared, _MARK, True)
    return dataclass(frozen=True)(declared)


def is_option_group(annotation: object) -> TypeGuard[type[Any]]:
    """Return whether a parameter is a group of options."""
    return isinstance(annotation, type) and hasattr(annotation, _MARK)


def parameters_of(group: type[Any]) -> list[inspect.Parameter]:
    """Return the options of a group as parameters of a command."""
    hints = typing.get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            item.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if item.default is MISSING else item.default,
            annotation=hints[item.name],
        )
        for item in fields(group)
    ]


def gathered(groups: Mapping[str, type[Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a command's options by its parameters' names."""
    rest = dict(values)
    made = {
        name: group(**{item.name: rest.pop(item.name) for item in fields(group)})
        for name, group in groups.items()
    }
    return rest | made


def spread(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all options by name: the inverse of `gathered`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= vars(value) if is_option_group(type(value)) else {name: value}
    return found
