"""Result of a job: tables, failures, and for some jobs a page.

It is sent as JSON from the driver to the submitter of the job.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mq.client.operations.columns import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Shape:
    """A kind of table that a job returns. `name` is one word, `title` describes its rows."""

    name: str
    title: str
    columns: tuple[Column, ...]

    def of(self, rows: Iterable[Sequence[Any]]) -> "Table":
        """Return a table of these rows, whose values are in the order of the columns."""
        return Table(self, [tuple(row) for row in rows])

    def collect(self, frame: "DataFrame") -> "Table":
        """Return a table of the frame's columns that have the shape's names, in the frame's order.

        The driver must have memory for all rows: order and limit the frame before.
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


def damage_report(count: int, what_became: str) -> list[str]:
    """Return the failure of this many bodies and what was done with them; none for 0."""
    return [f"{count} bodies cannot be decompressed, and are {what_became}"] * bool(count)


@dataclass(frozen=True)
class JobResult:
    """What a job has done.

    `failures` are the parts that it could not do, one line each: with any, the job is partly done.
    `notes` are further remarks. `page` is a self-contained HTML page, of a job that reports.
    """

    tables: Sequence[Table] = ()
    failures: Sequence[str] = ()
    notes: Sequence[str] = ()
    page: str = field(default="", repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return a form that JSON can represent."""
        return {
            "tables": [{"name": table.shape.name, "rows": table.rows} for table in self.tables],
            "failures": list(self.failures),
            "notes": list(self.notes),
            "page": self.page,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], shapes: Sequence[Shape]) -> "JobResult":
        """Read what `to_json` returned, for a job with these shapes. Raises KeyError for another
        job's.
        """
        by_name = {shape.name: shape for shape in shapes}
        return cls(
            tables=[by_name[table["name"]].of(table["rows"]) for table in value["tables"]],
            failures=value["failures"],
            notes=value["notes"],
            page=value["page"],
        )
