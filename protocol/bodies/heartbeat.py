"""Heartbeats: the groups of a client."""

from mq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel
from mq.protocol.bodies.schema import Body, field
from mq.protocol.bodies.subscription import SubscriptionData
from mq.protocol.codes import ONLY_SNODE, SINCE_5


class ProducerData(Body):
    """A group of a producer."""

    group_name: str = ""


class ConsumerData(Body):
    """A group of a consumer, with its subscriptions."""

    group_name: str = ""
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: list[SubscriptionData] = field(factory=list)
    unit_mode: bool = False


class SnodeIdentity(Body, release=ONLY_SNODE):
    """The snode that sends a heartbeat to a broker."""

    snode_name: str = ""


class HeartbeatData(Body):
    """All groups of a client."""

    client_id: str = field(default="", wire="clientID")
    producer_data_set: list[ProducerData] = field(factory=list)
    consumer_data_set: list[ConsumerData] = field(factory=list)
    heartbeat_fingerprint: int | None = field(default=None, release=SINCE_5)
    without_sub: bool | None = field(default=None, release=SINCE_5)
    snode_data: SnodeIdentity | None = field(default=None, release=ONLY_SNODE)
