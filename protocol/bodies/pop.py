"""POP consumption, in which the broker assigns the messages (5.x)."""

from mq.protocol.bodies.enums import MessageModel, MessageRequestMode
from mq.protocol.bodies.schema import Body, MessageQueue, field
from mq.protocol.codes import SINCE_5


class BatchAck(Body, release=SINCE_5):
    """Acknowledged messages; names of one or two letters in JSON."""

    consumer_group: str | None = field(default=None, wire="c")
    topic: str | None = field(default=None, wire="t")
    retry: str | None = field(default=None, wire="r")
    start_offset: int = field(default=0, wire="so")
    queue_id: int = field(default=0, wire="q")
    revive_queue_id: int = field(default=0, wire="rq")
    pop_time: int = field(default=0, wire="pt")
    invisible_time: int = field(default=0, wire="it")
    bit_set: str | None = field(default=None, wire="b")


class BatchAckMessageRequestBody(Body, release=SINCE_5):
    """Several batches of acknowledged messages."""

    broker_name: str | None = None
    acks: list[BatchAck] = field(factory=list)


class MessageQueueAssignment(Body, release=SINCE_5):
    """A queue assigned to a consumer, and how the consumer reads it."""

    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] = field(factory=dict)


class QueryAssignmentRequestBody(Body, release=SINCE_5):
    """A consumer requests its queues."""

    topic: str | None = None
    consumer_group: str | None = None
    client_id: str | None = None
    strategy_name: str | None = None
    message_model: MessageModel | None = None


class QueryAssignmentResponseBody(Body, release=SINCE_5):
    """The queues assigned to a consumer."""

    message_queue_assignments: list[MessageQueueAssignment] = field(factory=list)


class SetMessageRequestModeRequestBody(Body, release=SINCE_5):
    """Set how a group reads a topic."""

    topic: str | None = None
    consumer_group: str | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: int = 0


class MessageRequestModeSerializeWrapper(Body, release=SINCE_5):
    """How groups read topics: by topic, then by group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(
        factory=dict
    )
