"""Queues that one consumer of a group has locked."""

from mq.protocol.bodies.schema import Body, MessageQueue, field
from mq.protocol.codes import SINCE_5


class LockBatchRequestBody(Body):
    """Queues to lock."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: set[MessageQueue] = field(factory=set)
    only_this_broker: bool | None = field(default=None, release=SINCE_5)


class LockBatchResponseBody(Body):
    """The queues that were locked."""

    lock_ok_mq_set: set[MessageQueue] = field(factory=set, wire="lockOKMQSet")


class UnlockBatchRequestBody(Body):
    """Queues to unlock."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: set[MessageQueue] = field(factory=set)
    only_this_broker: bool | None = field(default=None, release=SINCE_5)
