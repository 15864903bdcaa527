"""The data source `rocketmq`: what Spark makes of `format("rocketmq")` and its options."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from mq.pipeline.batch import BatchReader
from mq.pipeline.columns import default_schema
from mq.pipeline.options import ReadOptions, parse_options
from mq.pipeline.stream import StreamReader


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
        return StreamReader(self._options(), schema)

    def _options(self) -> ReadOptions:
        return parse_options(self.options)
