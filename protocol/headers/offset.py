"""Offsets: of queues by position and time, and of consumer groups."""

from mq.protocol.codes import ONLY_SNODE, SINCE_5, RequestCode
from mq.protocol.headers.rpc import RpcRequestHeader, TopicQueueRequestHeader, TopicRequestHeader
from mq.protocol.headers.schema import Header, Int, Long, field


class GetMaxOffsetRequestHeader(TopicQueueRequestHeader, request=RequestCode.GET_MAX_OFFSET):
    """Get the offset that the next message of a queue will get."""

    topic: str
    queue_id: Int
    committed: bool | None = field(default=None, release=SINCE_5)
    enode_name: str | None = field(default=None, release=ONLY_SNODE)


class GetMaxOffsetResponseHeader(Header, answers=RequestCode.GET_MAX_OFFSET):
    """The offset."""

    offset: Long


class GetMinOffsetRequestHeader(TopicQueueRequestHeader, request=RequestCode.GET_MIN_OFFSET):
    """Get the offset of the oldest message of a queue."""

    topic: str
    queue_id: Int
    enode_name: str | None = field(default=None, release=ONLY_SNODE)


class GetMinOffsetResponseHeader(Header, answers=RequestCode.GET_MIN_OFFSET):
    """The offset."""

    offset: Long


class SearchOffsetRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
):
    """Get the offset in a queue at a time."""

    topic: str
    queue_id: Int
    timestamp: Long
    lite_topic: str | None = field(default=None, release=SINCE_5)
    boundary_type: str | None = field(default=None, release=SINCE_5)
    enode_name: str | None = field(default=None, release=ONLY_SNODE)


class SearchOffsetResponseHeader(Header, answers=RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
    """The offset."""

    offset: Long


class GetEarliestMsgStoretimeRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.GET_EARLIEST_MSG_STORETIME
):
    """Get the store time of the oldest message of a queue."""

    topic: str
    queue_id: Int


class GetEarliestMsgStoretimeResponseHeader(Header, answers=RequestCode.GET_EARLIEST_MSG_STORETIME):
    """The time in ms."""

    timestamp: Long


class QueryConsumerOffsetRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.QUERY_CONSUMER_OFFSET
):
    """Get the committed offset of a group in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = field(default=None, release=SINCE_5)
    enode_name: str | None = field(default=None, release=ONLY_SNODE)


class QueryConsumerOffsetResponseHeader(Header, answers=RequestCode.QUERY_CONSUMER_OFFSET):
    """The offset of the next message to consume."""

    offset: Long


class UpdateConsumerOffsetRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.UPDATE_CONSUMER_OFFSET
):
    """Commit the offset of a group in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long
    enode_name: str | None = field(default=None, release=ONLY_SNODE)


class UpdateConsumerOffsetResponseHeader(Header, answers=RequestCode.UPDATE_CONSUMER_OFFSET):
    """Empty."""


class ResetOffsetRequestHeader(
    TopicQueueRequestHeader,
    request=(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.RESET_CONSUMER_CLIENT_OFFSET),
):
    """Reset a group to the offsets at a time; sent to the broker, and by it to the consumers."""

    topic: str
    group: str
    timestamp: Long = 0
    is_force: bool = False
    queue_id: Int | None = field(default=None, release=SINCE_5)
    offset: Long | None = field(default=None, release=SINCE_5)


class QueryCorrectionOffsetHeader(TopicRequestHeader, request=RequestCode.QUERY_CORRECTION_OFFSET):
    """Get the progress of groups in comparison with one of them."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffsetRequestHeader(RpcRequestHeader, request=RequestCode.CLONE_GROUP_OFFSET):
    """Copy the offsets of a group to another one."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
