"""The data source `rocketmq-store`: the messages in the files of a store, without a broker.

The store is ours or Java's. Its broker must be stopped, or it is a snapshot; of a store in use the
newest messages may be missing. The driver and all executors need it at the same path.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mq.pipeline.columns import default_schema
from mq.pipeline.decoder import Decoder
from mq.pipeline.errors import SchemaError
from mq.pipeline.store_damage import checked_files
from mq.pipeline.store_files import gaps, split
from mq.pipeline.store_options import StoreOptions, parse_store_options
from mq.pipeline.store_reading import DAMAGE_SCHEMA, StorePartition, read, read_damage, report
from mq.pipeline.store_times import between


class RocketMQStoreDataSource(DataSource):
    """The messages in a commit log's files as a table, or the damage in them."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-store"

    def schema(self) -> str:
        options = self._options()
        if options.report:
            return DAMAGE_SCHEMA
        return default_schema(properties_as_map=options.include_properties)

    def reader(self, schema: StructType) -> DataSourceReader:
        return StoreReader(self._options(), schema)

    def _options(self) -> StoreOptions:
        return parse_store_options(self.options)


class StoreReader(DataSourceReader):
    """Reads a store."""

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        """Raises SchemaError for unknown columns."""
        if options.report is None:
            Decoder(schema)
        elif schema.names != [column.split()[0] for column in DAMAGE_SCHEMA.split(", ")]:
            raise SchemaError(f"the columns of a report of damage are {DAMAGE_SCHEMA}")
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = self._options
        files = checked_files(options.paths)
        damage = gaps(files)
        if options.report:
            chosen = files
        else:
            for each in damage:
                report(options, each)
            chosen = between(files, options.starting_timestamp, options.ending_timestamp)
        found = [part for file in chosen for part in split(file, options.part_bytes)]
        made = [StorePartition((part,)) for part in found] or [StorePartition(())]
        made[0].damage = tuple(damage)
        return list(made)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StorePartition)
        if self._options.report:
            return read_damage(self._options, partition)
        return read(self._options, self._schema, partition)
