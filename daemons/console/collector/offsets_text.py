"""Parses offsets in brokers' replies without an object for each queue.

A large cluster has tens of thousands of queues, polled every minute. Our brokers and Java's write
the fields of a queue in a fixed order, which a pattern finds in a tenth of the time; other replies
are decoded normally.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from mq.client.admin.base import read
from mq.client.errors import BadAnswer
from mq.client.operations.broker_stats import fits_counter
from mq.protocol.bodies import ConsumeStats, TopicStatsTable

_KEY = rb'\{"brokerName":"[^"\\]*","queueId":(\d{1,10}),"topic":"([^"\\]*)"\}:'
_LONG = rb"(-?\d{1,19})"  # the digits of 64 bits: more would take time, and be no offset
# 5.x adds pullOffset.
_PROGRESS = re.compile(
    rb'%s\{"brokerOffset":%s,"consumerOffset":%s,"lastTimestamp":%s[,}]'
    % (_KEY, _LONG, _LONG, _LONG)
)
_BOUNDS = re.compile(
    rb'%s\{"lastUpdateTimestamp":%s,"maxOffset":%s,"minOffset":%s[,}]' % (_KEY, _LONG, _LONG, _LONG)
)

# The limit for queues in one reply; more than any group or topic has at one broker.
MOST_QUEUES = 20_000


class QueueProgress(NamedTuple):
    """A queue's end, the group's offset, and the store time (ms) of the last consumed message."""

    topic: str
    queue: int
    end: int
    place: int
    consumed_at: int

    @property
    def lag(self) -> int:
        """The messages that the group has not consumed, as `OffsetWrapper.lag`."""
        return self.end - self.place


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """A topic at one broker: sum of its queues' ends, messages kept, time of the last one."""

    queues: int
    end: int
    stored: int
    last_stored_at: int


def progress(body: bytes | memoryview, address: str) -> list[QueueProgress]:
    """Parse the reply to GET_CONSUME_STATS. Raises BadAnswer, also for more than MOST_QUEUES."""
    raw = bytes(body)
    if raw.count(b'"consumerOffset"') > MOST_QUEUES:
        raise _too_many(address)
    found = _PROGRESS.findall(raw)
    if len(found) == raw.count(b'"consumerOffset"'):
        names: dict[bytes, str] = {}
        return [
            QueueProgress(_name(names, topic), int(queue), int(end), int(place), int(at))
            for queue, topic, end, place, at in found
        ]
    stats = read(ConsumeStats.decode, raw, address)
    for o in stats.offset_table.values():
        _check((o.broker_offset, o.consumer_offset, o.last_timestamp), address)
    return [
        QueueProgress(q.topic, q.queue_id, o.broker_offset, o.consumer_offset, o.last_timestamp)
        for q, o in stats.offset_table.items()
    ]


def bounds(body: bytes | memoryview, address: str) -> TopicBounds:
    """Sum up the reply to GET_TOPIC_STATS_INFO. Raises BadAnswer as `progress` does."""
    raw = bytes(body)
    if raw.count(b'"maxOffset"') > MOST_QUEUES:
        raise _too_many(address)
    found = _BOUNDS.findall(raw)
    if len(found) == raw.count(b'"maxOffset"'):
        queues = [(int(at), int(end), int(begin)) for _, _, at, end, begin in found]
    else:
        table = read(TopicStatsTable.decode, raw, address).offset_table.values()
        queues = [(one.last_update_timestamp, one.max_offset, one.min_offset) for one in table]
        for one in queues:
            _check(one, address)
    return TopicBounds(
        queues=len(queues),
        end=sum(end for _, end, _ in queues),
        stored=sum(end - begin for _, end, begin in queues),
        last_stored_at=max((at for at, _, _ in queues), default=0),
    )


def _name(names: dict[bytes, str], raw: bytes) -> str:
    name = names.get(raw)
    if name is None:
        name = names[raw] = raw.decode("utf-8", "replace")
    return name


def _check(numbers: Iterable[int], address: str) -> None:
    """Raise BadAnswer for values over 64 bits, whose sums would be unbounded."""
    if not all(map(fits_counter, numbers)):
        raise BadAnswer(address, "an offset or a time over 64 bits")


def _too_many(address: str) -> BadAnswer:
    return BadAnswer(address, f"offsets of more than {MOST_QUEUES} queues")
