"""POP consumption: the broker selects queue and offset, and waits for acknowledgements (5.x)."""

from mq.protocol.codes import SINCE_5, RequestCode
from mq.protocol.headers.rpc import TopicQueueRequestHeader, TopicRequestHeader
from mq.protocol.headers.schema import Header, Int, Long


class PopMessageRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.POP_MESSAGE, release=SINCE_5
):
    """Fetch messages of a topic, hidden from others for a time."""

    consumer_group: str
    topic: str
    queue_id: Int = 0
    max_msg_nums: Int = 0
    invisible_time: Long = 0
    poll_time: Long = 0
    born_time: Long = 0
    init_mode: Int = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageResponseHeader(Header, answers=RequestCode.POP_MESSAGE, release=SINCE_5):
    """The popped messages, in the compact texts of ExtraInfoUtil."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0
    rest_num: Long = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class PeekMessageRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.PEEK_MESSAGE, release=SINCE_5
):
    """Read messages without taking them."""

    topic: str
    queue_id: Int = 0
    max_msg_nums: Int = 0
    consumer_group: str


class AckMessageRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.ACK_MESSAGE, release=SINCE_5
):
    """Acknowledge a popped message."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    lite_topic: str | None = None


class ChangeInvisibleTimeRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.CHANGE_MESSAGE_INVISIBLETIME, release=SINCE_5
):
    """Extend or shorten the time for which a popped message is hidden."""

    consumer_group: str
    topic: str
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long
    lite_topic: str | None = None
    suspend: bool = False


class ChangeInvisibleTimeResponseHeader(
    Header, answers=RequestCode.CHANGE_MESSAGE_INVISIBLETIME, release=SINCE_5
):
    """The new times of the popped message."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Int = 0


class NotificationRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.NOTIFICATION, release=SINCE_5
):
    """Wait until there are messages to pop."""

    consumer_group: str
    topic: str
    queue_id: Int = 0
    poll_time: Long = 0
    born_time: Long = 0
    order: bool = False
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(Header, answers=RequestCode.NOTIFICATION, release=SINCE_5):
    """Whether there are messages to pop."""

    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.POLLING_INFO, release=SINCE_5
):
    """Get the number of waiting pops of a queue."""

    consumer_group: str
    topic: str
    queue_id: Int = 0


class PollingInfoResponseHeader(Header, answers=RequestCode.POLLING_INFO, release=SINCE_5):
    """The number of waiting pops."""

    polling_num: Int = 0


class InitConsumerOffsetRequestHeader(TopicRequestHeader, release=SINCE_5):
    """Set the start of a group that pops a topic."""

    topic: str | None = None
    init_mode: Int = 0


class StatisticsMessagesRequestHeader(TopicQueueRequestHeader, release=SINCE_5):
    """Count the messages of a queue between two times."""

    consumer_group: str
    topic: str
    queue_id: Int = 0
    from_time: Long = 0
    to_time: Long = 0
