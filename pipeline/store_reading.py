"""Read tasks on a commit log: they select records of their splits and build record batches.

Records that consumers would not see are left out: half messages and rollbacks of transactions, and
records in system topics, unless those topics are requested by name. A delayed message is in the log
twice, and is read when it occurs the second time, after its delay. Topics that were deleted since
are still in the log.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from mq.pipeline.decoder import Decoder
from mq.pipeline.errors import DamagedStore
from mq.pipeline.property_columns import parts
from mq.pipeline.records import Records
from mq.pipeline.store_files import Damage, FileSplit
from mq.pipeline.store_options import StoreOptions
from mq.pipeline.store_scan import PartScan
from mq.protocol.flags import SysFlag
from mq.protocol.names import is_system_topic

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
