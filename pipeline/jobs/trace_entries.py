"""The entries of message traces as rows. Needs Spark and pyarrow when it is imported."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mq.client.trace.entries import (
    EndTransaction,
    MalformedTrace,
    Pub,
    SubAfter,
    TraceEntry,
    decode,
)

#: Times and costs in ms. Of kind: Pub, SubBefore, SubAfter, EndTransaction; or Malformed, with all
#: other columns null, for a trace that cannot be parsed completely.
SCHEMA = (
    "kind string, timestamp bigint, `group` string, topic string, messageId string, "
    "requestId string, cost bigint, success boolean, retryTimes int, outcome int, state string"
)
_ARROW = pa.list_(
    pa.struct(
        [
            ("kind", pa.string()),
            ("timestamp", pa.int64()),
            ("group", pa.string()),
            ("topic", pa.string()),
            ("messageId", pa.string()),
            ("requestId", pa.string()),
            ("cost", pa.int64()),
            ("success", pa.bool_()),
            ("retryTimes", pa.int32()),
            ("outcome", pa.int32()),
            ("state", pa.string()),
        ]
    )
)


def entries(traces: DataFrame) -> DataFrame:
    """Return a row for each entry in the column `body` of trace messages, with the columns of
    `SCHEMA`.
    """
    structure = ", ".join(part.replace(" ", ": ", 1) for part in SCHEMA.split(", "))
    kind = f"array<struct<{structure}>>"
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:  # Spark 4.0, whose arrow_udf needs pandas
        found = traces.select("body").mapInArrow(_decoded, f"entries {kind}")
        return found.select(f.explode("entries").alias("entry")).select("entry.*")
    decoded = arrow_udf(decode_bodies, kind)  # type: ignore[call-overload]
    return traces.select(f.explode(decoded("body")).alias("entry")).select("entry.*")


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([decode_bodies(batch.column(0))], ["entries"])


def decode_bodies(bodies: pa.Array) -> pa.Array:
    """Return the entries of each body, as a list of structures."""
    return pa.array([_entries(bytes(body.as_buffer())) for body in bodies], _ARROW)


def _entries(body: bytes) -> list[dict[str, Any]]:
    found = []
    try:
        for record in decode(body):
            found.append(_row(record))
    except MalformedTrace:
        found.append({"kind": "Malformed"})
    return found


def _row(record: TraceEntry) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": type(record).__name__,
        "timestamp": record.timestamp,
        "group": record.group,
        "messageId": record.message_id,
    }
    if isinstance(record, Pub):
        row |= {"topic": record.topic, "cost": record.cost, "success": record.success}
    elif isinstance(record, EndTransaction):
        row |= {"topic": record.topic, "state": record.state}
    elif isinstance(record, SubAfter):
        row |= {
            "requestId": record.request_id,
            "cost": record.cost,
            "success": record.success,
            "outcome": record.outcome,
        }
    else:
        row |= {"requestId": record.request_id, "retryTimes": record.retry_times}
    return row
