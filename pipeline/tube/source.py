"""The data source `tubemq`: the implementation of `format("tubemq")` and its options.

Spark imports this module for each query that it plans with any source in Python, so modules that
only queries of TubeMQ need are imported by them.
"""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from mq.pipeline.errors import OldSpark


class TubeMQDataSource(DataSource):
    """Topics of TubeMQ as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "tubemq"

    def schema(self) -> str:
        from mq.pipeline.tables import default_ddl
        from mq.pipeline.tube.columns import COLUMNS
        from mq.pipeline.tube.options import parse_tube_options

        parse_tube_options(self.options)
        return default_ddl(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        from mq.pipeline.tube.batch import TubeBatchReader
        from mq.pipeline.tube.options import parse_tube_options

        return TubeBatchReader(parse_tube_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from mq.pipeline.tube.options import parse_tube_options

        try:
            from mq.pipeline.tube.stream import TubeStreamReader
        except ImportError:
            raise OldSpark(
                "readStream",
                "earlier ones do not tell a source where a micro-batch begins. Tables work",
            ) from None
        return TubeStreamReader(parse_tube_options(self.options), schema)
