"""Decoder of replies: Arrow record batches of the columns that a query wants."""

from collections.abc import Iterator, Sequence
from inspect import signature

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from mq.pipeline.columns import Context, find_property, is_compressed, makers_of
from mq.pipeline.records import Integers, Records
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
        self._makers = makers_of(schema)
        # Spark 4.0 and 4.1 have no such argument: times are UTC there unless told otherwise.
        zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
        self._schema = to_arrow_schema(schema, **zone)  # type: ignore[arg-type]
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
        arrays = [
            array if array.type.equals(field.type) else array.cast(field.type)
            for field, array in zip(
                self._schema, (make(records, context) for make in self._makers), strict=True
            )
        ]
        if not arrays:  # count() needs no column
            struct = pa.array([{}] * len(records), pa.struct([]))
            return pa.RecordBatch.from_struct_array(struct)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


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
