"""The columns of TubeMQ's messages as a table, and how each is built from a broker's reply."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mq.client.tube.message import TubeMessage
from mq.pipeline.tube.offsets import INDEX_RECORD
from mq.protocol.tube.payload import MESSAGE_TIME, MESSAGE_TYPE, parse_attributes


class Reply(NamedTuple):
    """Messages of one reply, in the order of the partition.

    Attributes:
        key: of the partition.
        begin: the start of the reply in the index.
        exact: the index has only these messages from there on, so that the position of each is
            known.
    """

    key: str
    begin: int
    exact: bool
    messages: list[TubeMessage]


Maker = Callable[[Reply], pa.Array]


def _topic(reply: Reply) -> pa.Array:
    return pa.repeat(pa.scalar(reply.key.split(":")[1], pa.string()), len(reply.messages))


def _key(reply: Reply) -> pa.Array:
    return pa.repeat(pa.scalar(reply.key, pa.string()), len(reply.messages))


def _offset(reply: Reply) -> pa.Array:
    count = len(reply.messages)
    step = INDEX_RECORD if reply.exact else 0
    return pa.array(np.arange(count, dtype=np.int64) * step + reply.begin)


def _body(reply: Reply) -> pa.Array:
    return pa.array([message.body for message in reply.messages], pa.binary())


def _message_id(reply: Reply) -> pa.Array:
    return pa.array([message.message_id for message in reply.messages], pa.int64())


def _flag(reply: Reply) -> pa.Array:
    return pa.array([message.flag for message in reply.messages], pa.int32())


def _attribute(name: str) -> Maker:
    def make(reply: Reply) -> pa.Array:
        found = (
            parse_attributes(text).get(name) if name in text else None
            for text in (message.attribute_text for message in reply.messages)
        )
        return pa.array(list(found), pa.string())

    return make


def _attributes(reply: Reply) -> pa.Array:
    """Return the application's attributes; those of the system have columns of their own."""
    pairs = [
        [item for item in message.attributes.items() if item[0] not in (MESSAGE_TYPE, MESSAGE_TIME)]
        if message.attribute_text
        else []
        for message in reply.messages
    ]
    return pa.array(pairs, pa.map_(pa.string(), pa.string()))


def _attribute_text(reply: Reply) -> pa.Array:
    return pa.array([message.attribute_text for message in reply.messages], pa.string())


COLUMNS: Mapping[str, Mapping[str, Maker]] = {
    "topic": {"string": _topic},
    "partitionKey": {"string": _key},
    "offset": {"bigint": _offset},
    "messageId": {"bigint": _message_id},
    "messageType": {"string": _attribute(MESSAGE_TYPE)},
    "messageTime": {"string": _attribute(MESSAGE_TIME)},
    "attributes": {"map<string,string>": _attributes, "string": _attribute_text},
    "flag": {"int": _flag},
    "body": {"binary": _body},
}
