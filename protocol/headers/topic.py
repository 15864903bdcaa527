"""Topics: create, change, delete, list and describe them."""

from mq.protocol.codes import SINCE_5, RequestCode
from mq.protocol.headers.rpc import RpcRequestHeader, TopicRequestHeader
from mq.protocol.headers.schema import Header, Int, field


class CreateTopicRequestHeader(TopicRequestHeader, request=RequestCode.UPDATE_AND_CREATE_TOPIC):
    """Create a topic or change it."""

    topic: str
    default_topic: str = ""
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = field(default=None, release=SINCE_5)
    force: bool | None = field(default=None, release=SINCE_5)


class CreateTopicListRequestHeader(
    RpcRequestHeader, request=RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, release=SINCE_5
):
    """Create or change the topics in the body."""


class DeleteTopicRequestHeader(TopicRequestHeader, request=RequestCode.DELETE_TOPIC_IN_BROKER):
    """Delete a topic from a broker."""

    topic: str


class DeleteTopicFromNamesrvRequestHeader(
    TopicRequestHeader, request=RequestCode.DELETE_TOPIC_IN_NAMESRV
):
    """Delete a topic from the routes of a name server."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(
    TopicRequestHeader, request=RequestCode.REGISTER_TOPIC_IN_NAMESRV, release=SINCE_5
):
    """Add a topic to the routes of a name server."""

    topic: str


class RegisterOrderTopicRequestHeader(Header):
    """Declare the order of a topic's queues."""

    topic: str
    order_topic_string: str


class GetAllTopicConfigRequestHeader(
    Header, request=RequestCode.GET_ALL_TOPIC_CONFIG, release=SINCE_5
):
    """Get all topics of a broker; in pages if the request names one."""

    topic_seq: Int
    data_version: str | None = None
    max_topic_num: Int | None = None


class GetAllTopicConfigResponseHeader(Header, answers=RequestCode.GET_ALL_TOPIC_CONFIG):
    """The total number of topics."""

    total_topic_num: Int | None = field(default=None, release=SINCE_5)


class GetTopicConfigRequestHeader(
    TopicRequestHeader, request=RequestCode.GET_TOPIC_CONFIG, release=SINCE_5
):
    """Get a topic of a broker."""

    topic: str


class GetTopicStatsInfoRequestHeader(TopicRequestHeader, request=RequestCode.GET_TOPIC_STATS_INFO):
    """Get the offsets and last store times of each queue of a topic."""

    topic: str


class GetTopicsByClusterRequestHeader(Header, request=RequestCode.GET_TOPICS_BY_CLUSTER):
    """Get the topics of a cluster."""

    cluster: str


class QueryTopicConsumeByWhoRequestHeader(
    TopicRequestHeader, request=RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
):
    """Get the groups that consume a topic."""

    topic: str
