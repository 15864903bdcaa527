"""The columns of a table that is written to topics, and the message for each row.

Names match in any case, as in Spark. Everything is done for a whole record batch at once: Arrow
joins texts, so that no row becomes a Python object.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from mq.client.producer.outgoing import MAX_BODY
from mq.pipeline.errors import RowError, SchemaError
from mq.pipeline.write_options import WriteOptions
from mq.protocol.names import RETRY_PREFIX, check_topic
from mq.protocol.properties import (
    KEY_SEPARATOR,
    MAX_LENGTH,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    RESERVED,
    PropertyKey,
)

# For each column the types (as Spark spells them) that it may have.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>", "string"),
    "flag": ("int",),
    "queueId": ("int",),
    "brokerName": ("string",),
    "shardingKey": ("string",),
    "delayLevel": ("int",),
    "deliverAt": ("timestamp", "bigint"),
}

_MAP = pa.map_(pa.string(), pa.string())
_ARROW = {
    "string": pa.string(),
    "binary": pa.binary(),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": _MAP,
}
_SPELLING = {name.lower(): name for name in COLUMNS}
# Columns that are also properties of the message.
_OWN_COLUMNS = {
    "tags": PropertyKey.TAGS,
    "keys": PropertyKey.KEYS,
    "shardingKey": PropertyKey.SHARDING_KEY,
}

Booleans = npt.NDArray[np.bool_]


class Messages(NamedTuple):
    """The messages of a record batch; arrays with an element for each row."""

    body: pa.Array  # binary
    properties: list[pa.Array]  # consecutive texts, each complete: name 1 value 2
    flag: npt.NDArray[np.int32] | None
    delayed: Booleans | None
    topic: pa.Array | None  # None: the topic of the options
    queue_id: pa.Array | None
    broker_name: pa.Array | None
    sharding_key: pa.Array | None


class SinkColumns:
    """Builds messages from rows of one schema."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        """Raises SchemaError for columns that messages cannot have."""
        self._places: dict[str, int] = {}
        self._types: dict[str, str] = {}
        for place, field in enumerate(schema.fields):
            name = _SPELLING.get(field.name.lower())
            if name is None:
                raise SchemaError(
                    f"a message has no column {field.name} to write: leave it out with drop() or "
                    f"select(); columns are {', '.join(COLUMNS)}"
                )
            if name in self._places:
                raise SchemaError(f"there are two columns {name}")
            kind = field.dataType.simpleString()
            if kind not in COLUMNS[name]:
                wanted = " or ".join(COLUMNS[name])
                raise SchemaError(
                    f"column {name} cannot be {kind}; it is {wanted}: "
                    f'select(col("{name}").cast("{COLUMNS[name][0]}"), ...)'
                )
            self._places[name], self._types[name] = place, kind
        self._options = options
        self._check_together()

    @property
    def ordered(self) -> bool:
        """Whether rows name their queue: then their order is kept in it."""
        return "queueId" in self._places or "shardingKey" in self._places

    def has(self, name: str) -> bool:
        return name in self._places

    def _check_together(self) -> None:
        if "body" not in self._places:
            raise SchemaError("there is no column body: select(to_json(struct('*')).alias('body'))")
        if "topic" not in self._places and self._options.topic is None:
            raise SchemaError('no topic: .option("topic", "Orders"), or a column topic')
        if {"queueId", "shardingKey"} <= self._places.keys():
            raise SchemaError("a row names its queue by queueId or by shardingKey, not by both")
        if "brokerName" in self._places and "queueId" not in self._places:
            raise SchemaError("the column brokerName also needs the column queueId")
        if {"delayLevel", "deliverAt"} <= self._places.keys():
            raise SchemaError("a row is delayed by delayLevel or by deliverAt, not by both")
        if self._options.exactly_once and {"delayLevel", "deliverAt"} & self._places.keys():
            raise SchemaError(
                "with exactlyOnce messages cannot be delayed: brokers of 4.9 lose delayed messages "
                "of transactions. Drop delayLevel and deliverAt, or the option"
            )

    def messages(self, batch: pa.RecordBatch) -> Messages:
        """Return the messages of a record batch. Raises RowError for rows that brokers would
        refuse.
        """
        body = self._column(batch, "body").cast(pa.binary())
        _check_bodies(body)
        topic = self._column(batch, "topic")
        if topic is not None:
            topic = _checked_topics(topic, self._options.topic)
        delays = self._delays(batch)
        retries = topic is not None and any(
            name.startswith(RETRY_PREFIX) for name in topic.unique().to_pylist()
        )
        if (retries or (self._options.topic or "").startswith(RETRY_PREFIX)) and delays is not None:
            raise RowError("messages to a retry topic cannot be delayed")
        flag = self._column(batch, "flag")
        properties = self._properties(batch)
        delayed = None
        if delays is not None:
            properties.append(delays)
            delayed = pc.greater(pc.binary_length(delays), 0).to_numpy(zero_copy_only=False)
        return Messages(
            body,
            properties,
            None if flag is None else flag.fill_null(0).to_numpy(),
            delayed,
            topic,
            self._column(batch, "queueId"),
            self._column(batch, "brokerName"),
            self._column(batch, "shardingKey"),
        )

    def sizes(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the size of each row's body in bytes."""
        lengths = pc.binary_length(self._column(batch, "body")).fill_null(0)
        return np.asarray(lengths.to_numpy(), np.int64)

    def _column(self, batch: pa.RecordBatch, name: str) -> Any:
        place = self._places.get(name)
        if place is None:
            return None
        # spark.sql.execution.arrow.useLargeVarTypes changes the types.
        wanted = _ARROW.get(self._types[name])
        column = batch.column(place)
        return column if wanted is None or column.type.equals(wanted) else column.cast(wanted)

    def _properties(self, batch: pa.RecordBatch) -> list[pa.Array]:
        parts = []
        column = self._column(batch, "properties")
        if column is not None:
            parts.append(self._user_properties(column))
        tags = self._column(batch, "tags")
        if tags is not None:
            _refuse_separators(tags, "tags")
            parts.append(property_text(PropertyKey.TAGS, tags))
        keys = self._column(batch, "keys")
        if keys is not None:
            if self._types["keys"] != "string":
                keys = pc.binary_join(keys, KEY_SEPARATOR)
            _refuse_separators(keys, "keys")
            parts.append(property_text(PropertyKey.KEYS, keys))
        sharding_key = self._column(batch, "shardingKey")
        if sharding_key is not None:
            _refuse_separators(sharding_key, "shardingKey")
            parts.append(property_text(PropertyKey.SHARDING_KEY, sharding_key))
        return parts

    def _user_properties(self, column: pa.Array) -> pa.Array:
        """Return the properties of the user. Properties that RocketMQ itself sets, as in rows that
        were read from a topic, are left out; tags and keys are kept if they have no column.
        """
        if self._types["properties"] == "string":
            column = pa.array([_from_json(text) for text in column.to_pylist()], _MAP)
        keys, items, offsets = _entries(column)
        kept = pc.and_(
            pc.greater(pc.binary_length(items.fill_null("")), 0),
            pc.invert(pc.is_in(keys, pa.array(self._not_taken(), pa.string()))),
        )
        keys, items = keys.filter(kept), items.filter(kept)
        _refuse_separators(keys, "properties")
        _refuse_separators(items, "properties")
        pairs = pc.binary_join_element_wise(keys, items, NAME_VALUE_SEPARATOR)
        ended = pc.binary_join_element_wise(pairs, PROPERTY_SEPARATOR, "")
        counts = np.concatenate([[0], np.cumsum(kept.to_numpy(zero_copy_only=False))])
        lists = pa.ListArray.from_arrays(pa.array(counts[offsets], pa.int32()), ended)
        return pc.binary_join(lists, "")

    def _not_taken(self) -> list[str]:
        """Return the names of properties that are not copied from a row."""
        names = RESERVED | {PropertyKey.TRANSACTION_ID, *_OWN_COLUMNS.values()}
        return sorted(
            names - {name for own, name in _OWN_COLUMNS.items() if own not in self._places}
        )

    def _delays(self, batch: pa.RecordBatch) -> pa.Array | None:
        levels = self._column(batch, "delayLevel")
        if levels is not None:
            if pc.any(pc.less(levels, 0)).as_py():
                raise RowError("a delayLevel is below 0; 1 is the shortest, 0 or null none")
            levels = pc.if_else(pc.equal(levels, 0), None, levels)
            return property_text(PropertyKey.DELAY_LEVEL, levels.cast(pa.string()))
        times = self._column(batch, "deliverAt")
        if times is None:
            return None
        if self._types["deliverAt"] == "timestamp":
            times = pc.divide(times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)
        return property_text(PropertyKey.TIMER_DELIVER_MS, times.cast(pa.string()))


