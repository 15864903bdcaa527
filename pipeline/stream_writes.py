"""The base of writers of streams that get batches of Arrow, whatever the release of Spark."""

from typing import TYPE_CHECKING

from pyspark.sql import datasource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowStreamWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):  # since Spark 4.1
    ArrowStreamWriter = datasource.DataSourceStreamArrowWriter
else:

    class ArrowStreamWriter(datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter):
        """For tasks Spark 4.0 asks only whether it is a writer that takes batches, and for commits
        only whether it is one of streams."""


__all__ = ["ArrowStreamWriter"]
