"""Result of a job: tables, what it could not do, and perhaps a page.

It goes as JSON from the driver to whoever submitted the job.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = ("text", "number", "time", "flag")  # as mq.cli.show.result.Kind has them


@dataclass(frozen=True)
class Column:
    """A column: `name` is the field in JSON (camelCase), `title` heads the table.

    A time is in ms since 1970. Any value may be None where it is not known.
    """

    name: str
    title: str
    kind: str


def text(name: str, title: str) -> Column:
    """A column of text."""
    return Column(name, title, "text")


def number(name: str, title: str) -> Column:
    """A column of numbers."""
    return Column(name, title, "number")


def time(name: str, title: str) -> Column:
    """A column of points in time, in ms since 1970."""
    return Column(name, title, "time")


def flag(name: str, title: str) -> Column:
    """A column of booleans."""
    return Column(name, title, "flag")


@dataclass(frozen=True)
class Shape:
    """A kind of table that a job gives. `name` is one word, `title` says what its rows are."""

    name: str
    title: str
    columns: tuple[Column, ...]

    def of(self, rows: Iterable[Sequence[Any]]) -> "Table":
        """A table of these rows, whose values are in the order of the columns."""
        return Table(self, [tuple(row) for row in rows])

    def collect(self, frame: "DataFrame") -> "Table":
        """A table of the frame's columns that have the shape's names, in the frame's order.

        The driver must have room for all rows: order and limit the frame before.
        """
        from pyspark.sql import functions
        from pyspark.sql.types import TimestampType

        chosen = []
        for column in self.columns:
            value = functions.col(f"`{column.name}`")
            if isinstance(frame.schema[column.name].dataType, TimestampType):
                value = functions.unix_millis(value).alias(column.name)
            chosen.append(value)
        return self.of(frame.select(*chosen).collect())


@dataclass(frozen=True)
class Table:
    """Rows of a shape."""

    shape: Shape
    rows: list[tuple[Any, ...]]


def told_of_damaged(count: int, what_became: str) -> list[str]:
    """The failure of so many bodies, and what became of them; none where there are none."""
    return [f"{count} bodies cannot be decompressed, and are {what_became}"] * bool(count)


@dataclass(frozen=True)
class JobResult:
    """What a job has done.

    `failures` are the parts that it could not do, one line each: with any, the job is partly done.
    `notes` tell what to know besides. `page` is a self-contained page of HTML, of a job that
    reports.
    """

    tables: Sequence[Table] = ()
    failures: Sequence[str] = ()
    notes: Sequence[str] = ()
    page: str = field(default="", repr=False)

    def to_json(self) -> dict[str, Any]:
        """A form that JSON can carry."""
        return {
            "tables": [{"name": table.shape.name, "rows": table.rows} for table in self.tables],
            "failures": list(self.failures),
            "notes": list(self.notes),
            "page": self.page,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], shapes: Sequence[Shape]) -> "JobResult":
        """Read what `to_json` made, of a job with these shapes. Raises KeyError for another's."""
        by_name = {shape.name: shape for shape in shapes}
        return cls(
            tables=[by_name[table["name"]].of(table["rows"]) for table in value["tables"]],
            failures=value["failures"],
            notes=value["notes"],
            page=value["page"],
        )