def property_text(name: str, values: pa.Array) -> pa.Array:
    """Return a property of each row as text; empty if its value is null or empty."""
    present = pc.greater(pc.binary_length(values.fill_null("")), 0)
    text = pc.binary_join_element_wise(pa.scalar(name), values.fill_null(""), NAME_VALUE_SEPARATOR)
    ended = pc.binary_join_element_wise(text, PROPERTY_SEPARATOR, "")
    return pc.if_else(present, ended, "")


def check_properties(text: pa.Array, more: int) -> None:
    """Raises RowError for properties that, with `more` bytes added, are longer than a record
    allows.
    """
    lengths = pc.binary_length(text)
    if len(lengths) and pc.max(lengths).as_py() + more > MAX_LENGTH:
        most = pc.max(lengths).as_py() + more
        raise RowError(f"the properties of a row have {most} bytes, the limit is {MAX_LENGTH}")


def _entries(column: pa.Array) -> tuple[pa.Array, pa.Array, npt.NDArray[np.int64]]:
    """Return the names and values of maps, the start of each row's entries, and the end of the
    last.
    """
    lists = column.cast(pa.list_(column.type.field(0).type))  # map arrays ignore slices
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    entries = pc.list_flatten(lists)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return entries.field(0), entries.field(1), offsets


