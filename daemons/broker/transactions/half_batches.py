"""Batches of prepared messages, each of which becomes a half."""

import re
from collections.abc import Callable

from mq.daemons.broker.store import Appender, BatchedMessage, ConsumeQueue, Origin, StoreRefused
from mq.daemons.broker.transactions.native_halves import NativeHalves
from mq.daemons.broker.transactions.records import (
    LONGEST_PROPERTIES,
    keys_of_batch,
    unique_id_in,
)
from mq.protocol.codes import ResponseCode
from mq.protocol.message_id import join_ids
from mq.protocol.properties import PropertyKey

# In properties as in a record: those that delay the message or withdraw a delayed one.
_WAITING = re.compile(rb"(?:^..|\x02)(?:DELAY\x01|TIMER_D)", re.DOTALL)

# Reads a batch, given the topic for which the keys of its messages are to be hashed.
ReadBatch = Callable[[str], list[BatchedMessage]]


def append_halves(
    appender: Appender,
    native: NativeHalves,
    halves: ConsumeQueue,
    common: dict[str, str],
    body: bytes,
    read: ReadBatch,
    origin: Origin,
) -> tuple[bytes, int, list[bytes]]:
    """Append a batch to the queue of halves. Returns ids in the form of the reply, the queue offset
    of the first half, and the keys of their transactions.

    Raises StoreRefused, and the errors of ``read``.
    """
    group, topic = common[PropertyKey.PRODUCER_GROUP], common[PropertyKey.REAL_TOPIC]
    first = halves.appended
    prepared = native.prepare(body, common, halves, origin)
    if prepared is not None:
        return prepared.ids, first, keys_of_batch(group, topic, prepared.unique_ids, first)
    messages = read(halves.topic)
    if not messages:
        raise StoreRefused(ResponseCode.MESSAGE_ILLEGAL, "a batch without a message")
    for _, field, *_ in messages:
        if len(field) - 2 > LONGEST_PROPERTIES or _WAITING.search(field):
            raise StoreRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                "a message with long properties or a delivery time cannot be prepared in a batch: "
                "send it by itself",
            )
    physicals, first = appender.append_batch(halves, messages, **origin._asdict())
    unique_ids = [unique_id_in(field) for _, field, *_ in messages]
    ids = join_ids(appender.store_host, physicals)
    return ids, first, keys_of_batch(group, topic, unique_ids, first)
