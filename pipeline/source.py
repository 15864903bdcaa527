"""The data source `rocketmq`: the implementation of `format("rocketmq")` and its options.

Spark imports this module in a new process for each query that it plans. Modules that only writes
need take a tenth of a second, so writes import them; parts that Spark 4.0 and 4.1 lack are imported
when they are used.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from mq.pipeline.batch import BatchReader
from mq.pipeline.columns import default_schema
from mq.pipeline.errors import OldSpark
from mq.pipeline.options import ReadOptions, parse_options


class RocketMQDataSource(DataSource):
    """Topics of RocketMQ as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return default_schema(properties_as_map=self._options().include_properties)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            from mq.pipeline.stream import StreamReader
        except ImportError:
            raise OldSpark(
                "readStream",
                "earlier ones do not tell a source where a micro-batch begins, and messages of a "
                "broker that was unavailable would be read twice. Tables, writes and jobs work",
            ) from None
        return StreamReader(self._options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from mq.pipeline.sink import BatchWriter, check_target, refuse_overwrite
        from mq.pipeline.write_options import parse_write_options

        options = parse_write_options(self.options)
        if overwrite:
            refuse_overwrite()
        writer = BatchWriter(options, schema)
        check_target(options)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from mq.pipeline.sink import StreamWriter, check_target
        from mq.pipeline.write_options import parse_write_options

        # In the output mode "complete" each batch is the whole table, which is appended, too.
        options = parse_write_options(self.options)
        writer = StreamWriter(options, schema)
        check_target(options, in_batches=True)
        return writer

    def _options(self) -> ReadOptions:
        return parse_options(self.options)
