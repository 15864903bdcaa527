"""What a request needs: permissions on topics and groups, or an administrator.

Java's lists (PlainAccessValidator.parse, Permission.ADMIN_CODE of 4.9.8) have holes through which
an account goes around its permissions: batches, orders to the offsets of other groups, and the
changing of accounts itself are not in them. Here they are; docs/decisions/0010 has the differences.
"""

from collections.abc import Mapping

from mq.daemons.acl.accounts import PUB, SUB
from mq.daemons.acl.errors import AclError
from mq.daemons.broker.handlers import lock
from mq.daemons.broker.handlers.client import MOST_HEARTBEAT_BYTES
from mq.daemons.broker.pop.receipt import normal_topic
from mq.protocol.bodies import (
    BatchAckMessageRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    UnlockBatchRequestBody,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.group import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from mq.protocol.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from mq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
from mq.protocol.headers.pull import PullMessageRequestHeader
from mq.protocol.headers.query import QueryConsumeQueueRequestHeader, QueryMessageRequestHeader
from mq.protocol.headers.schema import Header
from mq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    Letter,
    RecallMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from mq.protocol.names import RETRY_PREFIX

#: A topic, or the retry topic that stands for a group, and PUB or SUB.
Need = tuple[str, int]
SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2 | RecallMessageRequestHeader


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

#: The requests that name topics and groups in their bodies.
BODIES = frozenset(
    (
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.QUERY_ASSIGNMENT,
    )
)

_LOCKS = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)

# Which requests send to the topic that their header names.
_SENDS: dict[int, type[SendHeader]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
    RequestCode.SEND_REPLY_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.RECALL_MESSAGE: RecallMessageRequestHeader,
}

# Which read, with the attributes of their header that hold the topic and the group.
_READS: dict[int, tuple[type[Header], str | None, str | None]] = {
    RequestCode.PULL_MESSAGE: (PullMessageRequestHeader, "topic", "consumer_group"),
    RequestCode.LITE_PULL_MESSAGE: (PullMessageRequestHeader, "topic", "consumer_group"),
    RequestCode.QUERY_MESSAGE: (QueryMessageRequestHeader, "topic", None),
    RequestCode.QUERY_CONSUME_QUEUE: (QueryConsumeQueueRequestHeader, "topic", None),
    RequestCode.CONSUMER_SEND_MSG_BACK: (ConsumerSendMsgBackRequestHeader, None, "group"),
    RequestCode.UNREGISTER_CLIENT: (UnregisterClientRequestHeader, None, "consumer_group"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (
        GetConsumerListByGroupRequestHeader,
        None,
        "consumer_group",
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: (
        UpdateConsumerOffsetRequestHeader,
        "topic",
        "consumer_group",
    ),
    RequestCode.QUERY_CONSUMER_OFFSET: (
        QueryConsumerOffsetRequestHeader,
        "topic",
        "consumer_group",
    ),
    RequestCode.POP_MESSAGE: (PopMessageRequestHeader, "topic", "consumer_group"),
    RequestCode.PEEK_MESSAGE: (PeekMessageRequestHeader, "topic", "consumer_group"),
    RequestCode.NOTIFICATION: (NotificationRequestHeader, "topic", "consumer_group"),
    RequestCode.POLLING_INFO: (PollingInfoRequestHeader, "topic", "consumer_group"),
    RequestCode.ACK_MESSAGE: (AckMessageRequestHeader, "topic", "consumer_group"),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: (
        ChangeInvisibleTimeRequestHeader,
        "topic",
        "consumer_group",
    ),
}

# What was popped is acknowledged in the topic that it lies in: one of retries belongs to the topic
# that was popped. Nobody else names such a topic: to others %RETRY%a_b is what group a_b failed in.
_ACKNOWLEDGE = frozenset((RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME))


def needs(command: Command) -> list[Need]:
    """The permissions that a request needs.

    Raises AclError for a request of which that cannot be read.
    """
    try:
        return _needs(command)
    except RemoteProtocolError as error:
        raise AclError(f"the request cannot be read: {error}") from None


def needs_direct(code: int, fields: Mapping[str, str]) -> list[Need]:
    """The same for a request of the hot path, by the fields that its handler reads."""
    if code in _SENDS:
        return _to_send(fields[Letter.TOPIC])
    return [(fields["topic"], SUB), (RETRY_PREFIX + fields["consumerGroup"], SUB)]


def _needs(command: Command) -> list[Need]:
    code = command.code
    sends = _SENDS.get(code)
    if sends is not None:
        return _to_send(command.read_header(sends).topic)
    reads = _READS.get(code)
    if reads is None:
        return _of_body(command)
    schema, topic_name, group_name = reads
    header = command.read_header(schema)
    topic = getattr(header, topic_name) if topic_name else None
    group = getattr(header, group_name) if group_name else None
    if topic and group and code in _ACKNOWLEDGE:
        topic = normal_topic(topic, group)
    return _to_read(topic, group)


def _to_send(topic: str) -> list[Need]:
    # Who gives back a message of a group is its consumer. Java takes the group from another
    # field, which the sender fills in as it likes.
    return [(topic, SUB if topic.startswith(RETRY_PREFIX) else PUB)]


def _to_read(topic: str | None, group: str | None) -> list[Need]:
    found = [] if topic is None else [(topic, SUB)]
    if group is not None:
        found.append((RETRY_PREFIX + group, SUB))
    return found


def _of_body(command: Command) -> list[Need]:
    code = command.code
    if code == RequestCode.HEART_BEAT:
        if len(command.body) > MOST_HEARTBEAT_BYTES:
            return []  # its handler refuses it, unread
        found = []
        for consumer in command.read_body(HeartbeatData).consumer_data_set:
            found.append((RETRY_PREFIX + consumer.group_name, SUB))
            found += [(item.topic, SUB) for item in consumer.subscription_data_set]
        return found
    if code == RequestCode.BATCH_ACK_MESSAGE:
        return [
            need
            for ack in command.read_body(BatchAckMessageRequestBody).acks
            for need in _to_read(ack.topic or "", ack.consumer_group or "")
        ]
    if code == RequestCode.QUERY_ASSIGNMENT:
        asked = command.read_body(QueryAssignmentRequestBody)
        topic, group = asked.topic or "", asked.consumer_group or ""
        # A consumer asks for its own retries, too: the group stands for them.
        return _to_read(None if topic.startswith(RETRY_PREFIX) else topic, group)
    if code in _LOCKS and len(command.body) > lock.MOST_BYTES:
        return []  # likewise
    if code == RequestCode.LOCK_BATCH_MQ:
        return _to_read(None, command.read_body(LockBatchRequestBody).consumer_group)
    if code == RequestCode.UNLOCK_BATCH_MQ:
        return _to_read(None, command.read_body(UnlockBatchRequestBody).consumer_group)
    return []
