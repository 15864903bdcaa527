"""The enums that bodies hold. On the wire they go by name; the values are what people are shown."""

from enum import Enum


class ConsumeType(Enum):
    """Who decides when a consumer gets messages."""

    CONSUME_ACTIVELY = "PULL"
    CONSUME_PASSIVELY = "PUSH"
    CONSUME_POP = "POP"  # 5.x
    CONSUME_PUSH = "REAL_PUSH"  # of the snode branch: as soon as a broker has stored it


class MessageModel(Enum):
    """Whether each consumer of a group gets all messages or they share them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"  # 5.5


class ConsumeFromWhere(Enum):
    """Where a new group starts."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    # Three that Java keeps for old clients only and treats like the first one.
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class CMResult(Enum):
    """What a consumer did with a message."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class TopicFilterType(Enum):
    """Whether a message may have several tags. Nothing ever read it."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class GroupRetryPolicyType(Enum):
    """Which of the two retry policies a group has (5.x)."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class MessageRequestMode(Enum):
    """How a group reads a topic (5.x)."""

    PULL = "PULL"
    POP = "POP"


class MessageQueueRouteState(Enum):
    """What may be done with a queue (5.x)."""

    Expired = "Expired"
    ReadOnly = "ReadOnly"
    Normal = "Normal"
    WriteOnly = "WriteOnly"
