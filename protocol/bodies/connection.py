"""The clients connected to a broker."""

from mq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel
from mq.protocol.bodies.schema import Body, field
from mq.protocol.bodies.subscription import SubscriptionData
from mq.protocol.codes import LanguageCode


class Connection(Body):
    """A connected client."""

    client_id: str = ""
    client_addr: str = ""
    language: LanguageCode | None = None
    version: int = 0


class ProducerConnection(Body):
    """The producers of a group."""

    connection_set: list[Connection] = field(factory=list)


class ConsumerConnection(Body):
    """The consumers of a group, and its subscriptions."""

    connection_set: list[Connection] = field(factory=list)
    subscription_table: dict[str, SubscriptionData] = field(factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerInfo(Body):
    """A producer, with the time of its last heartbeat in ms."""

    client_id: str = ""
    remote_ip: str = field(default="", wire="remoteIP")
    language: LanguageCode | None = None
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTableInfo(Body):
    """All producers of a broker by group."""

    data: dict[str, list[ProducerInfo]] = field(factory=dict)


class GetConsumerListByGroupResponseBody(Body):
    """The client ids of the consumers of a group."""

    consumer_id_list: list[str] = field(factory=list)
