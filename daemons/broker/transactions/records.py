"""The records of a transaction, as Java stores them (TransactionalMessageBridge).

half       the message itself in RMQ_SYS_TRANS_HALF_TOPIC, with its real topic and queue
operation  a half has ended: a message of RMQ_SYS_TRANS_OP_HALF_TOPIC with its queue offset
final      the message that consumers see, with the physical offset of its half
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Protocol

from mq.daemons.broker.delivery.writer import MessageWriter, add_what_fits, properties_field
from mq.protocol import names
from mq.protocol.flags import SysFlag
from mq.protocol.message import StoredMessage
from mq.protocol.properties import MAX_LENGTH, PropertyKey
from mq.protocol.tags import tags_code

REMOVE_TAG = "d"  # TransactionalMessageUtil.REMOVETAG
HALF_QUEUE = 0  # the only one
# Bytes of properties that a half gets later: number of checks, first offset, the timer's.
PROPERTIES_ROOM = 256
LONGEST_PROPERTIES = MAX_LENGTH - PROPERTIES_ROOM  # limit for a message when it is sent

# Of an operation, whose body is the queue offset of the half that it ends.
REMOVE_CODE = tags_code(REMOVE_TAG)
OPERATION_FIELD = properties_field({PropertyKey.TAGS: REMOVE_TAG, PropertyKey.WAIT_STORE: "true"})


def make_half(message: StoredMessage) -> None:
    """Convert a sent message to a half: no consumer sees it before it is committed.

    The transaction bits are cleared, so that it gets a place in the half topic like any message.
    """
    message.properties[PropertyKey.REAL_TOPIC] = message.topic
    message.properties[PropertyKey.REAL_QUEUE_ID] = str(message.queue_id)
    message.sys_flag &= ~SysFlag.TRANSACTION_MASK
    message.topic = names.TRANSACTION_HALF_TOPIC
    message.queue_id = HALF_QUEUE


def make_final(half: StoredMessage, writer: MessageWriter) -> None:
    """Convert a half to the message that consumers see.

    Raises NoTarget.
    """
    physical = half.physical_offset
    writer.restore_target(half)
    final = final_properties(half.properties)
    half.properties.clear()
    half.properties.update(final)
    half.sys_flag = half.sys_flag & ~SysFlag.TRANSACTION_MASK | SysFlag.TRANSACTION_COMMIT
    half.prepared_transaction_offset = physical


def final_properties(half: Mapping[str, str]) -> dict[str, str]:
    """The properties of a half that consumers see: without the target, and with the transaction id
    as set by Java's brokers of 5.x. TRAN_MSG stays.
    """
    final = dict(half)
    del final[PropertyKey.REAL_TOPIC], final[PropertyKey.REAL_QUEUE_ID]
    unique = final.get(PropertyKey.UNIQUE_KEY)
    if unique:
        add_what_fits(final, {PropertyKey.TRANSACTION_ID: unique})
    return final


def is_final_of(message: StoredMessage, half: StoredMessage) -> bool:
    """Whether a message is the final record of a half. Any sender may set the commit bit of a
    message.
    """
    same = (PropertyKey.TRANSACTION_PREPARED, PropertyKey.UNIQUE_KEY, PropertyKey.PRODUCER_GROUP)
    return message.body == half.body and all(
        message.properties.get(name) == half.properties.get(name) for name in same
    )


def ended_offsets(message: StoredMessage) -> list[int]:
    """The queue offsets of the halves that an operation ends.

    4.9 writes one offset, 5.x a list with a comma after each. Empty if the body is not such a list.
    """
    if message.tags != REMOVE_TAG:
        return []
    parts = [part for part in message.body.split(b",") if part]
    return [int(part) for part in parts] if all(map(_is_number, parts)) else []


def _is_number(part: bytes) -> bool:
    return part.isdigit() and len(part) < 19


class HalfLike(Protocol):
    """A half, in whatever form it was read."""

    @property
    def queue_offset(self) -> int: ...
    @property
    def properties(self) -> dict[str, str]: ...


def transaction_key(half: HalfLike) -> bytes:
    """The key that identifies a transaction, however often its half is put again."""
    properties = half.properties
    return key_of(
        properties.get(PropertyKey.PRODUCER_GROUP, ""),
        properties.get(PropertyKey.REAL_TOPIC, ""),
        properties.get(PropertyKey.UNIQUE_KEY, ""),
        half.queue_offset,
    )


def key_of(group: str, topic: str, unique_id: str, offset: int) -> bytes:
    """The key from its parts: the producer's group, topic and unique id of a half; without an id,
    its queue offset.
    """
    return keys_of_batch(group, topic, [unique_id.encode()], offset)[0]


def keys_of_batch(group: str, topic: str, unique_ids: Iterable[bytes], first: int) -> list[bytes]:
    """The keys of halves that are consecutive in their queue."""
    scope = f"{group}\x01{topic}\x01".encode()
    return [
        blake2b(scope + unique_id, digest_size=16).digest() if unique_id else str(offset).encode()
        for offset, unique_id in enumerate(unique_ids, first)
    ]


_UNIQUE_ID = re.compile(rb"(?:^..|\x02)UNIQ_KEY\x01([^\x02]+)", re.DOTALL)


def unique_id_in(properties_field: bytes) -> bytes:
    """The unique id in properties as in a record, after their length; empty if there is none. The
    same one that a reader of the record sees (mq.protocol.properties.decode).
    """
    found = _UNIQUE_ID.findall(properties_field)
    return found[-1] if found else b""


def number_property(message: StoredMessage, name: str) -> int | None:
    """A property that is a whole number; None if it is missing, -1 if it is something else."""
    text = message.properties.get(name)
    if text is None:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
