"""Decoder of replies: Arrow record batches of the columns that a query wants."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from mq.pipeline.columns import COLUMNS, FURTHER_COLUMNS, Context, find_property, is_compressed
from mq.pipeline.records import Integers, Records
from mq.pipeline.tables import Table
from mq.protocol.compression import decompress
from mq.protocol.properties import PropertyKey

# Four compressed megabytes can be gigabytes of bodies: a batch ends when it has so many bytes.
_BATCH_BYTES = 32 * 1024 * 1024


class Decoder:
    """Makes record batches for one schema."""

    def __init__(self, schema: StructType, tags: Sequence[str] = ()) -> None:
        """`tags` are those that are wanted, all if there are none: brokers compare hashes only.

        Raises SchemaError for what messages do not have.
        """
        self._table = Table(schema, {**COLUMNS, **FURTHER_COLUMNS})
        self._wants_body = any(name.lower() == "body" for name in schema.names)
        self._tags = pa.array(tags, pa.string())

    def batches(
        self, buffer: bytearray, positions: Integers, broker_name: str
    ) -> Iterator[pa.RecordBatch]:
        """The messages whose records lie at these positions, which ascend. None makes no batch.

        Raises RemoteProtocolError for damaged records and bodies that cannot be decompressed.
        """
        yield from self.tables(Records(buffer, positions), broker_name)

    def tables(self, records: Records, broker_name: str | None) -> Iterator[pa.RecordBatch]:
        """Like `batches`, of records that have been looked at already."""
        if len(self._tags):
            found = find_property(records, Context(broker_name), PropertyKey.TAGS)
            wanted = pc.is_in(found, value_set=self._tags)
            if not pc.all(wanted).as_py():
                records = records.only(wanted.to_numpy(zero_copy_only=False))
        if not len(records):
            return
        if self._wants_body and is_compressed(records).any():
            for some, bodies in _decompressed(records):
                yield self._batch(some, Context(broker_name, bodies))
        else:
            yield self._batch(records, Context(broker_name, None))

    def _batch(self, records: Records, context: Context) -> pa.RecordBatch:
        return self._table.batch(len(records), lambda make: make(records, context))


def _decompressed(records: Records) -> Iterator[tuple[Records, list[bytes]]]:
    """The records in parts that are not too large, each part with its bodies."""
    begins = records.body_at.tolist()
    ends = (records.body_at + records.body_length).tolist()
    flags = records.sys_flag.tolist()
    chosen = np.zeros(len(records), np.bool_)
    bodies: list[bytes] = []
    size = 0
    view = memoryview(records.buffer)
    for index, (begin, end, flag) in enumerate(zip(begins, ends, flags, strict=True)):
        body = bytes(decompress(view[begin:end], flag)) if end > begin else b""
        bodies.append(body)
        chosen[index] = True
        size += len(body)
        if size >= _BATCH_BYTES:
            yield records.only(chosen), bodies
            chosen[:] = False
            bodies, size = [], 0
    if bodies:
        yield records.only(chosen), bodies
