"""Decoder of pull replies: Arrow record batches of the columns that a query needs."""

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from mq.pipeline.columns import COLUMNS, FURTHER_COLUMNS, Context, find_property, is_compressed
from mq.pipeline.errors import DamagedBody
from mq.pipeline.offsets import Queue
from mq.pipeline.records import Integers, Records
from mq.pipeline.tables import Table
from mq.protocol.compression import decompress
from mq.protocol.errors import NoMemoryForBody, RemoteProtocolError
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

# Four compressed megabytes can be gigabytes of bodies: a batch ends at this many bytes.
_BATCH_BYTES = 32 * 1024 * 1024


class Decoder:
    """Builds record batches for one schema."""

    def __init__(
        self, schema: StructType, tags: Sequence[str] = (), *, fail_on_damage: bool = True
    ) -> None:
        """Args:
            tags: only messages with these tags; all if empty. Brokers compare only hashes.
            fail_on_damage: if False, bodies that cannot be decompressed are returned compressed,
                and this is logged.

        Raises SchemaError for columns that messages do not have.
        """
        self._table = Table(schema, {**COLUMNS, **FURTHER_COLUMNS})
        self._wants_body = not {"body", "bodyerror"}.isdisjoint(map(str.lower, schema.names))
        self._tags = pa.array(tags, pa.string())
        self._fail_on_damage = fail_on_damage

    def batches(
        self, buffer: bytearray, positions: Integers, broker_name: str
    ) -> Iterator[pa.RecordBatch]:
        """Return the messages whose records begin at these positions, in ascending order; without
        positions, no batch.

        Raises RemoteProtocolError for damaged records, DamagedBody for a body that cannot be
        decompressed if `fail_on_damage`.
        """
        yield from self.tables(Records(buffer, positions), broker_name)

    def tables(self, records: Records, broker_name: str | None) -> Iterator[pa.RecordBatch]:
        """Like `batches`, for records that are parsed already."""
        if len(self._tags):
            found = find_property(records, Context(broker_name), PropertyKey.TAGS)
            wanted = pc.is_in(found, value_set=self._tags)
            if not pc.all(wanted).as_py():
                records = records.only(wanted.to_numpy(zero_copy_only=False))
        if not len(records):
            return
        if self._wants_body and is_compressed(records).any():
            for some, bodies, errors in _decompressed(records):
                self._report(some, errors, broker_name)
                yield self._batch(some, Context(broker_name, bodies, errors))
        else:
            yield self._batch(records, Context(broker_name, None))

    def _batch(self, records: Records, context: Context) -> pa.RecordBatch:
        return self._table.batch(len(records), lambda make: make(records, context))

    def _report(self, records: Records, errors: list[str | None], broker_name: str | None) -> None:
        """Raise DamagedBody for the first record with an error, or log it with the number of
        errors: there may be millions.
        """
        damaged = [index for index, error in enumerate(errors) if error is not None]
        if not damaged:
            return
        what = f"{_place(records, damaged[0], broker_name)}: {errors[damaged[0]]}"
        if self._fail_on_damage:
            raise DamagedBody(what)
        log.warning(
            "%s; bodies returned as stored: %d of %d",
            *(what, len(damaged), len(records)),
        )


def _place(records: Records, index: int, broker_name: str | None) -> str:
    """Return queue and offset of a record; the broker of files is unknown unless options name
    it.
    """
    begin = int(records.topic_at[index])
    topic = records.buffer[begin : begin + int(records.topic_length[index])]
    queue_id = int(records.queue_id()[index])
    queue = Queue(topic.decode("utf-8", "replace"), broker_name or "?", queue_id)
    return f"{queue}: the message at offset {records.queue_offset()[index]}"


class _Part(NamedTuple):
    """Some records, with the body of each, and why it could not be decompressed."""

    records: Records
    bodies: list[bytes]
    errors: list[str | None]


def _decompressed(records: Records) -> Iterator[_Part]:
    """Split the records into parts of limited size, with decompressed bodies."""
    begins = records.body_at.tolist()
    ends = (records.body_at + records.body_length).tolist()
    flags = records.sys_flag.tolist()
    chosen = np.zeros(len(records), np.bool_)
    bodies: list[bytes] = []
    errors: list[str | None] = []
    size = 0
    view = memoryview(records.buffer)
    for index, (begin, end, flag) in enumerate(zip(begins, ends, flags, strict=True)):
        error = None
        try:
            body = bytes(decompress(view[begin:end], flag)) if end > begin else b""
        except NoMemoryForBody:  # otherwise it would be archived as damaged
            raise
        except RemoteProtocolError as damage:
            body, error = bytes(view[begin:end]), str(damage)
        bodies.append(body)
        errors.append(error)
        chosen[index] = True
        size += len(body)
        if size >= _BATCH_BYTES:
            yield _Part(records.only(chosen), bodies, errors)
            chosen[:] = False
            bodies, errors, size = [], [], 0
    if bodies:
        yield _Part(records.only(chosen), bodies, errors)