def _from_json(text: str | None) -> list[tuple[str, str]]:
    if not text:
        return []
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RowError(f"the properties {text[:100]!r} of a row are not JSON: {error}") from None
    if not isinstance(read, dict) or not all(isinstance(value, str) for value in read.values()):
        raise RowError(f"the properties {text[:100]!r} of a row are not an object of texts")
    return list(read.items())


def _check_bodies(body: pa.Array) -> None:
    if not len(body):
        return
    lengths = pc.binary_length(body)
    if body.null_count or pc.min(lengths).as_py() == 0:
        raise RowError(
            "the body of a row is null or empty, a message needs at least one byte: "
            '.where("length(body) > 0"), or replace it with coalesce()'
        )
    most = pc.max(lengths).as_py()
    if most > MAX_BODY:
        raise RowError(
            f"the body of a row has {most} bytes, the limit of a message is {MAX_BODY}: "
            "split it, or send a reference to it instead"
        )


def _checked_topics(topics: pa.Array, otherwise: str | None) -> pa.Array:
    if topics.null_count:
        if otherwise is None:
            raise RowError('the topic of a row is null: .option("topic", "Orders") is for those')
        topics = topics.fill_null(otherwise)
    for name in topics.unique().to_pylist():
        try:
            check_topic(name)
        except ValueError as error:
            raise RowError(f"the topic of a row: {error}") from None
    return topics


def _refuse_separators(texts: pa.Array, column: str) -> None:
    for separator in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR):
        if pc.any(pc.match_substring(texts, separator)).as_py():
            raise RowError(
                f"the column {column} of a row has a character 0x01 or 0x02, which separate "
                "properties in a message"
            )
