"""Properties of a message: a text map in one string, `name 0x01 value 0x02 name 0x01 value`.

4.9.8 writes no separator after the last value, 5.x does; readers accept both. Sources:
org.apache.rocketmq.common.message.MessageDecoder (messageProperties2String and back), MessageConst.
"""

from collections.abc import Mapping

from mq.protocol.names import RETRY_PREFIX

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "  # between the keys in KEYS
MAX_LENGTH = 32767  # bytes of UTF-8: the record has a signed 16-bit length


class PropertyKey:
    """The property names that RocketMQ itself uses (MessageConst)."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    WAIT_STORE = "WAIT"
    DELAY_LEVEL = "DELAY"
    RETRY_TOPIC = "RETRY_TOPIC"
    REAL_TOPIC = "REAL_TOPIC"
    REAL_QUEUE_ID = "REAL_QID"
    TRANSACTION_PREPARED = "TRAN_MSG"
    PRODUCER_GROUP = "PGROUP"
    MIN_OFFSET = "MIN_OFFSET"
    MAX_OFFSET = "MAX_OFFSET"
    BUYER_ID = "BUYER_ID"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    TRANSFER_FLAG = "TRANSFER_FLAG"
    CORRECTION_FLAG = "CORRECTION_FLAG"
    MQ2_FLAG = "MQ2_FLAG"
    RECONSUME_TIME = "RECONSUME_TIME"
    MSG_REGION = "MSG_REGION"
    TRACE_SWITCH = "TRACE_ON"
    UNIQUE_KEY = "UNIQ_KEY"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIME = "CONSUME_START_TIME"
    TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
    CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    INSTANCE_ID = "INSTANCE_ID"
    CORRELATION_ID = "CORRELATION_ID"
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
    TTL = "TTL"
    ARRIVE_TIME = "ARRIVE_TIME"
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
    CLUSTER = "CLUSTER"
    MESSAGE_TYPE = "MSG_TYPE"
    INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
    # 5.x
    EXTEND_UNIQUE_INFO = "EXTEND_UNIQ_INFO"
    INNER_NUMBER = "INNER_NUM"
    INNER_BASE = "INNER_BASE"
    DUP_INFO = "DUP_INFO"
    TRANSACTION_ID = "__transactionId__"
    POP_CHECKPOINT = "POP_CK"
    POP_CHECKPOINT_OFFSET = "POP_CK_OFFSET"
    FIRST_POP_TIME = "1ST_POP_TIME"
    SHARDING_KEY = "__SHARDINGKEY"
    FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
    REDIRECT = "REDIRECT"
    TRACE_CONTEXT = "TRACE_CONTEXT"
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
    TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
    TIMER_OUT_MS = "TIMER_OUT_MS"
    TIMER_DELETE_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
    TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
    BORN_HOST = "__BORNHOST"
    BORN_TIMESTAMP = "BORN_TIMESTAMP"
    CRC32 = "__CRC32#"
    DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"


#: Prefix of properties that 5.x clients set and that are never stored.
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."

# MessageConst has names for these but they are not in STRING_HASH_SET, so users may set them.
_OPEN_TO_USERS = {
    PropertyKey.CHECK_IMMUNITY_TIME,
    PropertyKey.TRANSACTION_CHECK_TIMES,
    PropertyKey.TRANSACTION_PREPARED_QUEUE_OFFSET,
    PropertyKey.INNER_MULTI_DISPATCH,
    PropertyKey.INNER_NUMBER,
    PropertyKey.INNER_BASE,
    PropertyKey.TRANSACTION_ID,
    PropertyKey.SHARDING_KEY,
    PropertyKey.FORWARD_QUEUE_ID,
    PropertyKey.REDIRECT,
    PropertyKey.TRACE_CONTEXT,
}

#: Names that users may not give to their properties (MessageConst.STRING_HASH_SET).
RESERVED = (
    frozenset(value for name, value in vars(PropertyKey).items() if name.isupper()) - _OPEN_TO_USERS
)

#: Properties that brokers and administrators evaluate and that only a broker may write.
BROKERS_OWN = frozenset(
    {
        PropertyKey.RETRY_TOPIC,
        PropertyKey.ORIGIN_MESSAGE_ID,
        PropertyKey.DLQ_ORIGIN_TOPIC,
        PropertyKey.DLQ_ORIGIN_MESSAGE_ID,
        PropertyKey.FIRST_POP_TIME,
        PropertyKey.POP_CHECKPOINT_OFFSET,
        PropertyKey.REAL_TOPIC,
        PropertyKey.REAL_QUEUE_ID,
        PropertyKey.TRANSACTION_CHECK_TIMES,
        PropertyKey.TRANSACTION_PREPARED_QUEUE_OFFSET,
        PropertyKey.POP_CHECKPOINT,
        PropertyKey.TIMER_ROLL_TIMES,
    }
)


#: Of these, the properties that a consumer writes when it sends a copy of a failed message to the
#: retry topic of its group (DefaultMQPushConsumerImpl.sendMessageBack).
_OF_RETRY_COPIES = frozenset(
    {PropertyKey.RETRY_TOPIC, PropertyKey.ORIGIN_MESSAGE_ID, PropertyKey.FIRST_POP_TIME}
)


def drop_brokers_own(properties: dict[str, str], topic: str = "") -> None:
    """Remove the properties that only a broker may write from a message that a client sends.

    They are dropped and not refused, because applications send received messages again with all
    their properties. A message to a retry topic keeps the properties of a consumer's copy; access
    control checks the topic that it names.
    """
    dropped = BROKERS_OWN & properties.keys()
    if topic.startswith(RETRY_PREFIX):
        dropped -= _OF_RETRY_COPIES
    for name in dropped:
        del properties[name]


def has_separator(text: str) -> bool:
    """Whether a name or value would be parsed as further properties, possibly ones that users may
    not set.
    """
    return NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text


def encode(properties: Mapping[str, str]) -> str:
    """Join a map to the stored text, without a separator at its end."""
    return PROPERTY_SEPARATOR.join(
        [f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items()]
    )


def decode(text: str) -> dict[str, str]:
    """Parse the text of stored properties.

    As in MessageDecoder.string2messageProperties: a segment without a separator, with an empty name
    or an empty value is dropped; of two equal names the last one counts; a value keeps any further
    0x01 in it.
    """
    pairs = [segment.partition(NAME_VALUE_SEPARATOR) for segment in text.split(PROPERTY_SEPARATOR)]
    return {name: value for name, _, value in pairs if name and value}
