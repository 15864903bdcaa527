"""The data source `tubemq`: what Spark makes of `format("tubemq")` and its options."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from mq.pipeline.errors import OldSpark
from mq.pipeline.offsets import EARLIEST
from mq.pipeline.planning import chosen_end, chosen_start, ranges
from mq.pipeline.tables import Table, default_ddl
from mq.pipeline.tube.cluster import TubeCluster
from mq.pipeline.tube.columns import COLUMNS
from mq.pipeline.tube.options import TubeReadOptions, parse_tube_options
from mq.pipeline.tube.reading import TubeTask, read


class TubeMQDataSource(DataSource):
    """Topics of TubeMQ as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "tubemq"

    def schema(self) -> str:
        self._options()
        return default_ddl(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TubeBatchReader(self._options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            from mq.pipeline.tube.stream import TubeStreamReader
        except ImportError:
            raise OldSpark(
                "readStream",
                "earlier ones do not tell a source where a micro-batch begins. Tables work",
            ) from None
        return TubeStreamReader(self._options(), schema)

    def _options(self) -> TubeReadOptions:
        return parse_tube_options(self.options)


class TubeBatchReader(DataSourceReader):
    """Reads what is in the topics when the query is planned."""

    def __init__(self, options: TubeReadOptions, schema: StructType) -> None:
        """Raises SchemaError for columns that messages have not."""
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
