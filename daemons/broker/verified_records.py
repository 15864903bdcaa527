"""Records that a peer names by their place in the log: only what is a message of its own there.

Inside the body of a message there may be bytes that look like a record, with a topic, a length and
an offset of their sender's making. What is one, only an entry of its queue tells.
"""

from mq.daemons.broker.store.message_store import MessageStore
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.message import StoredMessage, decode_record


def verified_record(store: MessageStore, physical: int) -> tuple[bytes, StoredMessage] | None:
    """The record at a physical offset that its queue says is there, and what it says of itself.

    The message has no body. None if no message begins there, or if its topic has been deleted.
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
