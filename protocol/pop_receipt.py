"""Receipts and other texts by which consumers and broker identify popped messages (ExtraInfoUtil of
5.x).

A receipt consists of the numbers below, separated by blanks; consumers keep it as the property
POP_CK and send it with every acknowledgement:

    start offset, pop time, invisible time, revive queue, retry mark, broker name, queue id, offset

The retry mark tells in which topic the message is: 0 for the requested topic, 1 for the retry topic
of the group for it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mq.protocol import names
from mq.protocol.errors import RemoteProtocolError

NORMAL_MARK = "0"
RETRY_MARK = "1"
# In place of a revive queue: an ordered pop, which has no check point.
ORDER_QUEUE = 999


class Receipt(NamedTuple):
    """The receipt of a popped message; times in ms."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    mark: str
    broker_name: str
    queue_id: int
    offset: int

    @property
    def visible_at(self) -> int:
        """The time at which the message becomes visible again unless it is acknowledged, ms."""
        return self.pop_time + self.invisible_time

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue_id == ORDER_QUEUE

    def encode(self) -> str:
        parts = (
            self.start_offset,
            self.pop_time,
            self.invisible_time,
            self.revive_queue_id,
            self.mark,
            self.broker_name,
            self.queue_id,
            self.offset,
        )
        return " ".join(map(str, parts))

    @classmethod
    def decode(cls, text: str, queue_id: int, offset: int) -> "Receipt":
        """Parse a receipt. Requests have queue and offset separately, and the text may lack them.

        Raises RemoteProtocolError.
        """
        parts = text.split(" ")
        try:
            start, pop_time, invisible_time, revive_queue = map(_number, parts[:4])
            mark, broker_name = parts[4:6]
        except ValueError:
            raise RemoteProtocolError(
                f"extraInfo {text[:100]!r} is not the receipt of a popped message"
            ) from None
        return cls(
            start, pop_time, invisible_time, revive_queue, mark, broker_name, queue_id, offset
        )


def _number(text: str) -> int:
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(text)
    return number


def retry_topic(group: str, topic: str) -> str:
    """The topic for redelivering messages that a group popped from a topic and did not
    acknowledge."""
    return f"{names.RETRY_PREFIX}{group}_{topic}"


def normal_topic(topic: str, group: str) -> str:
    """The topic to which a retry topic belongs; any other topic is returned as it is."""
    start = f"{names.RETRY_PREFIX}{group}_"
    return topic[len(start) :] if topic.startswith(start) else topic


def mark_of(topic: str) -> str:
    return RETRY_MARK if topic.startswith(names.RETRY_PREFIX) else NORMAL_MARK


def marked_topic(topic: str, group: str, mark: str) -> str:
    """The topic of a message, from the requested topic and the retry mark.

    Raises RemoteProtocolError for another mark: retry topics of the second form have a "+" in their
    name, which is not supported.
    """
    if mark == NORMAL_MARK:
        return topic
    if mark == RETRY_MARK:
        return retry_topic(group, topic)
    raise RemoteProtocolError(f"the retry mark {mark[:20]!r} of a receipt is neither 0 nor 1")


def start_offset_info(parts: Iterable[tuple[str, int, int]]) -> str:
    """Topic, queue id and start offset of each queue that was popped from."""
    return ";".join(f"{mark_of(topic)} {queue_id} {start}" for topic, queue_id, start in parts)


def message_offset_info(parts: Iterable[tuple[str, int, Sequence[int]]]) -> str:
    """Topic, queue id and the offsets of the messages."""
    return ";".join(
        f"{mark_of(topic)} {queue_id} {','.join(map(str, offsets))}"
        for topic, queue_id, offsets in parts
    )


def order_count_info(parts: Iterable[tuple[str, int, Sequence[int], Sequence[int]]]) -> str:
    """Topic, queue id, offsets and how often each message was popped before.

    New messages are omitted. After the entries of a queue, its lowest count stands for the whole
    queue: older SDKs read only that (ConsumerOrderInfoManager.update).
    """
    texts = []
    for topic, queue_id, offsets, counts in parts:
        mark = mark_of(topic)
        texts += [
            f"{mark} qo{queue_id}%{offset} {count}"
            for offset, count in zip(offsets, counts, strict=False)
            if count
        ]
        texts.append(f"{mark} {queue_id} {min(counts, default=0)}")
    return ";".join(texts)
