"""Offsets of queues in options and checkpoints: {topic: {broker: {queue: offset}}}."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

EARLIEST = -2  # in JSON, as in rocketmq-spark
LATEST = -1

Nested = dict[str, dict[str, dict[str, int]]]


class Queue(NamedTuple):
    """A queue of a topic at a broker."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic} at broker {self.broker_name}"


Offsets = dict[Queue, int]


def to_nested(offsets: Mapping[Queue, int]) -> Nested:
    """Return the form of checkpoints, for JSON. It is sorted, so that equal offsets are equal text:
    Spark compares texts to find out whether there are new messages.
    """
    nested: Nested = {}
    for queue in sorted(offsets):
        brokers = nested.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def from_nested(nested: object) -> Offsets:
    """Parse what `to_nested` returned, or a user wrote.

    Raises ValueError that names the invalid part.
    """
    offsets = {}
    for topic, brokers in _items(nested, "the whole"):
        for broker, queues in _items(brokers, f"topic {topic}"):
            for queue_id, offset in _items(queues, f"broker {broker} of topic {topic}"):
                if not queue_id.isdecimal():
                    raise ValueError(f"{queue_id!r} of topic {topic} is not the number of a queue")
                if type(offset) is not int or offset < EARLIEST:
                    raise ValueError(f"the offset {offset!r} of queue {queue_id} of topic {topic}")
                offsets[Queue(topic, broker, int(queue_id))] = offset
    return offsets


def _items(value: object, what: str) -> Iterable[tuple[str, object]]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value.items()
