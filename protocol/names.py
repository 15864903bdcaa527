"""Names of topics and groups: legal names, and names of the system.

A legal name consists of letters, digits, `%`, `|`, `-` and `_` only, so it is safe as one part of a
path. Sources: org.apache.rocketmq.common.topic.TopicValidator, client.Validators, common.MixAll.
"""

import re

DEFAULT_TOPIC = "TBW102"  # in routes, marks brokers that create topics automatically
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANSACTION_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_OPERATION_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANSACTION_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"  # 5.x: TopicValidator.RMQ_SYS_ROCKSDB_OFFSET_TOPIC
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
# 5.x: plus the cluster; holds the state of popped messages
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
# 5.x: plus the name of a broker; brokers of a set find each other by its route
# (TopicValidator.SYNC_BROKER_MEMBER_GROUP_PREFIX).
MEMBERS_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
TIMER_TOPIC = "rmq_sys_wheel_timer"  # 5.x: holds messages until their delivery time

# Plus the region: trace topics of cloud clients (TraceConstants.TRACE_TOPIC_PREFIX).
CLOUD_TRACE_PREFIX = "rmq_sys_TRACE_DATA_"

#: The topics that each 4.9.8 broker has; CHECKPOINT_TOPIC is of 5.x brokers only.
SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OPERATION_TOPIC,
        TRANSACTION_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)

#: Only the broker itself writes to these (TopicValidator.isNotAllowedSendTopic).
NOT_SENDABLE_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OPERATION_TOPIC,
        TRANSACTION_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)

#: Topics that the broker itself writes and reads: its own records, and messages not due yet.
INTERNAL_TOPICS = frozenset(
    {SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC, TRANSACTION_OPERATION_TOPIC, CHECKPOINT_TOPIC}
)

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
REPLY_POSTFIX = "REPLY_TOPIC"

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
SCHEDULE_CONSUMER_GROUP = "SCHEDULE_CONSUMER"
FILTERSRV_CONSUMER_GROUP = "FILTERSRV_CONSUMER"
MONITOR_CONSUMER_GROUP = "__MONITOR_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
SELF_TEST_PRODUCER_GROUP = "SELF_TEST_P_GROUP"
SELF_TEST_CONSUMER_GROUP = "SELF_TEST_C_GROUP"
ONS_HTTP_PROXY_GROUP = "CID_ONS-HTTP-PROXY"
ONSAPI_PERMISSION_GROUP = "CID_ONSAPI_PERMISSION"
ONSAPI_OWNER_GROUP = "CID_ONSAPI_OWNER"
ONSAPI_PULL_GROUP = "CID_ONSAPI_PULL"
TRANSACTION_CHECK_GROUP = "CID_RMQ_SYS_TRANS"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

#: The subscription groups that every broker has (SubscriptionGroupManager.init).
BUILT_IN_GROUPS = (
    TOOLS_CONSUMER_GROUP,
    FILTERSRV_CONSUMER_GROUP,
    SELF_TEST_CONSUMER_GROUP,
    ONS_HTTP_PROXY_GROUP,
    ONSAPI_PULL_GROUP,
    ONSAPI_PERMISSION_GROUP,
    ONSAPI_OWNER_GROUP,
)

#: Groups that belong to the system (DefaultMQAdminExtImpl.SYSTEM_GROUP_SET).
PREDEFINED_GROUPS = frozenset(
    {
        *BUILT_IN_GROUPS,
        DEFAULT_CONSUMER_GROUP,
        DEFAULT_PRODUCER_GROUP,
        MONITOR_CONSUMER_GROUP,
        CLIENT_INNER_PRODUCER_GROUP,
        SELF_TEST_PRODUCER_GROUP,
        TRANSACTION_CHECK_GROUP,
    }
)

#: Extra field of QUERY_MESSAGE that marks the key as a unique id (MixAll).
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"

MASTER_ID = 0  # the brokerId of a master; replicas have larger ones

MAX_TOPIC_LENGTH = 127  # characters: a record has one signed byte for the length
MAX_RETRY_TOPIC_LENGTH = 255  # 5.x (V2 records) for topics that start with %RETRY%
MAX_GROUP_LENGTH = 255

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
_PATTERN_TEXT = "^[%|a-zA-Z0-9_-]+$"  # as in the Java messages


class IllegalName(ValueError):
    """A topic or group name that RocketMQ refuses. The text has the reason."""


def check_topic(name: str) -> str:
    """Return `name` if it is a legal name of a topic.

    The texts are those of TopicValidator.validateTopic, which users know.

    Raises:
        IllegalName: blank, over 127 characters, or with a character that is not allowed.
    """
    return _check(name, "topic", MAX_TOPIC_LENGTH, "topic max length")


def check_consumed_topic(name: str) -> str:
    """Return `name` if a group can have an offset in a topic of that name.

    Java 5.x stores retry topics of up to 255 characters.

    Raises:
        IllegalName: blank, too long, or with a character that is not allowed.
    """
    longest = MAX_RETRY_TOPIC_LENGTH if name.startswith(RETRY_PREFIX) else MAX_TOPIC_LENGTH
    return _check(name, "topic", longest, "topic max length")


def check_group(name: str) -> str:
    """Return `name` if it is a legal name of a producer or consumer group.

    Raises:
        IllegalName: blank, over 255 characters, or with a character that is not allowed.
    """
    return _check(name, "group", MAX_GROUP_LENGTH, f"group max length {MAX_GROUP_LENGTH}")


def _check(name: str, kind: str, longest: int, limit_text: str) -> str:
    if not name or name.isspace():
        raise IllegalName(f"The specified {kind} is blank.")
    if _LEGAL(name) is None:
        raise IllegalName(
            f"The specified {kind} contains illegal characters, allowing only {_PATTERN_TEXT}"
        )
    if len(name) > longest:
        raise IllegalName(f"The specified {kind} is longer than {limit_text}.")
    return name


def is_system_topic(name: str) -> bool:
    """Whether `name` belongs to the system, so that users may not create or delete it."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_internal_topic(name: str) -> bool:
    """Whether only the broker itself writes and consumes `name`.

    Those of 5.x begin with rmq_sys_: the timer's, the revive topics and future ones. Traces do,
    too, but clients send them.
    """
    return name in INTERNAL_TOPICS or (
        name.startswith(SYSTEM_TOPIC_PREFIX) and not name.startswith(CLOUD_TRACE_PREFIX)
    )


def may_be_sent_to(name: str) -> bool:
    """Whether clients may send to a topic (TopicValidator.isNotAllowedSendTopic, and more)."""
    return name not in NOT_SENDABLE_TOPICS and not is_internal_topic(name)


def holds_messages_of_others(name: str) -> bool:
    """Whether a topic holds messages of other topics, so that it must be named explicitly to be
    read.

    A general permission to read topics does not include it.
    """
    return name == TRANSACTION_CHECK_MAX_TIME_TOPIC or is_internal_topic(name)


def is_system_group(name: str) -> bool:
    """Whether `name` is a group of the system (MixAll.isSysConsumerGroup)."""
    return name.startswith(SYSTEM_GROUP_PREFIX)


def retry_topic(group: str) -> str:
    """Return the topic of messages that `group` failed to consume and that are redelivered."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic of messages that `group` failed to consume after all retries."""
    return DEAD_LETTER_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the topic for replies of request-reply messaging in `cluster`."""
    return f"{cluster}_{REPLY_POSTFIX}"
