"""Progress of groups."""

from mq.protocol.bodies.common import DataVersion
from mq.protocol.bodies.schema import Body, MessageQueue, field
from mq.protocol.codes import SINCE_5


class ConsumerOffsetSerializeWrapper(Body):
    """The offsets of all groups: by `topic@group`, then by queue id."""

    offset_table: dict[str, dict[int, int]] = field(factory=dict)
    data_version: DataVersion | None = field(default=None, release=SINCE_5)


class OffsetWrapper(Body):
    """A group's offset in a queue, and the end of the queue; lastTimestamp in ms."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int | None = field(default=None, release=SINCE_5)

    @property
    def lag(self) -> int:
        """The messages that the group has not consumed; negative if its offset is past the end."""
        return self.broker_offset - self.consumer_offset


class ConsumeStats(Body):
    """The progress of a group in each queue."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(factory=dict)
    consume_tps: float = 0.0

    @property
    def lag(self) -> int:
        """The lag over all queues."""
        return sum(offset.lag for offset in self.offset_table.values())


class ConsumeStatsList(Body):
    """The progress of all groups of a broker."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(factory=list)
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int | None = field(default=None, release=SINCE_5)


class GetConsumerStatusBody(Body):
    """The progress of each consumer of a group in each queue, by client id."""

    message_queue_table: dict[MessageQueue, int] = field(factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(factory=dict)


class QueryCorrectionOffsetBody(Body):
    """Offsets by queue id."""

    correction_offsets: dict[int, int] = field(factory=dict)


class QueueTimeSpan(Body):
    """Times in ms of the first, the last and the last consumed message of a queue."""

    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class QueryConsumeTimeSpanBody(Body):
    """The time spans of all queues."""

    consume_time_span_set: list[QueueTimeSpan] = field(factory=list)


class ResetOffsetBody(Body):
    """New offsets for a group."""

    offset_table: dict[MessageQueue, int] = field(factory=dict)


class MessageQueueForC(Body):
    """A queue and an offset, for clients that cannot read maps with object keys."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0
    offset: int = 0


class ResetOffsetBodyForC(Body):
    """New offsets for a group, for such clients."""

    offset_table: list[MessageQueueForC] = field(factory=list)


class OffsetMovedEvent(Body):
    """A group requested an offset that no longer exists, and got another one instead."""

    consumer_group: str | None = None
    message_queue: MessageQueue | None = None
    offset_request: int = 0
    offset_new: int = 0


class RollbackStats(Body):
    """The effect of an offset reset on a queue."""

    broker_name: str = ""
    queue_id: int = 0
    broker_offset: int = 0
    consumer_offset: int = 0
    timestamp_offset: int = 0
    rollback_offset: int = 0


class ConsumeByWho(Body):
    """The groups that have consumed a message, and those that have not."""

    consumed_group: set[str] = field(factory=set)
    not_consumed_group: set[str] = field(factory=set)
    topic: str = ""
    queue_id: int = 0
    offset: int = 0
