"""Base class of stream writers that get Arrow batches, for all supported releases of Spark."""

from typing import TYPE_CHECKING

from pyspark.sql import datasource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowStreamWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):  # since Spark 4.1
    ArrowStreamWriter = datasource.DataSourceStreamArrowWriter
else:

    class ArrowStreamWriter(datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter):
        """For tasks Spark 4.0 checks only whether a writer takes Arrow batches, and for commits
        only whether it is a stream writer.
        """


__all__ = ["ArrowStreamWriter"]
