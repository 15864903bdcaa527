"""Batch reads: tables of the messages that topics of TubeMQ hold when the query is planned."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mq.pipeline.offsets import EARLIEST
from mq.pipeline.planning import chosen_end, chosen_start, ranges
from mq.pipeline.tables import Table
from mq.pipeline.tube.cluster import TubeCluster
from mq.pipeline.tube.columns import COLUMNS
from mq.pipeline.tube.options import TubeReadOptions
from mq.pipeline.tube.reading import TubeTask, read


class TubeBatchReader(DataSourceReader):
    """Reads the messages that the topics hold when the query is planned."""

    def __init__(self, options: TubeReadOptions, schema: StructType) -> None:
        """Raises SchemaError for columns that messages do not have."""
        Table(schema, COLUMNS)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        with TubeCluster(self._options) as cluster:
            bounds = cluster.bounds()
        start = chosen_start(self._options, bounds, EARLIEST)
        whole = ranges(start, chosen_end(self._options, bounds))
        return [TubeTask(each) for each in whole] or [TubeTask(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TubeTask)
        return read(self._options, self._schema, partition)
