"""Sending messages, sending them back, replies, and the broker's responses."""

from mq.protocol.codes import ONLY_SNODE, SINCE_5, RequestCode
from mq.protocol.headers.rpc import RpcRequestHeader, TopicQueueRequestHeader, TopicRequestHeader
from mq.protocol.headers.schema import Header, Int, Long, field


class SendMessageRequestHeader(
    TopicQueueRequestHeader, request=(RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
):
    """Store the message in the body of the request."""

    producer_group: str = ""
    topic: str
    default_topic: str = ""
    default_topic_queue_nums: Int = 4
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int | None = None


class Letter:
    """The names of the fields of the second version on the wire."""

    PRODUCER_GROUP = "a"
    TOPIC = "b"
    DEFAULT_TOPIC = "c"
    DEFAULT_TOPIC_QUEUE_NUMS = "d"
    QUEUE_ID = "e"
    SYS_FLAG = "f"
    BORN_TIMESTAMP = "g"
    FLAG = "h"
    PROPERTIES = "i"
    RECONSUME_TIMES = "j"
    UNIT_MODE = "k"
    MAX_RECONSUME_TIMES = "l"
    BATCH = "m"
    BROKER_NAME = "n"  # called enodeName in the snode branch
    BORN_HOST = "o"
    SNODE_HOST = "p"


class SendMessageRequestHeaderV2(
    TopicQueueRequestHeader,
    request=(
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    ),
):
    """Store the message in the body; field names of one letter on the wire, which clients
    prefer.
    """

    producer_group: str = field(wire=Letter.PRODUCER_GROUP)
    topic: str = field(wire=Letter.TOPIC)
    default_topic: str = field(wire=Letter.DEFAULT_TOPIC)
    default_topic_queue_nums: Int = field(wire=Letter.DEFAULT_TOPIC_QUEUE_NUMS)
    queue_id: Int = field(wire=Letter.QUEUE_ID)
    sys_flag: Int = field(wire=Letter.SYS_FLAG)
    born_timestamp: Long = field(wire=Letter.BORN_TIMESTAMP)
    flag: Int = field(wire=Letter.FLAG)
    properties: str | None = field(default=None, wire=Letter.PROPERTIES)
    reconsume_times: Int | None = field(default=None, wire=Letter.RECONSUME_TIMES)
    unit_mode: bool = field(default=False, wire=Letter.UNIT_MODE)
    max_reconsume_times: Int | None = field(default=None, wire=Letter.MAX_RECONSUME_TIMES)
    batch: bool = field(default=False, wire=Letter.BATCH)
    broker_name: str | None = field(default=None, wire=Letter.BROKER_NAME)
    born_host: str | None = field(default=None, wire=Letter.BORN_HOST, release=ONLY_SNODE)
    snode_host: str | None = field(default=None, wire=Letter.SNODE_HOST, release=ONLY_SNODE)


class SendMessageResponseHeader(
    Header,
    answers=(
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    ),
):
    """The position of the stored message; for a batch the first offset, and all ids joined by
    commas.
    """

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = field(default=None, release=SINCE_5)
    recall_handle: str | None = field(default=None, release=SINCE_5)
    store_timestamp: Long | None = field(default=None, release=ONLY_SNODE)
    store_host: str | None = field(default=None, release=ONLY_SNODE)
    commit_log_offset: Long | None = field(default=None, release=ONLY_SNODE)
    store_size: Int | None = field(default=None, release=ONLY_SNODE)


class ConsumerSendMsgBackRequestHeader(
    RpcRequestHeader, request=RequestCode.CONSUMER_SEND_MSG_BACK
):
    """Redeliver a message later that this group could not consume."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
    enode_name: str | None = field(default=None, release=ONLY_SNODE)


class ReplyMessageRequestHeader(
    TopicQueueRequestHeader, request=RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
):
    """The broker delivers a reply to the client that sent the request."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long = 0


class RecallMessageRequestHeader(
    TopicRequestHeader, request=RequestCode.RECALL_MESSAGE, release=SINCE_5
):
    """Recall a timed message before it is due."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(Header, answers=RequestCode.RECALL_MESSAGE, release=SINCE_5):
    """The id of the recalled message."""

    msg_id: str
