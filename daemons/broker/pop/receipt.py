"""The texts by which consumers and broker name what was popped (ExtraInfoUtil of 5.x).

A receipt is the numbers below with a blank between them; consumers keep it as the property POP_CK
and bring it with every acknowledgement:

    start offset, pop time, invisible time, revive queue, retry mark, broker name, queue id, offset

The retry mark tells which topic the message lies in: 0 the one asked for, 1 the retry topic of the
group in it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mq.protocol import names
from mq.protocol.errors import RemoteProtocolError

NORMAL_MARK = "0"
RETRY_MARK = "1"
# In the place of a revive queue: the message was popped in order and has no check point.
ORDER_QUEUE = 999


class Receipt(NamedTuple):
    """What a consumer gets for a message that it popped; times in ms."""

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
        """When the message shows up again unless it is acknowledged, ms."""
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
        """Read one; queue and offset stand beside it in requests and may be missing in it.

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
    """Where what a group popped of a topic and did not acknowledge comes again."""
    return f"{names.RETRY_PREFIX}{group}_{topic}"


def normal_topic(topic: str, group: str) -> str:
    """The topic that a retry topic belongs to; any other belongs to itself."""
    start = f"{names.RETRY_PREFIX}{group}_"
    return topic[len(start) :] if topic.startswith(start) else topic


def mark_of(topic: str) -> str:
    return RETRY_MARK if topic.startswith(names.RETRY_PREFIX) else NORMAL_MARK


def marked_topic(topic: str, group: str, mark: str) -> str:
    """The topic that a message lies in, from the one asked for and its mark.

    Raises RemoteProtocolError for another mark: retry topics of the second form have a "+" in their
    name, which is not taken here.
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
    """Topic, queue id, offsets and how often each of their messages was popped before.

    New messages are left out. Behind those of a queue the least of its counts stands for all of it:
    older SDKs look for that alone (ConsumerOrderInfoManager.update).
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
