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
    """One subscription group of a broker."""

    group: str


class GetAllSubscriptionGroupRequestHeader(
    Header, request=RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, release=SINCE_5
):
    """All subscription groups of a broker, in pages for a caller that names one."""

    group_seq: Int
    data_version: str | None = None
    max_group_num: Int | None = None


class GetAllSubscriptionGroupResponseHeader(
    Header, answers=RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, release=SINCE_5
):
    """How many groups there are."""

    total_group_num: Int


class UpdateGroupForbiddenRequestHeader(
    TopicRequestHeader, request=RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, release=SINCE_5
):
    """Forbid a group to read a topic, or ask whether it is."""

    group: str
    topic: str
    readable: bool | None = None


class GetConsumerListByGroupRequestHeader(
    RpcRequestHeader, request=RequestCode.GET_CONSUMER_LIST_BY_GROUP
):
    """The client ids of a group's consumers."""

    consumer_group: str


class GetConsumerListByGroupResponseHeader(Header, answers=RequestCode.GET_CONSUMER_LIST_BY_GROUP):
    """Nothing: the ids are the body."""


class GetConsumerConnectionListRequestHeader(
    RpcRequestHeader, request=RequestCode.GET_CONSUMER_CONNECTION_LIST
):
    """The connections and subscriptions of a group's consumers."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(
    RpcRequestHeader, request=RequestCode.GET_PRODUCER_CONNECTION_LIST
):
    """The connections of a group's producers."""

    producer_group: str


class GetAllProducerInfoRequestHeader(Header, request=RequestCode.GET_ALL_PRODUCER_INFO):
    """All producers of a broker."""


class GetConsumerRunningInfoRequestHeader(
    RpcRequestHeader, request=RequestCode.GET_CONSUMER_RUNNING_INFO
):
    """The inner state of a consumer, which the broker asks it for."""

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
    """How far each consumer of a group has come; first to the broker, then to them."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumeStatsRequestHeader(TopicRequestHeader, request=RequestCode.GET_CONSUME_STATS):
    """Offsets of a group beside those of the queues."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = field(default=None, release=SINCE_5)


class GetConsumeStatsInBrokerHeader(Header, request=RequestCode.GET_BROKER_CONSUME_STATS):
    """The same for all groups of a broker."""

    is_order: bool = False


class QueryTopicsByConsumerRequestHeader(
    RpcRequestHeader, request=RequestCode.QUERY_TOPICS_BY_CONSUMER, release=SINCE_5
):
    """The topics that a group consumes."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(
    TopicRequestHeader, request=RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, release=SINCE_5
):
    """The subscription of a group to a topic."""

    group: str
    topic: str | None = None


class NotifyConsumerIdsChangedRequestHeader(
    RpcRequestHeader, request=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
):
    """The broker tells consumers that their group changed, so that they share its queues anew."""

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
    """Nothing."""


class HeartbeatRequestHeader(RpcRequestHeader, request=RequestCode.HEART_BEAT, release=SINCE_5):
    """A client lives; its groups are the body."""


class LockBatchMqRequestHeader(
    RpcRequestHeader, request=RequestCode.LOCK_BATCH_MQ, release=SINCE_5
):
    """Lock the queues in the body for one consumer."""

    enode_name: str | None = field(default=None, release=ONLY_SNODE)


class UnlockBatchMqRequestHeader(
    RpcRequestHeader, request=RequestCode.UNLOCK_BATCH_MQ, release=SINCE_5
):
    """Release them."""

    enode_name: str | None = field(default=None, release=ONLY_SNODE)
