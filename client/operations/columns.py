"""Columns of results: the name, title and kind of each value that a command or page shows.

A dataclass of results declares the column of each field once:

    @dataclass(frozen=True, slots=True)
    class QueueStatus:
        broker_name: str = text("brokerName", "Broker").field()
        queue_id: int = number("queueId", "Queue").field()

Tables, JSON and CSV of commands, and the tables of the console, derive from it (`columns_of`,
`row_of`, `document_of`).
"""

import dataclasses
from enum import StrEnum
from typing import Any

_KEY = "column"


class Kind(StrEnum):
    """The kind of a column's values."""

    TEXT = "text"
    NUMBER = "number"
    TIME = "time"  # milliseconds since the epoch; 0 and None mean unknown
    FLAG = "flag"  # a boolean, displayed as * or nothing
    NESTED = "nested"  # an object or a list, only in JSON


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column: `name` is the JSON field (camelCase, as on the wire), `title` the table heading.

    A column with an empty `title` is not in tables, which have little room. Any value may be None
    if it is unknown.
    """

    name: str
    title: str
    kind: Kind = Kind.TEXT

    def field(self, **options: Any) -> Any:
        """Return a dataclass field that is shown in this column; `options` are those of
        dataclasses.field."""
        return dataclasses.field(metadata={_KEY: self}, **options)


def text(name: str, title: str) -> Column:
    """Return a column of text."""
    return Column(name, title)


def number(name: str, title: str) -> Column:
    """Return a right-aligned column of numbers."""
    return Column(name, title, Kind.NUMBER)


def time(name: str, title: str) -> Column:
    """Return a column of points in time."""
    return Column(name, title, Kind.TIME)


def flag(name: str, title: str) -> Column:
    """Return a column of booleans."""
    return Column(name, title, Kind.FLAG)


def nested(name: str, title: str) -> Column:
    """Return a JSON field that holds an object or a list."""
    return Column(name, title, Kind.NESTED)


_known: dict[type, dict[str, Column]] = {}


def _fields(kind: type) -> dict[str, Column]:
    """Return the columns of a dataclass by field."""
    found = _known.get(kind)
    if found is None:
        fields = [field for field in dataclasses.fields(kind) if _KEY in field.metadata]
        found = _known[kind] = {field.name: field.metadata[_KEY] for field in fields}
    return found


def columns_of(kind: type) -> tuple[Column, ...]:
    """Return the columns of a dataclass, in the order of its fields."""
    return tuple(_fields(kind).values())


def document_of(item: Any) -> dict[str, Any]:
    """Return the values of an instance by the names of its columns, as in JSON."""
    return {column.name: getattr(item, name) for name, column in _fields(type(item)).items()}


def row_of(item: Any) -> tuple[Any, ...]:
    """Return the values of an instance in its columns."""
    return tuple(getattr(item, name) for name in _fields(type(item)))
