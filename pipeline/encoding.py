"""Encoder of rows: from record batches to send requests.

Rows that may share a request become one batch (SEND_BATCH_MESSAGE): Arrow joins the heads, bodies
and properties of all of them into the bytes to send; no row becomes a Python object. Delayed rows,
rows for retry topics and very large ones are sent one by one, because brokers do not accept batches
of them. Batches of prepared messages are accepted only by our brokers; others refuse them
(MESSAGE_ILLEGAL, Java's since 4.3), and get their messages one by one. Requests for the same queue
are in the order of their rows.
"""

import os
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mq.client.machine import random_ids
from mq.client.routing.targets import DEFAULT_QUEUES
from mq.pipeline.sink_columns import Messages, SinkColumns, check_properties
from mq.pipeline.sink_queues import QueueChoice
from mq.pipeline.write_options import WriteOptions
from mq.protocol.batch import HEAD_FIELDS, decode_batch
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.compression import compress
from mq.protocol.flags import SysFlag
from mq.protocol.headers.send import Letter
from mq.protocol.message_id import UniqueIdMaker
from mq.protocol.names import DEFAULT_TOPIC, RETRY_PREFIX
from mq.protocol.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, PropertyKey, encode

_SLICE_BYTES = 32 * 1024 * 1024  # bytes of bodies processed at a time; a task holds them twice
_SLICE_ROWS = 16_384  # less than the range of a unique id's counter
_COMPRESSION_LEVEL = 5  # as Java's producers

_ID_SIZE = 16  # bytes of a unique id, which is twice as many digits

# How a row is sent; adjacent rows that are sent alike share a request.
_IN_BATCH, _IN_COMPRESSED_BATCH, _SINGLE, _SINGLE_COMPRESSED = range(4)

_HEAD = np.dtype([(name, ">" + letter) for name, letter in HEAD_FIELDS])
_WAIT = f"{PropertyKey.WAIT_STORE}{NAME_VALUE_SEPARATOR}true"


class Outgoing(NamedTuple):
    """A request for some rows, apart from the queue that it goes to."""

    topic: str
    queue: MessageQueue | None  # None: any queue
    rows: int
    code: RequestCode
    fields: dict[str, str]
    body: bytes | memoryview
    unique_id: str  # of a single message; "" of a batch
    ids: bytes = b""  # of a batch of prepared messages, 16 bytes each

    @property
    def packed_ids(self) -> bytes:
        """The unique ids of prepared messages, in order, 16 bytes each."""
        return self.ids or bytes.fromhex(self.unique_id)

    def singles(self) -> "Iterator[Outgoing]":
        """Yield the messages of a batch of prepared messages one by one."""
        common = self.fields[Letter.PROPERTIES]
        for number, element in enumerate(decode_batch(self.body)):
            unique_id = self.ids[number * _ID_SIZE : (number + 1) * _ID_SIZE].hex().upper()
            own = bytes(element.properties).decode()
            fields = {
                **self.fields,
                Letter.BATCH: "false",
                Letter.FLAG: str(element.flag),
                Letter.PROPERTIES: f"{common}{PROPERTY_SEPARATOR}{own}",
            }
            code = RequestCode.SEND_MESSAGE_V2
            yield Outgoing(self.topic, self.queue, 1, code, fields, element.body, unique_id)

    def command(self, queue: MessageQueue, opaque: int) -> Command:
        """Return the request that sends the rows to `queue`."""
        fields = {
            **self.fields,
            Letter.QUEUE_ID: str(queue.queue_id),
            Letter.BROKER_NAME: queue.broker_name,
        }
        return Command(self.code, fields, self.body, opaque=opaque)


class UniqueIds:
    """Generates unique ids of messages, many at a time."""

    def __init__(self, host: str) -> None:
        """`host` is the IPv4 address of this machine, in numbers."""
        first = UniqueIdMaker(host, os.getpid(), time.time, random_ids.salt())()
        self._prefix = np.frombuffer(first[:-12].encode(), np.uint8)
        self._started = time.monotonic()
        self._elapsed = int(first[-12:-4], 16)  # ms since the month began, at the start
        self._next = 0  # ms and counter as one number

    def take(self, count: int) -> pa.Array:
        """Return the next `count` ids, as strings."""
        now = self._elapsed + int((time.monotonic() - self._started) * 1000)
        begin = max(self._next, now << 16)
        self._next = begin + count
        numbers = np.arange(begin, begin + count, dtype=np.uint64).astype(">u8")
        digits = _HEX[numbers.view(np.uint8).reshape(count, 8)[:, 2:]].reshape(count, 12)
        texts = np.empty((count, len(self._prefix) + 12), np.uint8)
        texts[:, :-12] = self._prefix
        texts[:, -12:] = digits
        fixed = pa.Array.from_buffers(
            pa.binary(texts.shape[1]), count, [None, pa.py_buffer(texts.tobytes())]
        )
        return fixed.cast(pa.binary()).cast(pa.string())


