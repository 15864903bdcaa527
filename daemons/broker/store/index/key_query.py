"""Queries messages by key from the key index of a store."""

from mq.daemons.broker.store.message_store import MessageStore
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.message import decode_record

# Messages of other topics with the same hash that a query skips at most. By chance there is hardly
# ever one.
_MAX_COLLISIONS = 64


def query_by_key(
    store: MessageStore, topic: str, key: str, max_num: int, begin: int, end: int
) -> tuple[int, int, list[bytes]]:
    """Return (timestamp and offset of the newest indexed message, records that may have the key).

    Searches messages stored from ``begin`` to ``end``, in ms. An item has only a hash of topic and
    key. The topic is checked here, because a sender can construct keys with the hash of another
    topic's keys; the client compares the key. Records are in the order of the log.
    """
    index = store.key_index
    if index is None:
        return 0, 0, []
    shown = store.log.written if store.bound is None else store.bound.offset
    records: dict[int, bytes] = {}
    for physical in index.find(topic, key, max_num + _MAX_COLLISIONS, begin, end):
        if len(records) >= max_num:
            break
        record = store.record_at(physical) if physical < shown else None
        if record is not None and _topic_of(record) == topic:
            records[physical] = record
    found = [record for _, record in sorted(records.items())]
    return index.end_timestamp, max(index.end_offset, 0), found


def _topic_of(record: bytes) -> str | None:
    try:
        return decode_record(record, read_body=False).topic
    except RemoteProtocolError:
        return None
