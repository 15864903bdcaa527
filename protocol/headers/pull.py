"""Pulling messages by queue and offset."""

from mq.protocol.codes import ONLY_SNODE, SINCE_5, RequestCode, SnodeCode
from mq.protocol.headers.rpc import TopicQueueRequestHeader
from mq.protocol.headers.schema import Header, Int, Long, field


class PullMessageRequestHeader(
    TopicQueueRequestHeader,
    request=(
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        SnodeCode.SNODE_PULL_MESSAGE,
    ),
):
    """Fetch messages of one queue from an offset on."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long = 0
    expression_type: str | None = None
    lite_topic: str | None = field(default=None, release=SINCE_5)
    max_msg_bytes: Int | None = field(default=None, release=SINCE_5)
    request_source: Int | None = field(default=None, release=SINCE_5)
    proxy_froward_client_id: str | None = field(default=None, release=SINCE_5)
    enode_name: str | None = field(default=None, release=ONLY_SNODE)


class PullMessageResponseHeader(
    Header,
    answers=(
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        SnodeCode.SNODE_PULL_MESSAGE,
    ),
):
    """The next offset to pull, and the bounds of the queue."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = field(default=None, release=SINCE_5)
    topic_sys_flag: Int | None = field(default=None, release=SINCE_5)
    group_sys_flag: Int | None = field(default=None, release=SINCE_5)
    forbidden_type: Int | None = field(default=None, release=SINCE_5)