_HEX: npt.NDArray[np.uint8] = np.frombuffer(
    b"".join(b"%02X" % value for value in range(256)), np.uint8
).reshape(256, 2)


class Encoder:
    """Builds the requests of a task."""

    def __init__(
        self, columns: SinkColumns, options: WriteOptions, queues: QueueChoice, ids: UniqueIds
    ) -> None:
        self._columns = columns
        self._options = options
        self._queues = queues
        self._ids = ids
        # Properties that the messages of a batch have in common.
        prepared = {
            PropertyKey.TRANSACTION_PREPARED: "true",
            PropertyKey.PRODUCER_GROUP: options.group,
        }
        self._common = encode(prepared) if options.exactly_once else _WAIT

    def requests(self, batch: pa.RecordBatch) -> Iterator[Outgoing]:
        """Return the requests that send the rows of a record batch. Raises RowError."""
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, self._length(batch, start))
            start += part.num_rows
            messages = self._columns.messages(part)
            ids = self._ids.take(part.num_rows)
            text = self._properties(messages, ids)
            for topic, queue, rows in self._queues.groups(messages, part.num_rows):
                yield from self._group(topic, queue, rows, messages, text, ids)

    def _length(self, batch: pa.RecordBatch, start: int) -> int:
        """Return how many rows to process, so that memory stays bounded however large bodies
        are.
        """
        rows: int = min(_SLICE_ROWS, batch.num_rows - start)
        if batch.nbytes <= _SLICE_BYTES:
            return rows
        ends = np.cumsum(self._columns.sizes(batch.slice(start, rows)))
        return max(1, int(np.searchsorted(ends, _SLICE_BYTES, "right")))

    def _properties(self, messages: Messages, ids: pa.Array) -> pa.Array:
        last = pa.scalar(f"{PropertyKey.UNIQUE_KEY}{NAME_VALUE_SEPARATOR}")
        joined = pc.binary_join_element_wise(*messages.properties, last, ids, "")
        check_properties(joined, len(self._common) if self._options.exactly_once else 0)
        return joined

    def _group(
        self,
        topic: str,
        queue: MessageQueue | None,
        rows: pa.Array | None,
        messages: Messages,
        text: pa.Array,
        ids: pa.Array,
    ) -> Iterator[Outgoing]:
        """Yield the requests for the rows at some places (None: all rows), of one topic or
        queue.
        """
        body, flag, delayed = messages.body, messages.flag, messages.delayed
        if rows is not None:
            body, text, ids = body.take(rows), text.take(rows), ids.take(rows)
            places = rows.to_numpy()
            flag = None if flag is None else flag[places]
            delayed = None if delayed is None else delayed[places]
        body, how = self._how(topic, body, pc.binary_length(text).to_numpy(), delayed)
        edges = [0, *(np.flatnonzero(np.diff(how)) + 1).tolist(), len(how)]
        for begin, end in pairwise(edges):
            count = end - begin
            some = None if flag is None else flag[begin:end]
            if how[begin] in (_IN_BATCH, _IN_COMPRESSED_BATCH):
                sys_flag = self._sys_flag if how[begin] == _IN_COMPRESSED_BATCH else 0
                yield from self._batches(
                    topic,
                    queue,
                    body.slice(begin, count),
                    text.slice(begin, count),
                    ids.slice(begin, count),
                    some,
                    sys_flag,
                )
            else:
                sys_flag = self._sys_flag if how[begin] == _SINGLE_COMPRESSED else 0
                yield from self._singles(
                    topic,
                    queue,
                    body.slice(begin, count),
                    text.slice(begin, count).to_pylist(),
                    ids.slice(begin, count).to_pylist(),
                    [0] * count if some is None else some.tolist(),
                    sys_flag,
                )

    def _how(
        self,
        topic: str,
        body: pa.Array,
        text_length: npt.NDArray[np.int32],
        delayed: npt.NDArray[np.bool_] | None,
    ) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Return the bodies, compressed if required, and how each row is sent."""
        lengths = pc.binary_length(body).to_numpy()
        compressed = np.zeros(len(body), np.bool_)
        kind = self._options.compression
        if kind is not None:
            compressed = lengths >= self._options.compress_over
            if compressed.any():
                body = pa.array(
                    [
                        compress(each, kind, _COMPRESSION_LEVEL) if wanted else each
                        for each, wanted in zip(body.to_pylist(), compressed, strict=True)
                    ],
                    pa.binary(),
                )
                lengths = pc.binary_length(body).to_numpy()
        single = lengths + text_length + _HEAD.itemsize + 2 > self._options.batch_bytes
        if delayed is not None:
            single = single | delayed
        if topic.startswith(RETRY_PREFIX):
            single[:] = True
        return body, compressed + 2 * single.astype(np.int64)

    @property
    def _sys_flag(self) -> int:
        kind = self._options.compression
        return 0 if kind is None else kind.sys_flag

    # requests -------------------------------------------------------------------------------------

    def _batches(
        self,
        topic: str,
        queue: MessageQueue | None,
        body: pa.Array,
        text: pa.Array,
        ids: pa.Array,
        flag: npt.NDArray[np.int32] | None,
        sys_flag: int,
    ) -> Iterator[Outgoing]:
        count = len(body)
        prepared = self._options.exactly_once
        if prepared:
            sys_flag |= SysFlag.TRANSACTION_PREPARED
        text_length = pc.binary_length(text).to_numpy()
        heads = np.zeros(count, _HEAD)
        heads["body_length"] = pc.binary_length(body).to_numpy()
        heads["size"] = heads["body_length"] + text_length + _HEAD.itemsize + 2
        if flag is not None:
            heads["flag"] = flag
        joined = pc.binary_join_element_wise(
            _fixed(heads.tobytes(), count, _HEAD.itemsize),
            body,
            _fixed(text_length.astype(">i2").tobytes(), count, 2),
            text.cast(pa.binary()),
            b"",
        )
        offsets = np.frombuffer(joined.buffers()[1], np.int32, count + 1)
        data = memoryview(joined.buffers()[2])
        packed_ids = _packed(ids) if prepared else b""
        fields = self._fields(topic, sys_flag, 0, self._common)
        fields[Letter.BATCH] = "true"
        begin = 0
        while begin < count:
            most = int(offsets[begin]) + self._options.batch_bytes
            end = max(begin + 1, int(np.searchsorted(offsets, most, "right")) - 1)
            piece = data[offsets[begin] : offsets[end]]
            some = packed_ids[begin * _ID_SIZE : end * _ID_SIZE]
            code = RequestCode.SEND_BATCH_MESSAGE
            yield Outgoing(topic, queue, end - begin, code, fields, piece, "", some)
            begin = end

    def _singles(
        self,
        topic: str,
        queue: MessageQueue | None,
        body: pa.Array,
        texts: list[str],
        ids: list[str],
        flags: list[int],
        sys_flag: int,
    ) -> Iterator[Outgoing]:
        if self._options.exactly_once:
            sys_flag |= SysFlag.TRANSACTION_PREPARED
        for index, (text, unique, flag) in enumerate(zip(texts, ids, flags, strict=True)):
            if self._options.exactly_once:
                text = f"{self._common}{PROPERTY_SEPARATOR}{text}"
            fields = self._fields(topic, sys_flag, flag, text)
            piece = memoryview(body[index].as_buffer())
            yield Outgoing(topic, queue, 1, RequestCode.SEND_MESSAGE_V2, fields, piece, unique)

    def _fields(self, topic: str, sys_flag: int, flag: int, properties: str) -> dict[str, str]:
        """Return the fields of SendMessageRequestHeaderV2 except the queue, as in
        `mq.client.producer.outgoing`.
        """
        return {
            Letter.PRODUCER_GROUP: self._options.group,
            Letter.TOPIC: topic,
            Letter.DEFAULT_TOPIC: DEFAULT_TOPIC,
            Letter.DEFAULT_TOPIC_QUEUE_NUMS: str(DEFAULT_QUEUES),
            Letter.SYS_FLAG: str(sys_flag),
            Letter.BORN_TIMESTAMP: str(int(time.time() * 1000)),
            Letter.FLAG: str(flag),
            Letter.PROPERTIES: properties,
            Letter.RECONSUME_TIMES: "0",
            Letter.UNIT_MODE: "false",
            Letter.BATCH: "false",
        }


def _fixed(data: bytes, count: int, width: int) -> pa.Array:
    """Return pieces of equal width, as binary."""
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _packed(ids: pa.Array) -> bytes:
    """Return unique ids as bytes, 16 for each."""
    offsets = np.frombuffer(ids.buffers()[1], np.int32, ids.offset + len(ids) + 1)
    digits = memoryview(ids.buffers()[2])[offsets[ids.offset] : offsets[-1]]
    return bytes.fromhex(str(digits, "ascii"))
