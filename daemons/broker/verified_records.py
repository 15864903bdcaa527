"""Records at an offset that a peer names, verified to be messages of their own.

The body of a message may contain bytes that look like a record, with a topic, a length and an
offset chosen by their sender. Only an entry of its queue proves that bytes are a record.
"""

from mq.daemons.broker.store import MessageStore
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.message import StoredMessage, decode_record


def verified_record(store: MessageStore, physical: int) -> tuple[bytes, StoredMessage] | None:
    """Return the record at a physical offset, confirmed by its queue, and its decoded message.

    The message has no body. None if no message starts there, or if its topic has been deleted.
    """
    record = store.record_at(physical)
    if record is None:
        return None
    try:
        message = decode_record(record, read_body=False)
    except RemoteProtocolError:
        return None
    if message.queue_id not in store.queues_of(message.topic):
        return None
    entry = store.entries.at(message.topic, message.queue_id, message.queue_offset)
    return (record, message) if entry is not None and entry[:2] == (physical, len(record)) else None
