"""Record batches with the columns that a query needs, for any kind of messages.

A table of columns names, for each column and each type (as Spark spells it), the function that
builds it; the first type is the default.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from mq.pipeline.errors import SchemaError

M = TypeVar("M")

Columns = Mapping[str, Mapping[str, M]]


def default_ddl(columns: Columns[M]) -> str:
    """Return all columns with their first types, as DDL."""
    return ", ".join(f"{name} {next(iter(makers))}" for name, makers in columns.items())


class Table(Generic[M]):
    """Builds record batches for one schema."""

    def __init__(self, schema: StructType, columns: Columns[M]) -> None:
        """Names match in any case, as in Spark.

        Raises SchemaError for a column that messages do not have, or not with that type.
        """
        self._makers = _makers_of(schema, columns)
        # Spark 4.0 and 4.1 have no such argument: their times are UTC by default.
        zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
        self._schema = to_arrow_schema(schema, **zone)  # type: ignore[arg-type]

    def batch(self, count: int, make: Callable[[M], pa.Array]) -> pa.RecordBatch:
        """Return a batch of `count` messages; `make` builds a column with a function of the
        table.
        """
        arrays = [
            array if array.type.equals(field.type) else array.cast(field.type)
            for field, array in zip(self._schema, map(make, self._makers), strict=True)
        ]
        if not arrays:  # count() needs no column
            struct = pa.array([{}] * count, pa.struct([]))
            return pa.RecordBatch.from_struct_array(struct)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _makers_of(schema: StructType, columns: Columns[M]) -> list[M]:
    known = {name.lower(): (name, makers) for name, makers in columns.items()}
    found = []
    for wanted in schema.fields:
        if wanted.name.lower() not in known:
            names = ", ".join(columns)
            raise SchemaError(f"there is no column {wanted.name}; columns are {names}")
        name, makers = known[wanted.name.lower()]
        kind = wanted.dataType.simpleString()
        if kind not in makers:
            raise SchemaError(f"column {name} cannot be {kind}; it is {' or '.join(makers)}")
        found.append(makers[kind])
    return found
