"""Clients: heartbeats with their groups, connections, queue locks, and running information."""

from mq.protocol.bodies.enums import CMResult, ConsumeFromWhere, ConsumeType, MessageModel
from mq.protocol.bodies.schema import Body, MessageQueue, field
from mq.protocol.bodies.subscription import SubscriptionData
from mq.protocol.codes import ONLY_SNODE, SINCE_5, LanguageCode


class ConsumeStatus(Body):
    """The consumption of a topic by a consumer: times in ms, rates per second, failures in the last
    hour.
    """

    pull_rt: float = field(default=0.0, wire="pullRT")
    pull_tps: float = field(default=0.0, wire="pullTPS")
    consume_rt: float = field(default=0.0, wire="consumeRT")
    consume_ok_tps: float = field(default=0.0, wire="consumeOKTPS")
    consume_failed_tps: float = field(default=0.0, wire="consumeFailedTPS")
    consume_failed_msgs: int = 0


class ProcessQueueInfo(Body):
    """A consumer's state of a queue; times in ms."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = field(default=0, wire="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopProcessQueueInfo(Body, release=SINCE_5):
    """A consumer's state of a queue that it pops from."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


class ConsumerRunningInfo(Body):
    """All that a consumer reports about itself."""

    properties: dict[str, str] = field(factory=dict)
    subscription_set: list[SubscriptionData] = field(factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(factory=dict)
    status_table: dict[str, ConsumeStatus] = field(factory=dict)
    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] | None = field(
        default=None, release=SINCE_5
    )
    user_consumer_info: dict[str, str] | None = field(default=None, release=SINCE_5)


class ConsumeMessageDirectlyResult(Body):
    """The result of a message that was consumed on demand."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0


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
