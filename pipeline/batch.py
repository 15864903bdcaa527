"""Topics as tables: what is in them when the query is planned."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mq.pipeline.cluster import Cluster
from mq.pipeline.decoder import Decoder
from mq.pipeline.offsets import EARLIEST
from mq.pipeline.options import ReadOptions
from mq.pipeline.planning import ending_offsets, ranges, split, starting_offsets
from mq.pipeline.reading import Partition, read


class BatchReader(DataSourceReader):
    """Reads what is in the topics when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises SchemaError for columns that messages have not."""
        Decoder(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with Cluster(options) as cluster:
            bounds = cluster.bounds(cluster.topics())
            start = starting_offsets(options, cluster, bounds, EARLIEST)
            whole = ranges(start, ending_offsets(options, cluster, bounds))
            cluster.try_pulls(whole)
        whole = split(whole, options.min_partitions)
        return [Partition((each,)) for each in whole] or [Partition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Partition)
        return read(self._options, self._schema, partition)
