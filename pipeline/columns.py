"""The columns of a message as a table, and how each is built from log records.

A column is built only if the schema has it. Parts of a record become Arrow arrays without a Python
object for each: Arrow gets the offsets of the needed parts and of the gaps between them in the
buffer of the replies, and copies every second piece.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from mq.pipeline.property_columns import PropertyTable, parts
from mq.pipeline.records import Integers, Records
from mq.pipeline.tables import default_ddl
from mq.protocol import properties as property_text
from mq.protocol.flags import SysFlag
from mq.protocol.host import address_text, unpack_address
from mq.protocol.message_id import encode_offset_id
from mq.protocol.properties import PropertyKey
from mq.protocol.record import AT, IPV4_HOST, struct_of

_PHYSICAL_OFFSET = struct_of("physical_offset")
_PROPERTY_END = property_text.PROPERTY_SEPARATOR.encode()


class Context:
    """Data that is not in the records themselves, and data that several columns share."""

    def __init__(
        self,
        broker_name: str | None,
        bodies: list[bytes] | None = None,
        body_errors: list[str | None] | None = None,
    ) -> None:
        """Args:
        bodies: the decompressed bodies of all records, if any of them is compressed.
        body_errors: for each record why its body is still compressed; None if it is whole.
        """
        self.broker_name = broker_name
        self.bodies = bodies
        self.body_errors = body_errors
        self._properties: PropertyTable | None = None

    def properties(self, records: Records) -> PropertyTable:
        """Return the properties of the records, which must be the same at every call."""
        if self._properties is None:
            self._properties = PropertyTable(records)
        return self._properties


Maker = Callable[[Records, Context], pa.Array]


def find_property(records: Records, context: Context, name: str) -> pa.Array:
    """Return a property of each record; null if it has none. Of equal names the last one counts."""
    found = context.properties(records).find(name)
    return pa.array(_find_one_by_one(records, name), pa.string()) if found is None else found


def _find_one_by_one(records: Records, name: str) -> list[str | None]:
    buffer = records.buffer
    wanted = f"{name}{property_text.NAME_VALUE_SEPARATOR}".encode()
    values: list[str | None] = []
    begins = records.properties_at.tolist()
    ends = (records.properties_at + records.properties_length).tolist()
    for begin, end in zip(begins, ends, strict=True):
        value = None
        at = buffer.rfind(wanted, begin, end)
        while at >= 0:
            if at == begin or buffer[at - 1] == _PROPERTY_END[0]:
                at += len(wanted)
                stop = buffer.find(_PROPERTY_END, at, end)
                value = buffer[at : end if stop < 0 else stop].decode("utf-8", "replace")
                if value:
                    break
                at -= len(wanted)  # an empty value counts as none; an earlier one may not be empty
                value = None
            at = buffer.rfind(wanted, begin, at)
        values.append(value)
    return values


def _properties(records: Records) -> Iterable[dict[str, str]]:
    ends = records.properties_at + records.properties_length
    for begin, end in zip(records.properties_at.tolist(), ends.tolist(), strict=True):
        yield property_text.decode(records.buffer[begin:end].decode("utf-8", "replace"))


def _body(records: Records, context: Context) -> pa.Array:
    if context.bodies is not None:
        return pa.array(context.bodies, pa.binary())
    return parts(records.buffer, pa.binary(), records.body_at, records.body_length)


def _body_error(records: Records, context: Context) -> pa.Array:
    return pa.array(context.body_errors or [None] * len(records), pa.string())


def _topic(records: Records, context: Context) -> pa.Array:
    return parts(records.buffer, pa.string(), records.topic_at, records.topic_length)


def _properties_text(records: Records, context: Context) -> pa.Array:
    texts = context.properties(records).as_json()
    if texts is not None:
        return texts
    return pa.array([orjson.dumps(each).decode() for each in _properties(records)], pa.string())


def _properties_map(records: Records, context: Context) -> pa.Array:
    maps = context.properties(records).as_map()
    if maps is not None:
        return maps
    names: list[str] = []
    values: list[str] = []
    offsets = [0]
    for each in _properties(records):
        names += each.keys()
        values += each.values()
        offsets.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    )


def _property(name: str) -> Maker:
    def make(records: Records, context: Context) -> pa.Array:
        return find_property(records, context, name)

    return make


def _broker_name(records: Records, context: Context) -> pa.Array:
    return pa.repeat(pa.scalar(context.broker_name, pa.string()), len(records))


def _queue_id(records: Records, context: Context) -> pa.Array:
    return _int32(records.queue_id())


def _flag(records: Records, context: Context) -> pa.Array:
    return _int32(records.int32(records.positions + AT["flag"]))


def _queue_offset(records: Records, context: Context) -> pa.Array:
    return pa.array(records.queue_offset())


def _reconsume_times(records: Records, context: Context) -> pa.Array:
    at = records.positions + AT["reconsume_times"]
    return _int32(records.int32(at + records.born_v6 + records.store_v6))


def _stored_size(records: Records, context: Context) -> pa.Array:
    return _int32(records.int32(records.positions + AT["size"]))


def _int32(values: Integers) -> pa.Array:
    return pa.array(values.astype(np.int32))


def _milliseconds(of: Callable[[Records], Integers]) -> Maker:
    return lambda records, context: pa.array(of(records))


def _time(of: Callable[[Records], Integers]) -> Maker:
    """Spark's timestamps count microseconds."""
    kind = pa.timestamp("us", "UTC")
    return lambda records, context: pa.array(of(records) * 1000).cast(kind)


