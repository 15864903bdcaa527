"""Batch reads: tables of the messages that topics hold when the query is planned."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mq.pipeline.cluster import Cluster
from mq.pipeline.decoder import Decoder
from mq.pipeline.offsets import EARLIEST
from mq.pipeline.options import ReadOptions
from mq.pipeline.planning import ending_offsets, ranges, split, starting_offsets
from mq.pipeline.pushdown import PushedFilters
from mq.pipeline.reading import Partition, read
from mq.protocol.tags import ALL_TAGS

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # since Spark 4.1


class _PushFilters:
    """`pushFilters` of a reader, for Spark to call if it pushes filters down.

    A Spark that does not push filters refuses readers that have the method, and a reader cannot
    know this before. Spark checks whether the method's function is that of the base class; this
    object claims that it is.
    """

    def __init__(self, reader: "BatchReader") -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: "list[Filter]") -> "Iterable[Filter]":
        return self._reader.push(filters)


class BatchReader(DataSourceReader):
    """Reads the messages that the topics hold when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises SchemaError for columns that messages do not have."""
        Decoder(schema)
        self._options = options
        self._schema = schema
        self._filters = PushedFilters()
        if hasattr(DataSourceReader, "pushFilters"):  # since Spark 4.1
            self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]

    def push(self, filters: "list[Filter]") -> "Iterable[Filter]":
        """Narrow what is pulled by filters. Returns all of them, because Spark applies them,
        too.
        """
        for each in filters:
            self._filters.add(each)
        expression = self._filters.expression()
        if expression is not None and self._options.expression == ALL_TAGS:
            self._options = replace(self._options, expression=expression)
        return filters

    def partitions(self) -> list[InputPartition]:
        options, wanted = self._options, self._filters
        with Cluster(options) as cluster:
            topics = cluster.topics()
            bounds = cluster.bounds(wanted.topics(topics))
            options = wanted.narrowed(options, topics)
            start = starting_offsets(options, cluster, bounds, EARLIEST)
            end = ending_offsets(options, cluster, bounds)
            bounds = wanted.queues(bounds)
            whole = ranges(start, {queue: end[queue] for queue in bounds})
            whole = wanted.ranges(whole, cluster, bounds)
            cluster.try_pulls(whole)
        whole = split(whole, options.min_partitions)
        return [Partition((each,)) for each in whole] or [Partition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Partition)
        return read(self._options, self._schema, partition)
