"""Groups: their subscriptions, members, statistics and state."""

from mq.protocol.codes import ONLY_4, ONLY_SNODE, SINCE_5, RequestCode
from mq.protocol.headers.rpc import RpcRequestHeader, TopicRequestHeader
from mq.protocol.headers.schema import Header, Int, field


class DeleteSubscriptionGroupRequestHeader(
    RpcRequestHeader, request=RequestCode.DELETE_SUBSCRIPTIONGROUP
):
    """Delete a subscription group."""

    group_name: str
    remove_offset: bool | None = field(default=None, release=ONLY_4)
    clean_offset: bool | None = field(default=None, release=SINCE_5)


class GetSubscriptionGroupConfigRequestHeader(
    RpcRequestHeader, request=RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, release=SINCE_5
):
    """Get a subscription group of a broker."""

    group: str


class GetAllSubscriptionGroupRequestHeader(
    Header, request=RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, release=SINCE_5
):
    """Get all subscription groups of a broker; in pages if the request names one."""

    group_seq: Int
    data_version: str | None = None
    max_group_num: Int | None = None


class GetAllSubscriptionGroupResponseHeader(
    Header, answers=RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, release=SINCE_5
):
    """The total number of groups."""

    total_group_num: Int


class UpdateGroupForbiddenRequestHeader(
    TopicRequestHeader, request=RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, release=SINCE_5
):
    """Forbid or allow a group to read a topic, or get the current state."""

    group: str
    topic: str
    readable: bool | None = None


class GetConsumerListByGroupRequestHeader(
    RpcRequestHeader, request=RequestCode.GET_CONSUMER_LIST_BY_GROUP
):
    """Get the client ids of a group's consumers."""

    consumer_group: str


class GetConsumerListByGroupResponseHeader(Header, answers=RequestCode.GET_CONSUMER_LIST_BY_GROUP):
    """Empty: the ids are the body."""


class GetConsumerConnectionListRequestHeader(
    RpcRequestHeader, request=RequestCode.GET_CONSUMER_CONNECTION_LIST
):
    """Get the connections and subscriptions of a group's consumers."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(
    RpcRequestHeader, request=RequestCode.GET_PRODUCER_CONNECTION_LIST
):
    """Get the connections of a group's producers."""

    producer_group: str


class GetAllProducerInfoRequestHeader(Header, request=RequestCode.GET_ALL_PRODUCER_INFO):
    """Get all producers of a broker."""


class GetConsumerRunningInfoRequestHeader(
    RpcRequestHeader, request=RequestCode.GET_CONSUMER_RUNNING_INFO
):
    """Get the inner state of a consumer, which the broker requests from it."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class GetConsumerStatusRequestHeader(
    TopicRequestHeader,
    request=(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    ),
):
    """Get the progress of each consumer of a group; sent to the broker, and by it to the
    consumers.
    """

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumeStatsRequestHeader(TopicRequestHeader, request=RequestCode.GET_CONSUME_STATS):
    """Get the offsets of a group and of its queues."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = field(default=None, release=SINCE_5)


class GetConsumeStatsInBrokerHeader(Header, request=RequestCode.GET_BROKER_CONSUME_STATS):
    """Get the offsets of all groups of a broker."""

    is_order: bool = False


class QueryTopicsByConsumerRequestHeader(
    RpcRequestHeader, request=RequestCode.QUERY_TOPICS_BY_CONSUMER, release=SINCE_5
):
    """Get the topics that a group consumes."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(
    TopicRequestHeader, request=RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, release=SINCE_5
):
    """Get the subscription of a group to a topic."""

    group: str
    topic: str | None = None


class NotifyConsumerIdsChangedRequestHeader(
    RpcRequestHeader, request=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
):
    """The broker notifies consumers that their group has changed, so that they rebalance."""

    consumer_group: str


class ConsumeMessageDirectlyResultRequestHeader(
    TopicRequestHeader, request=RequestCode.CONSUME_MESSAGE_DIRECTLY
):
    """Let one consumer consume one message now."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = field(default=None, release=SINCE_5)
    topic_sys_flag: Int | None = field(default=None, release=SINCE_5)
    group_sys_flag: Int | None = field(default=None, release=SINCE_5)


class UnregisterClientRequestHeader(RpcRequestHeader, request=RequestCode.UNREGISTER_CLIENT):
    """A client leaves its groups."""

    client_id: str = field(default="", wire="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class UnregisterClientResponseHeader(Header, answers=RequestCode.UNREGISTER_CLIENT):
    """Empty."""


class HeartbeatRequestHeader(RpcRequestHeader, request=RequestCode.HEART_BEAT, release=SINCE_5):
    """A heartbeat of a client, with its groups in the body."""


class LockBatchMqRequestHeader(
    RpcRequestHeader, request=RequestCode.LOCK_BATCH_MQ, release=SINCE_5
):
    """Lock the queues in the body for one consumer."""

    enode_name: str | None = field(default=None, release=ONLY_SNODE)


class UnlockBatchMqRequestHeader(
    RpcRequestHeader, request=RequestCode.UNLOCK_BATCH_MQ, release=SINCE_5
):
    """Unlock the queues in the body."""

    enode_name: str | None = field(default=None, release=ONLY_SNODE)