def _born_host(records: Records, context: Context) -> pa.Array:
    """Few hosts send many messages, so each host is converted to text once."""
    at = records.positions + AT["born_host"]
    if not records.born_v6.any():
        hosts, which = np.unique(records.int64(at), return_inverse=True)
        raws = [int(host).to_bytes(8, "big", signed=True) for host in hosts]
        texts = pa.array([_host_and_port(raw) for raw in raws], pa.string())
        return texts.take(pa.array(which))
    known: dict[bytes, str] = {}
    ends = at + IPV4_HOST + records.born_v6
    raws = [bytes(records.buffer[a:b]) for a, b in zip(at.tolist(), ends.tolist(), strict=True)]
    for raw in raws:
        if raw not in known:
            known[raw] = _host_and_port(raw)
    return pa.array([known[raw] for raw in raws], pa.string())


def _host_and_port(raw: bytes) -> str:
    return address_text(unpack_address(raw))


def _message_id(records: Records, context: Context) -> pa.Array:
    """Return the id that the producer gave; without one, the id that encodes the store address."""
    ids = find_property(records, context, PropertyKey.UNIQUE_KEY)
    if not ids.null_count:
        return ids
    without = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))
    made = []
    for index in without.tolist():
        at = int(records.positions[index])
        host = at + AT["store_host"] + int(records.born_v6[index])
        raw = bytes(records.buffer[host : host + IPV4_HOST + int(records.store_v6[index])])
        (physical,) = _PHYSICAL_OFFSET.unpack_from(records.buffer, at)
        made.append(encode_offset_id(*unpack_address(raw), physical))
    return pc.replace_with_mask(ids, ids.is_null(), pa.array(made, pa.string()))


# For each column and type (as Spark spells it) the function that builds it; the first type is the
# default. Names and types are those of rocketmq-spark, as far as it has them.
COLUMNS: Mapping[str, Mapping[str, Maker]] = {
    "topic": {"string": _topic},
    "flag": {"int": _flag},
    "body": {"binary": _body},
    "properties": {"string": _properties_text, "map<string,string>": _properties_map},
    "tags": {"string": _property(PropertyKey.TAGS)},
    "keys": {"string": _property(PropertyKey.KEYS)},
    "brokerName": {"string": _broker_name},
    "queueId": {"int": _queue_id},
    "queueOffset": {"bigint": _queue_offset},
    "bornTimestamp": {
        "timestamp": _time(Records.born_timestamp),
        "bigint": _milliseconds(Records.born_timestamp),
    },
    "storeTimestamp": {
        "timestamp": _time(Records.store_timestamp),
        "bigint": _milliseconds(Records.store_timestamp),
    },
    "bornHost": {"string": _born_host},
    "msgId": {"string": _message_id},
}

# Columns that a table has only if its schema asks for them: how often a message was sent back to
# the broker, its size in the log in bytes (compressed, if it is), and why its body could not be
# decompressed (null if it could).
FURTHER_COLUMNS: Mapping[str, Mapping[str, Maker]] = {
    "reconsumeTimes": {"int": _reconsume_times},
    "storedSize": {"int": _stored_size},
    "bodyError": {"string": _body_error},
}


def default_schema(*, properties_as_map: bool) -> str:
    """Return all columns as DDL, with the properties as JSON text or as a map."""
    if not properties_as_map:
        return default_ddl(COLUMNS)
    return default_ddl({**COLUMNS, "properties": {"map<string,string>": _properties_map}})


def is_compressed(records: Records) -> Any:
    """Return for each record whether its body is compressed, as an array of booleans."""
    return (records.sys_flag & SysFlag.COMPRESSED != 0) & (records.body_length > 0)
