"""Store times of the messages of a queue, and which message is nearest to a time."""

from mq.daemons.broker.store.message_store import MessageStore


def store_time(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """The store timestamp in ms of a message, -1 if it is not there."""
    entry = store.entries.at(topic, queue_id, offset)
    return -1 if entry is None else (store.log.store_timestamp(entry[0]) or -1)


def earliest_store_time(store: MessageStore, topic: str, queue_id: int) -> int:
    """That of a queue's first message."""
    return store_time(store, topic, queue_id, store.min_offset(topic, queue_id))


def offset_by_time(store: MessageStore, topic: str, queue_id: int, timestamp: int) -> int:
    """The queue offset of the message whose store timestamp is nearest, the earlier on a tie.

    With all messages older it is the last one, not the end. 4.9.8 does the same
    (ConsumeQueue.getOffsetInQueueByTime) but picks a file by its modification time first.
    """
    queue = store.queues.get(topic, queue_id)
    if queue is None or queue.readable <= queue.minimum:
        return 0
    low, high = queue.minimum, queue.readable - 1
    while low < high:  # the first message that is not older
        middle = (low + high) // 2
        if store_time(store, topic, queue_id, middle) < timestamp:
            low = middle + 1
        else:
            high = middle
    later = store_time(store, topic, queue_id, low) - timestamp
    if later <= 0 or low == queue.minimum:
        return low
    earlier = timestamp - store_time(store, topic, queue_id, low - 1)
    return low - 1 if earlier <= later else low
