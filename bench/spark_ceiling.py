"""The minimal cost of a Python data source: reads record batches that are in memory already, and
discards written ones.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

PARTITIONS = 8
BATCH_BYTES = 4 * 1024 * 1024
SCHEMA = "keys string, body binary, topic string, queueId int, queueOffset bigint"


class CeilingDataSource(DataSource):
    """`rows` rows with bodies of `size` bytes; no network, nothing decoded."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(int(self.options["rows"]), int(self.options["size"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(int(self.options["rows"]), int(self.options["size"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return Writer()


def batches(rows: int, size: int) -> Iterator[pa.RecordBatch]:
    at_once = max(1, BATCH_BYTES // (size + 100))
    bodies = pa.array([bytes(size)] * at_once, pa.binary())
    topics = pa.array(["bench"] * at_once, pa.string())
    keys = pa.nulls(at_once, pa.string())
    queues = pa.array([1] * at_once, pa.int32())
    offsets = pa.array(range(at_once), pa.int64())
    names = ["keys", "body", "topic", "queueId", "queueOffset"]
    batch = pa.RecordBatch.from_arrays([keys, bodies, topics, queues, offsets], names)
    while rows > 0:
        yield batch.slice(0, min(rows, at_once))
        rows -= at_once


class Reader(DataSourceReader):
    """Equal partitions."""

    def __init__(self, rows: int, size: int) -> None:
        self._rows = rows
        self._size = size

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(self._rows // PARTITIONS, self._size)


class Writer(DataSourceArrowWriter):
    """Discards rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class StreamReader(DataSourceStreamReader):
    """Everything in one micro-batch."""

    def __init__(self, rows: int, size: int) -> None:
        self._rows = rows
        self._size = size

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"rows": self._rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(self._rows // PARTITIONS, self._size)
