"""Offsets in the answers of brokers, found without building an object for each queue.

A large cluster has tens of thousands of queues, looked at every minute. Ours and Java's brokers
write the fields of a queue in one order, which a pattern finds in a tenth of the time; what looks
otherwise is decoded as always.
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
_LONG = rb"(-?\d{1,19})"  # as many digits as 64 bits have: more would cost time, and be no offset
# 5.x adds pullOffset.
_PROGRESS = re.compile(
    rb'%s\{"brokerOffset":%s,"consumerOffset":%s,"lastTimestamp":%s[,}]'
    % (_KEY, _LONG, _LONG, _LONG)
)
_BOUNDS = re.compile(
    rb'%s\{"lastUpdateTimestamp":%s,"maxOffset":%s,"minOffset":%s[,}]' % (_KEY, _LONG, _LONG, _LONG)
)

#: Queues of one answer that are looked at; more than any group or topic has at one broker.
MOST_QUEUES = 20_000


class QueueProgress(NamedTuple):
    """A queue's end, where the group is, and the store time (ms) of what it consumed last."""

    topic: str
    queue: int
    end: int
    place: int
    consumed_at: int


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """A topic at one broker: ends of its queues together, messages kept, the last one's time."""

    queues: int
    end: int
    stored: int
    last_stored_at: int


def progress(body: bytes | memoryview, address: str) -> list[QueueProgress]:
    """What GET_CONSUME_STATS answers. Raises BadAnswer, also for more than MOST_QUEUES."""
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
    """What GET_TOPIC_STATS_INFO answers, in sums. Raises BadAnswer as `progress` does."""
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
    """Raises BadAnswer for what no offset or time can be: sums of it have no end."""
    if not all(map(fits_counter, numbers)):
        raise BadAnswer(address, "an offset or a time beyond 64 bits")


def _too_many(address: str) -> BadAnswer:
    return BadAnswer(address, f"offsets of more than {MOST_QUEUES} queues")
