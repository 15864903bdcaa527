"""The data source `rocketmq-store`: the messages in the files of a store, without a broker.

The store is ours or Java's. Its broker must be stopped, or it is a snapshot; of a store in use the
newest messages may be missing. The driver and all executors need it at the same path.

Each read task selects the records of its split of the log. Records that consumers would not see are
left out: half messages and rollbacks of transactions, and records in system topics, unless those
topics are requested by name. A delayed message is in the log twice, and is read when it occurs the
second time, after its delay. Topics that were deleted since are still in the log.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mq.pipeline.columns import default_schema
from mq.pipeline.decoder import Decoder
from mq.pipeline.errors import DamagedStore, SchemaError
from mq.pipeline.property_columns import parts
from mq.pipeline.records import Records
from mq.pipeline.store_damage import checked_files
from mq.pipeline.store_files import Damage, FileSplit, LogFile, gaps, split
from mq.pipeline.store_options import StoreOptions, parse_store_options
from mq.pipeline.store_scan import PartScan
from mq.protocol.flags import SysFlag
from mq.protocol.names import is_system_topic
from mq.protocol.record import AT, IPV6_EXTRA, MAGIC_V1, MAGIC_V2, shift, struct_of

log = logging.getLogger(__name__)

DAMAGE_SCHEMA = "file string, position bigint, size bigint, reason string"
_DAMAGE_ARROW = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int64()),
        ("reason", pa.string()),
    ]
)

# Messages are in the order in which they were stored, but clocks may be set by up to this.
_CLOCK_SLIP_MS = 3_600_000

_HEAD = struct_of("magic", "physical_offset", "sys_flag")
_READ = AT["store_timestamp"] + IPV6_EXTRA + 8  # bytes, up to the end of the time


@dataclass
class StorePartition(InputPartition):
    """The splits that one task reads, and the damage found when the query was planned."""

    parts: tuple[FileSplit, ...]
    damage: tuple[Damage, ...] = ()


class RecordFilter:
    """Selects records."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._pattern = re.compile(options.topic_pattern or ".*")
        self._wanted: dict[str, bool] = {}

    def choose(self, records: Records) -> Records:
        wanted = self._topics(records)
        if not self._options.include_prepared:
            wanted = _and(wanted, records.sys_flag & SysFlag.TRANSACTION_PREPARED == 0)
        begin, end = self._options.starting_timestamp, self._options.ending_timestamp
        if begin is not None:
            wanted = _and(wanted, records.store_timestamp() >= begin)
        if end is not None:
            wanted = _and(wanted, records.store_timestamp() < end)
        return records if wanted is None else records.only(wanted)

    def _topics(self, records: Records) -> npt.NDArray[np.bool_] | None:
        """Return for each record whether its topic is selected; None if all are."""
        names = parts(records.buffer, pa.binary(), records.topic_at, records.topic_length)
        few = names.dictionary_encode()
        wanted = np.array([self._is_wanted(raw) for raw in few.dictionary.to_pylist()], np.bool_)
        return None if wanted.all() else wanted[few.indices.to_numpy()]

    def _is_wanted(self, raw: bytes) -> bool:
        name = raw.decode("utf-8", "replace")
        if self._options.topics:
            return name in self._options.topics
        return self._pattern.fullmatch(name) is not None and not is_system_topic(name)


def _and(
    wanted: npt.NDArray[np.bool_] | None, also: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_] | None:
    if wanted is None:
        return None if also.all() else also
    return wanted & also


def read(
    options: StoreOptions, schema: StructType, partition: StorePartition
) -> Iterator[pa.RecordBatch]:
    """Return the messages of a partition. If damage is an error, raises DamagedStore, and
    DamagedBody for a body that cannot be decompressed.
    """
    decoder = Decoder(schema, fail_on_damage=options.fail_on_damage)
    selection = RecordFilter(options)
    for part in partition.parts:
        for found in PartScan(part, verify=options.verify):
            if isinstance(found, Damage):
                report(options, found)
            else:
                yield from decoder.tables(selection.choose(found), options.broker_name)


def read_damage(options: StoreOptions, partition: StorePartition) -> Iterator[pa.RecordBatch]:
    """Return the damage of a partition as a table; every body is compared with its checksum."""
    damage = list(partition.damage)
    for part in partition.parts:
        damage += [found for found in PartScan(part) if isinstance(found, Damage)]
    yield _table(damage)


def report(options: StoreOptions, damage: Damage) -> None:
    """Raise DamagedStore, or log it, as failOnDamage says. A truncated end of the log is only
    logged.
    """
    if options.fail_on_damage and not damage.is_end:
        raise DamagedStore(str(damage))
    log.warning("%s", damage)


def _table(damage: Sequence[Damage]) -> pa.RecordBatch:
    columns = [
        pa.array([each.path for each in damage], pa.string()),
        pa.array([each.position for each in damage], pa.int64()),
        pa.array([each.size for each in damage], pa.int64()),
        pa.array([each.reason for each in damage], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_DAMAGE_ARROW)


def between(files: Sequence[LogFile], begin: int | None, end: int | None) -> list[LogFile]:
    """Return the files that may have messages stored from `begin` on and before `end` (ms since
    1970).

    The first record of each file decides; a file without a readable one is kept. Raises OSError.
    """
    if begin is None and end is None:
        return list(files)
    first = [_first_time(file) for file in files]
    kept = []
    for number, file in enumerate(files):
        own = first[number]
        following = first[number + 1] if number + 1 < len(files) else None
        if end is not None and own is not None and own - _CLOCK_SLIP_MS >= end:
            continue
        if begin is not None and following is not None and following + _CLOCK_SLIP_MS < begin:
            continue
        kept.append(file)
    return kept


def _first_time(file: LogFile) -> int | None:
    with open(file.path, "rb") as opened:
        head = opened.read(_READ)
    if len(head) < _READ:
        return None
    magic, physical, sys_flag = _HEAD.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or physical != file.start:
        return None
    at = AT["store_timestamp"] + shift("store_timestamp", sys_flag)
    return int.from_bytes(head[at : at + 8], "big") or None


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
