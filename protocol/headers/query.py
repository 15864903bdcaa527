"""Finding messages by id, by key and by position in a queue."""

from mq.protocol.codes import SINCE_5, RequestCode
from mq.protocol.headers.rpc import TopicQueueRequestHeader, TopicRequestHeader
from mq.protocol.headers.schema import Header, Int, Long, field


class QueryMessageRequestHeader(TopicRequestHeader, request=RequestCode.QUERY_MESSAGE):
    """Find messages by key, stored between two times."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = field(default=None, release=SINCE_5)
    last_key: str | None = field(default=None, release=SINCE_5)


class QueryMessageResponseHeader(Header, answers=RequestCode.QUERY_MESSAGE):
    """The progress of the index."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageRequestHeader(Header, request=RequestCode.VIEW_MESSAGE_BY_ID):
    """Get the message at an offset of the commit log."""

    offset: Long
    topic: str | None = field(default=None, release=SINCE_5)


class ViewMessageResponseHeader(Header, answers=RequestCode.VIEW_MESSAGE_BY_ID):
    """Empty: the message is the body."""


class QueryConsumeQueueRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.QUERY_CONSUME_QUEUE
):
    """Show entries of a consume queue."""

    topic: str | None = None
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    consumer_group: str | None = None


class QueryConsumeTimeSpanRequestHeader(
    TopicRequestHeader, request=RequestCode.QUERY_CONSUME_TIME_SPAN
):
    """Get the times of the first, last and last consumed message of each queue."""

    topic: str
    group: str = ""
