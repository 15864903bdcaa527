"""The records of the revive topic: check points of popped messages, and acknowledgements.

    rmq_sys_REVIVE_LOG_<cluster>   tags ck, ack, bAck; bodies are JSON with names of one or two
                                   letters (PopCheckPoint, AckMsg and BatchAckMsg of 5.x)

Java keeps these messages in the timer until the check point is due. Here they are in the revive
topic from the start; their TIMER_DELIVER_MS is the time at which Java would have put them there, so
that a Java broker can continue with the topic.
"""

from collections.abc import Iterable, Sequence

import orjson

from mq.client.machine import clock
from mq.protocol import names
from mq.protocol.bodies.schema import Body, field
from mq.protocol.errors import LocalProtocolError
from mq.protocol.message import StoredMessage
from mq.protocol.pop_receipt import Receipt
from mq.protocol.properties import PropertyKey

REVIVE_GROUP = names.SYSTEM_GROUP_PREFIX + "REVIVE_GROUP"
CHECK_POINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"
# ms before its time at which a check point enters the revive topic
# (PopAckConstants.ackTimeInterval).
_ACK_INTERVAL = 1000
# Limit for a valid check point: Java has a bit of an int for each message, a pop delivers at most
# 32.
_MOST_MESSAGES = 1024

# Topic, group, queue id, start offset, pop time and broker name identify a check point.
Key = tuple[str, str, int, int, int, str]


def revive_topic(cluster: str) -> str:
    return names.REVIVE_TOPIC_PREFIX + cluster


class CheckPointBody(Body):
    """PopCheckPoint."""

    start_offset: int = field(default=0, wire="so")
    pop_time: int = field(default=0, wire="pt")
    invisible_time: int = field(default=0, wire="it")
    bit_map: int = field(default=0, wire="bm")
    num: int = field(default=0, wire="n")
    queue_id: int = field(default=0, wire="q")
    topic: str | None = field(default=None, wire="t")
    group: str | None = field(default=None, wire="c")
    revive_offset: int = field(default=0, wire="ro")
    differences: list[int] = field(factory=list, wire="d")
    broker_name: str | None = field(default=None, wire="bn")


class AckBody(Body):
    """AckMsg, and with `offsets` BatchAckMsg."""

    offset: int = field(default=0, wire="ao")
    start_offset: int = field(default=0, wire="so")
    group: str | None = field(default=None, wire="c")
    topic: str | None = field(default=None, wire="t")
    queue_id: int = field(default=0, wire="q")
    pop_time: int = field(default=0, wire="pt")
    broker_name: str | None = field(default=None, wire="bn")
    offsets: list[int] = field(factory=list, wire="aol")


