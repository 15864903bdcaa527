"""What a request needs: permissions on topics and groups, or an administrator.

Java's lists (PlainAccessValidator.parse, Permission.ADMIN_CODE of 4.9.8) have holes through which
an account goes around its permissions: batches, orders to the offsets of other groups, and the
changing of accounts itself are not in them. Here they are; docs/decisions/0010 has the differences.
"""

from collections.abc import Mapping

from mq.daemons.broker.acl.accounts import PUB, SUB
from mq.daemons.broker.acl.errors import AclError
from mq.daemons.broker.pop.receipt import normal_topic
from mq.protocol.bodies import (
    BatchAckMessageRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    UnlockBatchRequestBody,
)
from mq.protocol.codes import RequestCode
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.names import RETRY_PREFIX

#: A topic, or the retry topic that stands for a group, and PUB or SUB.
Need = tuple[str, int]

# Any account may send traces (TopicValidator.RMQ_SYS_TRACE_TOPIC).
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

# The first five are Java's. The others change what is everyone's, too.
ADMIN_CODES = frozenset(
    (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.RESET_CONSUMER_OFFSET_IN_BROKER,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.TRIGGER_DELETE_FILES,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.REGISTER_FILTER_SERVER,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.SET_COMMITLOG_READ_MODE,
        RequestCode.POP_ROLLBACK,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.CLEAN_BROKER_DATA,
        *(code for code in RequestCode if code.name.startswith("AUTH_")),
    )
)

# The fields that hold the topic sent to.
_SENDS: dict[int, str] = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
    RequestCode.SEND_REPLY_MESSAGE: "topic",
    RequestCode.SEND_REPLY_MESSAGE_V2: "b",
    RequestCode.RECALL_MESSAGE: "topic",
}

# The fields that hold topics and groups read from.
_READS: dict[int, tuple[str | None, str | None]] = {
    RequestCode.PULL_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.QUERY_MESSAGE: ("topic", None),
    RequestCode.QUERY_CONSUME_QUEUE: ("topic", None),
    RequestCode.CONSUMER_SEND_MSG_BACK: (None, "group"),
    RequestCode.UNREGISTER_CLIENT: (None, "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (None, "consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: ("topic", "consumerGroup"),
    RequestCode.QUERY_CONSUMER_OFFSET: ("topic", "consumerGroup"),
    RequestCode.POP_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.PEEK_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.NOTIFICATION: ("topic", "consumerGroup"),
    RequestCode.POLLING_INFO: ("topic", "consumerGroup"),
    RequestCode.ACK_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: ("topic", "consumerGroup"),
}

_BODIES = frozenset(
    (
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.QUERY_ASSIGNMENT,
    )
)


def needs(code: int, fields: Mapping[str, str], body: bytes) -> list[Need]:
    """The permissions that a request needs. Raises AclError for a body that cannot be read."""
    sends_to = _SENDS.get(code)
    if sends_to is not None:
        topic = fields.get(sends_to)
        if not topic:
            return []  # the handler says what is missing
        # Who gives back a message of a group is its consumer. Java takes the group from another
        # field, which the sender fills in as it likes.
        return [(topic, SUB if topic.startswith(RETRY_PREFIX) else PUB)]
    read = _READS.get(code)
    if read is not None:
        topic_field, group_field = read
        found = []
        group = fields.get(group_field or "")
        if topic_field and (topic := fields.get(topic_field)):
            # What was popped is acknowledged in the topic that it lies in: one of retries belongs
            # to the topic that was popped.
            found.append((normal_topic(topic, group) if group else topic, SUB))
        if group:
            found.append((RETRY_PREFIX + group, SUB))
        return found
    return _of_body(code, body) if code in _BODIES else []


def _of_body(code: int, body: bytes) -> list[Need]:
    """Read with the handlers' own readers, so that both see the same names."""
    try:
        if code == RequestCode.HEART_BEAT:
            found = []
            for consumer in HeartbeatData.decode(body).consumer_data_set:
                found.append((RETRY_PREFIX + consumer.group_name, SUB))
                found += [(item.topic, SUB) for item in consumer.subscription_data_set]
            return found
        if code == RequestCode.BATCH_ACK_MESSAGE:
            return [
                need
                for ack in BatchAckMessageRequestBody.decode(body).acks
                for need in (
                    (ack.topic or "", SUB),
                    (RETRY_PREFIX + (ack.consumer_group or ""), SUB),
                )
            ]
        if code == RequestCode.QUERY_ASSIGNMENT:
            asked = QueryAssignmentRequestBody.decode(body)
            # A consumer asks for its own retries, too: the group stands for them.
            topics = [] if (asked.topic or "").startswith(RETRY_PREFIX) else [asked.topic or ""]
            return [
                *((topic, SUB) for topic in topics),
                (RETRY_PREFIX + (asked.consumer_group or ""), SUB),
            ]
        reader = (
            LockBatchRequestBody if code == RequestCode.LOCK_BATCH_MQ else UnlockBatchRequestBody
        )
        return [(RETRY_PREFIX + reader.decode(body).consumer_group, SUB)]
    except RemoteProtocolError as error:
        raise AclError(f"the body cannot be read: {error}") from None
