"""Pacing: limits the rate of rows."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    _Rows = TypeVar("_Rows", pa.Array, pa.RecordBatch)

_BATCHES_PER_SECOND = 10
_BATCH_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Pace:
    """Computes pauses, so that no more than `rate` rows pass per second."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._due = clock()

    def wait_for(self, rows: int) -> float:
        """Return the seconds until this many further rows may pass. Unused capacity is not saved
        up.
        """
        now = self._clock()
        self._due = max(self._due, now) + rows / self._rate
        return max(0.0, self._due - now)


def paced(frame: "DataFrame", column: str, rate: float) -> "DataFrame":
    """Limit each task of the frame to `rate` rows per second, in the same order.

    `column` is any of its columns; the values pass through Python. Read the frame inside
    `small_batches`: rows wait in batches.
    """

    def pass_on(batches: Any) -> Any:
        from mq.pipeline.jobs.pacing import Pace, pass_slowly

        return pass_slowly(batches, Pace(rate))

    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:  # Spark 4.0, whose arrow_udf needs pandas
        return frame.mapInArrow(pass_on, frame.schema)
    pass_on.__annotations__ = _annotations()
    kind = frame.schema[column].dataType
    slow = arrow_udf(pass_on, kind).asNondeterministic()  # type: ignore[call-overload]
    return frame.withColumn(column, slow(column))


def pass_slowly(batches: "Iterator[_Rows]", pace: Pace) -> "Iterator[_Rows]":
    """Delay the batches of a task, of one column or of all."""
    for batch in batches:
        time.sleep(pace.wait_for(len(batch)))
        yield batch


@contextmanager
def small_batches(spark: "SparkSession", rate: float | None) -> Iterator[None]:
    """Let rows pass in batches of a tenth of a second while the block runs; unchanged for None."""
    before = spark.conf.get(_BATCH_SETTING)
    assert before is not None
    if rate is not None:
        size = min(int(before), max(1, int(rate / _BATCHES_PER_SECOND)))
        spark.conf.set(_BATCH_SETTING, size)
    try:
        yield
    finally:
        spark.conf.set(_BATCH_SETTING, before)


def _annotations() -> dict[str, Any]:
    """Annotations by which Spark recognizes a function that gets all batches of a task."""
    import pyarrow as pa

    return {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
