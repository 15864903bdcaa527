"""Columns in the notations of Spark and Arrow."""

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

KINDS: dict[str, tuple[DataType, pa.DataType]] = {
    "binary": (BinaryType(), pa.binary()),
    "string": (StringType(), pa.string()),
    "int": (IntegerType(), pa.int32()),
    "bigint": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", "UTC")),
    "array<string>": (ArrayType(StringType()), pa.list_(pa.string())),
    "map<string,string>": (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string())),
}


def schema_of(columns: str) -> tuple[StructType, pa.Schema]:
    """The schemas of a text such as "body binary, tags string"."""
    spark, arrow = StructType(), []
    for column in columns.split(", "):
        name, kind = column.split()
        spark.add(name, KINDS[kind][0])
        arrow.append((name, KINDS[kind][1]))
    return spark, pa.schema(arrow)
