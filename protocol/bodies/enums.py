"""The enums in bodies. On the wire they are names; the values are for display."""

from enum import Enum


class ConsumeType(Enum):
    """Who initiates the delivery of messages to a consumer."""

    CONSUME_ACTIVELY = "PULL"
    CONSUME_PASSIVELY = "PUSH"
    CONSUME_POP = "POP"  # 5.x
    CONSUME_PUSH = "REAL_PUSH"  # of the snode branch: as soon as a broker has stored a message


class MessageModel(Enum):
    """Whether each consumer of a group gets all messages, or the consumers share them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"  # 5.5


class ConsumeFromWhere(Enum):
    """The start of a new group."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    # Java keeps these three only for old clients, and treats them like the first one.
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class CMResult(Enum):
    """The result of consuming a message."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class TopicFilterType(Enum):
    """Whether a message may have several tags. It was never evaluated."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class GroupRetryPolicyType(Enum):
    """The retry policy of a group (5.x)."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class MessageRequestMode(Enum):
    """How a group reads a topic (5.x)."""

    PULL = "PULL"
    POP = "POP"


class MessageQueueRouteState(Enum):
    """Permitted operations on a queue (5.x)."""

    Expired = "Expired"
    ReadOnly = "ReadOnly"
    Normal = "Normal"
    WriteOnly = "WriteOnly"