class PopCheckPoint:
    """The messages that one pop took from one queue for one group.

    ``offsets`` are those of its messages, ``acked`` the acknowledged ones; ``revive_offset`` is the
    offset of its newest record in its revive queue.
    """

    __slots__ = (
        "acked",
        "acks_in_flight",
        "broker_name",
        "count",
        "ending",
        "group",
        "invisible_time",
        "is_group_deleted",
        "is_reviving",
        "offsets",
        "pop_time",
        "queue_id",
        "retried",
        "revive_offset",
        "revive_queue_id",
        "start_offset",
        "stored_at",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        group: str,
        queue_id: int,
        start_offset: int,
        offsets: Sequence[int],
        pop_time: int,
        invisible_time: int,
        revive_queue_id: int,
        broker_name: str,
    ) -> None:
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.start_offset = start_offset
        self.offsets = tuple(offsets)
        self.count = len(set(offsets))
        self.pop_time = pop_time
        self.invisible_time = invisible_time
        self.revive_queue_id = revive_queue_id
        self.broker_name = broker_name
        self.acked: set[int] = set()
        self.acks_in_flight = 0  # written, but not yet read from the revive queue
        # By offset, the number of acknowledgements that were written and not refused.
        self.ending: dict[int, int] = {}
        self.is_reviving = False
        self.is_group_deleted = False  # its group was deleted: nothing of it is redelivered
        self.retried: set[int] = set()  # offsets of messages that are already in the retry topic
        self.revive_offset = -1
        self.stored_at = pop_time

    @property
    def key(self) -> Key:
        return (
            self.topic,
            self.group,
            self.queue_id,
            self.start_offset,
            self.pop_time,
            self.broker_name,
        )

    @property
    def due(self) -> int:
        """The time at which unacknowledged messages are redelivered, ms."""
        return self.pop_time + self.invisible_time

    @property
    def missing(self) -> list[int]:
        """The offsets that were not acknowledged."""
        return [offset for offset in self.offsets if offset not in self.acked]

    def put_acks(self, offsets: Iterable[int]) -> None:
        """Count acknowledgements in flight: unless they are refused, these messages are not
        redelivered for this check point. Ignores offsets of other messages.
        """
        ending, own = self.ending, self.offsets
        for offset in offsets:
            if offset in own:
                ending[offset] = ending.get(offset, 0) + 1

    def take_acks_back(self, offsets: Iterable[int]) -> None:
        """Undo `put_acks` after a refusal. Another acknowledgement of the same message, not
        refused, still counts.
        """
        for offset in offsets:
            left = self.ending.pop(offset, 0) - 1
            if left > 0:
                self.ending[offset] = left

    def receipt(self, offset: int, mark: str) -> Receipt:
        return Receipt(
            self.start_offset,
            self.pop_time,
            self.invisible_time,
            self.revive_queue_id,
            mark,
            self.broker_name,
            self.queue_id,
            offset,
        )

    def record(self, cluster: str, host: tuple[str, int]) -> StoredMessage:
        """The message of the revive topic for this check point."""
        bits = sum(1 << n for n, offset in enumerate(self.offsets) if offset in self.acked)
        body = CheckPointBody(
            start_offset=self.start_offset,
            pop_time=self.pop_time,
            invisible_time=self.invisible_time,
            bit_map=bits - (1 << 32) if bits >= 1 << 31 else bits,
            num=len(self.offsets),
            queue_id=self.queue_id,
            topic=self.topic,
            group=self.group,
            differences=[offset - self.start_offset for offset in self.offsets],
            broker_name=self.broker_name,
        )
        due = self.due - _ACK_INTERVAL
        return _record(cluster, host, self.revive_queue_id, CHECK_POINT_TAG, body.encode(), due)

    @classmethod
    def read(cls, message: StoredMessage) -> "PopCheckPoint":
        """Parse a message of the revive topic. Raises RemoteProtocolError or ValueError."""
        body = CheckPointBody.decode(message.body)
        if body.topic is None or body.group is None:
            raise ValueError("a check point without topic or group")
        if not 0 <= body.num <= _MOST_MESSAGES or len(body.differences) > _MOST_MESSAGES:
            raise ValueError(f"a check point of {body.num} messages")
        # 5.0 wrote no differences: its messages are consecutive (PopCheckPoint.ackOffsetByIndex).
        differences = body.differences or list(range(body.num))
        found = cls(
            body.topic,
            body.group,
            body.queue_id,
            body.start_offset,
            [body.start_offset + difference for difference in differences],
            body.pop_time,
            body.invisible_time,
            message.queue_id,
            body.broker_name or "",
        )
        found.acked = {
            offset for n, offset in enumerate(found.offsets) if body.bit_map >> n & 1 and n < 32
        }
        found.revive_offset = message.queue_offset
        found.stored_at = message.store_timestamp
        return found


def ack_record(
    check_point: Key,
    offsets: Sequence[int],
    revive_queue_id: int,
    due: int,
    cluster: str,
    host: tuple[str, int],
) -> StoredMessage:
    """The message of the revive topic for an acknowledgement of messages of a check point."""
    topic, group, queue_id, start_offset, pop_time, broker_name = check_point
    # Same bytes as `AckBody.encode`, but faster: there is one for each popped message.
    body = {
        "ao": offsets[0] if len(offsets) == 1 else -1,
        "aol": list(offsets) if len(offsets) > 1 else [],
        "bn": broker_name,
        "c": group,
        "pt": pop_time,
        "q": queue_id,
        "so": start_offset,
        "t": topic,
    }
    tag = ACK_TAG if len(offsets) == 1 else BATCH_ACK_TAG
    try:
        raw = orjson.dumps(body)
    except TypeError as error:
        raise LocalProtocolError(f"AckBody: {error}") from None
    return _record(cluster, host, revive_queue_id, tag, raw, due)


def read_ack(message: StoredMessage) -> tuple[Key, list[int]]:
    """The check point and the offsets of an acknowledgement. Raises RemoteProtocolError."""
    body = AckBody.decode(message.body)
    key = (
        body.topic or "",
        body.group or "",
        body.queue_id,
        body.start_offset,
        body.pop_time,
        body.broker_name or "",
    )
    return key, body.offsets or [body.offset]


def _record(
    cluster: str, host: tuple[str, int], queue_id: int, tag: str, body: bytes, due: int
) -> StoredMessage:
    return StoredMessage(
        revive_topic(cluster),
        body,
        {PropertyKey.TAGS: tag, PropertyKey.TIMER_DELIVER_MS: str(due)},
        queue_id=queue_id,
        born_timestamp=clock.milliseconds(),
        born_host=host,
    )
