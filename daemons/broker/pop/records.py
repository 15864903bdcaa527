"""What the revive topic holds: check points of what was popped, and acknowledgements of it.

    rmq_sys_REVIVE_LOG_<cluster>   tags ck, ack, bAck; bodies are JSON with names of one or two
                                   letters (PopCheckPoint, AckMsg and BatchAckMsg of 5.x)

Java lets these messages wait in the timer until the check point is due. Here they are in the revive
topic from the start, and say in TIMER_DELIVER_MS when Java would have put them there, so that a
Java broker can go on with what is in the topic.
"""

from collections.abc import Iterable, Sequence

import orjson

from mq.client.machine import clock
from mq.daemons.broker.pop.receipt import Receipt
from mq.protocol import names
from mq.protocol.bodies.schema import Body, field
from mq.protocol.errors import LocalProtocolError
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey

REVIVE_GROUP = names.SYSTEM_GROUP_PREFIX + "REVIVE_GROUP"
CHECK_POINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"
# A check point is in the revive topic so long before its time (PopAckConstants.ackTimeInterval).
_ACK_INTERVAL = 1000
# Of a check point that is believed: Java has a bit of an int for each, a pop gives 32 at the most.
_MOST_MESSAGES = 1024

#: Topic, group, queue id, start offset, pop time and broker name tell check points apart.
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
    """What one pop took from one queue for one group.

    ``offsets`` are those of its messages, ``acked`` those that were acknowledged; ``revive_offset``
    is where its newest record stands in its revive queue.
    """

    __slots__ = (
        "acked",
        "acks_under_way",
        "again",
        "broker_name",
        "count",
        "ending",
        "group",
        "invisible_time",
        "is_forgotten",
        "is_reviving",
        "offsets",
        "pop_time",
        "queue_id",
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
        self.acks_under_way = 0  # put, but not yet read from the revive queue
        # How many acknowledgements of each message have been put, and were not refused.
        self.ending: dict[int, int] = {}
        self.is_reviving = False
        self.is_forgotten = False  # its group was deleted: nothing of it comes again
        self.again: set[int] = set()  # offsets of those that are in the retry topic already
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
        """When what is not acknowledged comes again, ms."""
        return self.pop_time + self.invisible_time

    @property
    def missing(self) -> list[int]:
        """The offsets that were not acknowledged."""
        return [offset for offset in self.offsets if offset not in self.acked]

    def put_acks(self, offsets: Iterable[int]) -> None:
        """An acknowledgement of these is on its way: of this check point they do not come again,
        unless it is taken back. Others than its own are not kept."""
        ending, own = self.ending, self.offsets
        for offset in offsets:
            if offset in own:
                ending[offset] = ending.get(offset, 0) + 1

    def take_acks_back(self, offsets: Iterable[int]) -> None:
        """It was refused. Another one of the same, which was not, still counts."""
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
        """The message of the revive topic that says all this."""
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
        """Read one of the revive topic. Raises RemoteProtocolError or ValueError."""
        body = CheckPointBody.decode(message.body)
        if body.topic is None or body.group is None:
            raise ValueError("a check point without topic or group")
        if not 0 <= body.num <= _MOST_MESSAGES or len(body.differences) > _MOST_MESSAGES:
            raise ValueError(f"a check point of {body.num} messages")
        # 5.0 wrote no differences: its messages lie side by side (PopCheckPoint.ackOffsetByIndex).
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
    """The message of the revive topic that says that messages of a check point were consumed."""
    topic, group, queue_id, start_offset, pop_time, broker_name = check_point
    # An AckBody, of which there is one for each message that is popped, as its `encode` writes it.
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
