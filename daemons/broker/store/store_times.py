"""Store times of the messages of a queue, and searches by store time."""

from enum import StrEnum

from mq.daemons.broker.store.message_store import MessageStore


class Boundary(StrEnum):
    """Selects the first or the last message stored at a time (BoundaryType of 5.x)."""

    LOWER = "lower"
    UPPER = "upper"

    @classmethod
    def named(cls, name: str) -> "Boundary":
        """The boundary of a request; as in Java, any name but "upper", in any case, is LOWER."""
        return cls.UPPER if name.lower() == cls.UPPER else cls.LOWER


def store_time(store: MessageStore, topic: str, queue_id: int, offset: int) -> int:
    """The store timestamp of a message in ms, -1 if it does not exist."""
    entry = store.entries.at(topic, queue_id, offset)
    return -1 if entry is None else (store.log.store_timestamp(entry[0]) or -1)


def earliest_store_time(store: MessageStore, topic: str, queue_id: int) -> int:
    """The store timestamp of a queue's first message."""
    return store_time(store, topic, queue_id, store.min_offset(topic, queue_id))


def nearest_offset(store: MessageStore, topic: str, queue_id: int, timestamp: int) -> int:
    """The queue offset of the message whose store timestamp is nearest, the earlier one on a tie.

    If all messages are older, this is the last message, not the end. Java 4.9.8 returns the same
    (ConsumeQueue.getOffsetInQueueByTime), but first picks a file by its modification time.
    """
    queue = store.queues.get(topic, queue_id)
    if queue is None or queue.readable <= queue.minimum:
        return 0
    later = _first_not_older(store, topic, queue_id, timestamp)
    if later == queue.minimum:
        return later
    if later == queue.readable:
        return later - 1
    after = store_time(store, topic, queue_id, later) - timestamp
    before = timestamp - store_time(store, topic, queue_id, later - 1)
    return later - 1 if after > 0 and before <= after else later


def offset_by_boundary(
    store: MessageStore, topic: str, queue_id: int, timestamp: int, boundary: Boundary
) -> int:
    """LOWER: the offset of the first message stored at `timestamp` or later, else the end. UPPER:
    the offset of the last message stored at `timestamp` or earlier, else 0.

    Java 5.x returns the same (ConsumeQueue.binarySearchInQueueByTime).
    """
    queue = store.queues.get(topic, queue_id)
    if queue is None:
        return 0
    if boundary is Boundary.LOWER:
        return _first_not_older(store, topic, queue_id, timestamp)
    later = _first_not_older(store, topic, queue_id, timestamp + 1)
    return later - 1 if later > queue.minimum else 0


def _first_not_older(store: MessageStore, topic: str, queue_id: int, timestamp: int) -> int:
    queue = store.queues.get(topic, queue_id)
    assert queue is not None
    low, high = queue.minimum, max(queue.minimum, queue.readable)
    while low < high:
        middle = (low + high) // 2
        if store_time(store, topic, queue_id, middle) < timestamp:
            low = middle + 1
        else:
            high = middle
    return low
