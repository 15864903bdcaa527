"""Every request code in one row: what it does, who answers it, whom a broker lets ask it.

A number may mean two things, on connections of two dialects (`codes.Dialect`): then it has a row in
each of two tables. One that a snode sends means what SNODE_REQUESTS says, else what REQUESTS says.

From these rows derive the access control of brokers and of name servers, what a dry run sends, the
tables of docs/protocol.md and docs/permissions.md, and tests that walk every code. The header of a
request is found by its declaration (`mq.protocol.headers.HEADERS`); its body is named here.

To add a code: its number in codes.py, its row here, its handler where it is served. What a row does
not say is the strictest: it writes, and it is for administrators only. So is a code without a row.
"""

from collections.abc import Iterator, Mapping
from enum import Enum, Flag, unique
from typing import NamedTuple

from mq.protocol.codes import Dialect, SnodeCode
from mq.protocol.codes import RequestCode as C


@unique
class RequestKind(Enum):
    """What a request does to the peer that answers it."""

    READ = "read"  # changes nothing, or, as a pull, nothing but what it is told to
    WRITE = "write"
    SEND = "send"  # writes a message, and is answered with the message's place
    PRESENCE = "presence"  # says that a client comes or goes: written down, but no change asked for


class Role(Flag):
    """Who answers a request."""

    NOBODY = 0
    BROKER = 1
    NAME_SERVER = 2
    CLIENT = 4
    CONTROLLER = 8
    SNODE = 16
    FILTER_SERVER = 32


@unique
class NamedIn(Enum):
    """Where a broker finds the topic or group that a right is about."""

    HEADER = "header"
    BODY = "body"
    MESSAGE = "message"  # the stored one that is named: its handler asks, when it has read it


class Right(NamedTuple):
    """What an account must be allowed: to send to (PUB), or to read from (SUB) a topic or group."""

    permission: str  # "PUB" or "SUB"
    resource: str  # "topic" or "group"
    named_in: NamedIn
    attribute: str = ""  # of the header, in which the name stands

    def __str__(self) -> str:
        return f"{self.permission} {self.resource}"


class Request(NamedTuple):
    """One code. `rights` are what a broker wants of an account, all of them; None: of a broker it
    may be asked by administrators only. A name server lets everyone read, and writers write. A
    snode wants of an account what a broker does; of the dialect of snodes `rights` are what a snode
    wants, for a broker speaks that with administrators only.
    """

    code: C | SnodeCode
    kind: RequestKind = RequestKind.WRITE
    answered_by: Role = Role.NOBODY
    rights: tuple[Right, ...] | None = None
    body: str = ""  # its class in mq.protocol.bodies; "" for none, for text and for messages

    @property
    def needs(self) -> str:
        """The rights for people: "SUB topic, SUB group", "any account", "an administrator"."""
        if self.rights is None:
            return "an administrator"
        return ", ".join(map(str, self.rights)) or "any account"

    @property
    def dialect(self) -> Dialect:
        """Of which connections it is."""
        return Dialect.SNODE if isinstance(self.code, SnodeCode) else Dialect.ORDINARY


READ, WRITE, SEND, PRESENCE = RequestKind
BROKER, NAME_SERVER, CLIENT, CONTROLLER, SNODE, FILTER_SERVER = Role
NOBODY = Role.NOBODY

_TOPIC = Right("SUB", "topic", NamedIn.HEADER, "topic")
_GROUP = Right("SUB", "group", NamedIn.HEADER, "consumer_group")
_GROUP_IN_BODY = Right("SUB", "group", NamedIn.BODY)
_TOPIC_OF_MESSAGE = Right("SUB", "topic", NamedIn.MESSAGE)

# The rights that requests need, by what they ask for.
ANY_ACCOUNT: tuple[Right, ...] = ()
SEND_TO_TOPIC = (Right("PUB", "topic", NamedIn.HEADER, "topic"),)
READ_TOPIC = (_TOPIC,)
AS_GROUP = (_GROUP,)
READ_TOPIC_AS_GROUP = (_TOPIC, _GROUP)
AS_GROUP_NAMED = (Right("SUB", "group", NamedIn.HEADER, "group_name"),)
GROUP_IN_BODY = (_GROUP_IN_BODY,)
TOPIC_AND_GROUP_IN_BODY = (Right("SUB", "topic", NamedIn.BODY), _GROUP_IN_BODY)
READ_MESSAGE = (_TOPIC_OF_MESSAGE,)
SEND_BACK = (_TOPIC_OF_MESSAGE, Right("SUB", "group", NamedIn.HEADER, "group"))
END_OWN_TRANSACTION = (Right("PUB", "topic", NamedIn.MESSAGE),)

_ROWS = (
    Request(C.SEND_MESSAGE, SEND, BROKER, SEND_TO_TOPIC),
    # A pull can carry an offset to commit: whoever may only read takes that out first.
    Request(C.PULL_MESSAGE, READ, BROKER | FILTER_SERVER | SNODE, READ_TOPIC_AS_GROUP),
    Request(C.QUERY_MESSAGE, READ, BROKER, READ_TOPIC),
    Request(C.QUERY_BROKER_OFFSET, READ, NOBODY),
    Request(C.QUERY_CONSUMER_OFFSET, READ, BROKER | SNODE, READ_TOPIC_AS_GROUP),
    Request(C.UPDATE_CONSUMER_OFFSET, WRITE, BROKER | SNODE, READ_TOPIC_AS_GROUP),
    Request(C.UPDATE_AND_CREATE_TOPIC, WRITE, BROKER),
    Request(C.UPDATE_AND_CREATE_TOPIC_LIST, WRITE, BROKER, body="CreateTopicListRequestBody"),
    Request(C.GET_ALL_TOPIC_CONFIG, READ, BROKER, ANY_ACCOUNT),
    Request(C.GET_TOPIC_CONFIG_LIST, READ, NOBODY),
    Request(C.GET_TOPIC_NAME_LIST, READ, NOBODY),
    Request(C.UPDATE_BROKER_CONFIG, WRITE, BROKER),
    Request(C.GET_BROKER_CONFIG, READ, BROKER, ANY_ACCOUNT),
    Request(C.TRIGGER_DELETE_FILES, WRITE, NOBODY),
    Request(C.GET_BROKER_RUNTIME_INFO, READ, BROKER, ANY_ACCOUNT),
    Request(C.SEARCH_OFFSET_BY_TIMESTAMP, READ, BROKER | SNODE, ANY_ACCOUNT),
    Request(C.GET_MAX_OFFSET, READ, BROKER | SNODE, ANY_ACCOUNT),
    Request(C.GET_MIN_OFFSET, READ, BROKER | SNODE, ANY_ACCOUNT),
    Request(C.GET_EARLIEST_MSG_STORETIME, READ, BROKER, ANY_ACCOUNT),
    Request(C.VIEW_MESSAGE_BY_ID, READ, BROKER, READ_MESSAGE),
    Request(C.HEART_BEAT, PRESENCE, BROKER | SNODE, TOPIC_AND_GROUP_IN_BODY, body="HeartbeatData"),
    Request(C.UNREGISTER_CLIENT, PRESENCE, BROKER | SNODE, AS_GROUP),
    Request(C.CONSUMER_SEND_MSG_BACK, SEND, BROKER | SNODE, SEND_BACK),
    Request(C.END_TRANSACTION, WRITE, BROKER, END_OWN_TRANSACTION),
    Request(C.GET_CONSUMER_LIST_BY_GROUP, READ, BROKER | SNODE, AS_GROUP),
    Request(C.CHECK_TRANSACTION_STATE, WRITE, CLIENT),
    Request(C.NOTIFY_CONSUMER_IDS_CHANGED, WRITE, CLIENT),
    Request(C.LOCK_BATCH_MQ, WRITE, BROKER | SNODE, GROUP_IN_BODY, body="LockBatchRequestBody"),
    Request(C.UNLOCK_BATCH_MQ, WRITE, BROKER | SNODE, GROUP_IN_BODY, body="UnlockBatchRequestBody"),
    Request(C.GET_ALL_CONSUMER_OFFSET, READ, BROKER, ANY_ACCOUNT),
    Request(C.GET_ALL_DELAY_OFFSET, READ, BROKER, ANY_ACCOUNT),
    Request(
        C.CHECK_CLIENT_CONFIG, READ, BROKER | SNODE, ANY_ACCOUNT, body="CheckClientRequestBody"
    ),
    Request(C.GET_CLIENT_CONFIG, READ, NOBODY),
    Request(C.UPDATE_AND_CREATE_ACL_CONFIG, WRITE, BROKER),
    Request(C.DELETE_ACL_CONFIG, WRITE, BROKER),
    Request(C.GET_BROKER_CLUSTER_ACL_INFO, READ, BROKER),
    Request(C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, WRITE, BROKER),
    Request(C.GET_BROKER_CLUSTER_ACL_CONFIG, READ, BROKER),
    Request(C.GET_TIMER_CHECK_POINT, READ, BROKER, ANY_ACCOUNT),
    Request(C.GET_TIMER_METRICS, READ, NOBODY),
    Request(C.PUT_KV_CONFIG, WRITE, NAME_SERVER),
    Request(C.GET_KV_CONFIG, READ, NAME_SERVER),
    Request(C.DELETE_KV_CONFIG, WRITE, NAME_SERVER),
    Request(C.REGISTER_BROKER, WRITE, NAME_SERVER, body="RegisterBrokerBody"),
    Request(C.UNREGISTER_BROKER, WRITE, NAME_SERVER),
    Request(C.GET_ROUTEINFO_BY_TOPIC, READ, NAME_SERVER | SNODE),
    Request(C.GET_BROKER_CLUSTER_INFO, READ, NAME_SERVER),
    Request(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, WRITE, BROKER, body="SubscriptionGroupConfig"),
    Request(C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, READ, BROKER, ANY_ACCOUNT),
    Request(C.GET_TOPIC_STATS_INFO, READ, BROKER, ANY_ACCOUNT),
    Request(C.GET_CONSUMER_CONNECTION_LIST, READ, BROKER, ANY_ACCOUNT),
    Request(C.GET_PRODUCER_CONNECTION_LIST, READ, BROKER, ANY_ACCOUNT),
    Request(C.WIPE_WRITE_PERM_OF_BROKER, WRITE, NAME_SERVER),
    Request(C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, READ, NAME_SERVER),
    Request(C.DELETE_SUBSCRIPTIONGROUP, WRITE, BROKER),
    Request(C.GET_CONSUME_STATS, READ, BROKER, ANY_ACCOUNT),
    Request(C.SUSPEND_CONSUMER, WRITE, NOBODY),
    Request(C.RESUME_CONSUMER, WRITE, NOBODY),
    Request(C.RESET_CONSUMER_OFFSET_IN_CONSUMER, WRITE, NOBODY),
    Request(C.RESET_CONSUMER_OFFSET_IN_BROKER, WRITE, NOBODY),
    Request(C.ADJUST_CONSUMER_THREAD_POOL, WRITE, NOBODY),
    Request(C.WHO_CONSUME_THE_MESSAGE, READ, NOBODY),
    Request(C.DELETE_TOPIC_IN_BROKER, WRITE, BROKER),
    Request(C.DELETE_TOPIC_IN_NAMESRV, WRITE, NAME_SERVER),
    Request(C.REGISTER_TOPIC_IN_NAMESRV, WRITE, NAME_SERVER, body="TopicRouteData"),
    Request(C.GET_KVLIST_BY_NAMESPACE, READ, NAME_SERVER),
    Request(C.RESET_CONSUMER_CLIENT_OFFSET, WRITE, CLIENT, body="ResetOffsetBody"),
    Request(C.GET_CONSUMER_STATUS_FROM_CLIENT, READ, CLIENT),
    Request(C.INVOKE_BROKER_TO_RESET_OFFSET, WRITE, BROKER),
    Request(C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, READ, BROKER, ANY_ACCOUNT),
    Request(C.GET_TOPICS_BY_CLUSTER, READ, NAME_SERVER),
    Request(
        C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, WRITE, BROKER, body="SubscriptionGroupList"
    ),
    Request(C.QUERY_TOPIC_CONSUME_BY_WHO, READ, BROKER, ANY_ACCOUNT),
    # Its handler asks who it is: the one key that the broker gives to filter servers it starts.
    Request(C.REGISTER_FILTER_SERVER, WRITE, BROKER, ANY_ACCOUNT),
    Request(C.REGISTER_MESSAGE_FILTER_CLASS, WRITE, FILTER_SERVER, READ_TOPIC_AS_GROUP),
    Request(C.QUERY_CONSUME_TIME_SPAN, READ, BROKER, ANY_ACCOUNT),
    Request(C.GET_SYSTEM_TOPIC_LIST_FROM_NS, READ, NAME_SERVER),
    Request(C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, READ, BROKER, ANY_ACCOUNT),
    Request(C.CLEAN_EXPIRED_CONSUMEQUEUE, WRITE, BROKER),
    Request(C.GET_CONSUMER_RUNNING_INFO, READ, BROKER | CLIENT, ANY_ACCOUNT),
    Request(C.QUERY_CORRECTION_OFFSET, READ, BROKER, ANY_ACCOUNT),
    Request(C.CONSUME_MESSAGE_DIRECTLY, WRITE, BROKER | CLIENT),
    Request(C.SEND_MESSAGE_V2, SEND, BROKER | SNODE, SEND_TO_TOPIC),
    Request(C.GET_UNIT_TOPIC_LIST, READ, NAME_SERVER),
    Request(C.GET_HAS_UNIT_SUB_TOPIC_LIST, READ, NAME_SERVER),
    Request(C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, READ, NAME_SERVER),
    Request(C.CLONE_GROUP_OFFSET, WRITE, BROKER),
    Request(C.VIEW_BROKER_STATS_DATA, READ, BROKER, ANY_ACCOUNT),
    Request(C.CLEAN_UNUSED_TOPIC, WRITE, BROKER),
    Request(C.GET_BROKER_CONSUME_STATS, READ, BROKER, ANY_ACCOUNT),
    Request(C.UPDATE_NAMESRV_CONFIG, WRITE, NAME_SERVER),
    Request(C.GET_NAMESRV_CONFIG, READ, NAME_SERVER),
    Request(C.SEND_BATCH_MESSAGE, SEND, BROKER | SNODE, SEND_TO_TOPIC),
    Request(C.QUERY_CONSUME_QUEUE, READ, BROKER, READ_TOPIC),
    # This puts off the expiry of a broker, as BROKER_HEARTBEAT does.
    Request(C.QUERY_DATA_VERSION, WRITE, NAME_SERVER, body="DataVersion"),
    Request(C.RESUME_CHECK_HALF_MESSAGE, WRITE, BROKER),
    Request(C.SEND_REPLY_MESSAGE, SEND, BROKER, SEND_TO_TOPIC),
    Request(C.SEND_REPLY_MESSAGE_V2, SEND, BROKER, SEND_TO_TOPIC),
    Request(C.PUSH_REPLY_MESSAGE_TO_CLIENT, WRITE, CLIENT),
    Request(C.ADD_WRITE_PERM_OF_BROKER, WRITE, NAME_SERVER),
    Request(C.GET_ALL_PRODUCER_INFO, READ, BROKER, ANY_ACCOUNT),
    Request(C.DELETE_EXPIRED_COMMITLOG, WRITE, BROKER),
    Request(C.QUERY_TOPICS_BY_CONSUMER, READ, BROKER, ANY_ACCOUNT),
    Request(C.QUERY_SUBSCRIPTION_BY_CONSUMER, READ, NOBODY),
    Request(C.GET_TOPIC_CONFIG, READ, BROKER, ANY_ACCOUNT),
    Request(C.GET_SUBSCRIPTIONGROUP_CONFIG, READ, BROKER, ANY_ACCOUNT),
    Request(C.UPDATE_AND_GET_GROUP_FORBIDDEN, WRITE, NOBODY),
    Request(C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, READ, NOBODY),
    Request(C.EXPORT_ROCKSDB_CONFIG_TO_JSON, WRITE, BROKER),
    Request(C.LITE_PULL_MESSAGE, READ, BROKER | SNODE, READ_TOPIC_AS_GROUP),
    Request(C.RECALL_MESSAGE, WRITE, BROKER, SEND_TO_TOPIC),
    Request(
        C.QUERY_ASSIGNMENT, READ, BROKER, TOPIC_AND_GROUP_IN_BODY, body="QueryAssignmentRequestBody"
    ),
    Request(C.SET_MESSAGE_REQUEST_MODE, WRITE, BROKER, body="SetMessageRequestModeRequestBody"),
    Request(C.GET_ALL_MESSAGE_REQUEST_MODE, READ, BROKER, ANY_ACCOUNT),
    Request(C.UPDATE_AND_CREATE_STATIC_TOPIC, WRITE, NOBODY, body="TopicQueueMappingDetail"),
    Request(C.GET_BROKER_MEMBER_GROUP, READ, NAME_SERVER),
    Request(C.ADD_BROKER, WRITE, NOBODY),
    Request(C.REMOVE_BROKER, WRITE, NOBODY),
    Request(C.BROKER_HEARTBEAT, WRITE, NAME_SERVER | CONTROLLER),
    Request(C.NOTIFY_MIN_BROKER_ID_CHANGE, WRITE, BROKER, ANY_ACCOUNT),
    # What it can change in Java it cannot here: see its handler. A notice only has a broker ask.
    Request(C.EXCHANGE_BROKER_HA_INFO, WRITE, BROKER, ANY_ACCOUNT),
    Request(C.GET_BROKER_HA_STATUS, READ, BROKER, ANY_ACCOUNT),
    Request(C.RESET_MASTER_FLUSH_OFFSET, WRITE, NOBODY),
    Request(C.CONTROLLER_ALTER_SYNC_STATE_SET, WRITE, CONTROLLER, body="SyncStateSet"),
    Request(C.CONTROLLER_ELECT_MASTER, WRITE, CONTROLLER),
    Request(C.CONTROLLER_REGISTER_BROKER, WRITE, CONTROLLER),
    Request(C.CONTROLLER_GET_REPLICA_INFO, READ, CONTROLLER),
    Request(C.CONTROLLER_GET_METADATA_INFO, READ, CONTROLLER),
    Request(C.CONTROLLER_GET_SYNC_STATE_DATA, READ, CONTROLLER),
    Request(C.GET_BROKER_EPOCH_CACHE, READ, BROKER, ANY_ACCOUNT),
    Request(C.NOTIFY_BROKER_ROLE_CHANGED, WRITE, BROKER, ANY_ACCOUNT, body="SyncStateSet"),
    Request(C.UPDATE_CONTROLLER_CONFIG, WRITE, CONTROLLER),
    Request(C.GET_CONTROLLER_CONFIG, READ, CONTROLLER),
    Request(C.CLEAN_BROKER_DATA, WRITE, CONTROLLER),
    Request(C.CONTROLLER_GET_NEXT_BROKER_ID, WRITE, CONTROLLER),
    Request(C.CONTROLLER_APPLY_BROKER_ID, WRITE, CONTROLLER),
    Request(C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, WRITE, NOBODY),
    Request(C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, WRITE, NOBODY),
    Request(C.GET_COLD_DATA_FLOW_CTR_INFO, READ, NOBODY),
    Request(C.SET_COMMITLOG_READ_MODE, WRITE, NOBODY),
    Request(C.AUTH_CREATE_USER, WRITE, NOBODY, body="UserInfo"),
    Request(C.AUTH_UPDATE_USER, WRITE, NOBODY, body="UserInfo"),
    Request(C.AUTH_DELETE_USER, WRITE, NOBODY),
    Request(C.AUTH_GET_USER, READ, NOBODY),
    Request(C.AUTH_LIST_USER, READ, NOBODY),
    Request(C.AUTH_CREATE_ACL, WRITE, NOBODY, body="AclInfo"),
    Request(C.AUTH_UPDATE_ACL, WRITE, NOBODY, body="AclInfo"),
    Request(C.AUTH_DELETE_ACL, WRITE, NOBODY),
    Request(C.AUTH_GET_ACL, READ, NOBODY),
    Request(C.AUTH_LIST_ACL, READ, NOBODY),
    Request(C.POP_MESSAGE, WRITE, BROKER, READ_TOPIC_AS_GROUP),
    Request(C.ACK_MESSAGE, WRITE, BROKER, READ_TOPIC_AS_GROUP),
    Request(C.PEEK_MESSAGE, READ, BROKER, READ_TOPIC_AS_GROUP),
    Request(C.CHANGE_MESSAGE_INVISIBLETIME, WRITE, BROKER, READ_TOPIC_AS_GROUP),
    Request(C.NOTIFICATION, READ, BROKER, READ_TOPIC_AS_GROUP),
    Request(C.POLLING_INFO, READ, BROKER, READ_TOPIC_AS_GROUP),
    Request(C.POP_ROLLBACK, WRITE, BROKER),
    Request(
        C.BATCH_ACK_MESSAGE,
        WRITE,
        BROKER,
        TOPIC_AND_GROUP_IN_BODY,
        body="BatchAckMessageRequestBody",
    ),
)

# Of a broker the dialect asks for an administrator: see Request.
_SNODE_ROWS = (
    Request(SnodeCode.REGISTER_SNODE, WRITE, NAME_SERVER),
    Request(SnodeCode.SNODE_PULL_MESSAGE, READ, BROKER | SNODE, READ_TOPIC_AS_GROUP),
    Request(SnodeCode.PUSH_MESSAGE, WRITE, CLIENT),
    Request(SnodeCode.GET_SNODE_CLUSTER_INFO, READ, NAME_SERVER),
    Request(SnodeCode.GET_SNODE_INFO, READ, NAME_SERVER),
    Request(SnodeCode.CREATE_RETRY_TOPIC, WRITE, BROKER | SNODE, AS_GROUP_NAMED),
)

#: The rows by code, in the order of the codes.
REQUESTS: Mapping[int, Request] = {int(row.code): row for row in _ROWS}

#: Those of the dialect of snodes, for what means something else there.
SNODE_REQUESTS: Mapping[int, Request] = {int(row.code): row for row in _SNODE_ROWS}

# The codes of the two meet at brokers only: at the port of a snode there is one dialect, and of
# what a name server or a client is asked no number has two meanings.
_MET_BY_DIALECT = BROKER


def answered_by(role: Role, dialect: Dialect | None = None) -> Iterator[Request]:
    """The rows of what is asked of a broker, a name server, a client, a controller or a snode.

    Without a dialect those that any connection may ask: of a broker the ordinary ones.
    """
    if dialect is None and role in _MET_BY_DIALECT:
        dialect = Dialect.ORDINARY
    rows = (*_ROWS, *_SNODE_ROWS)
    return (row for row in rows if role in row.answered_by and dialect in (None, row.dialect))


def kind_of(code: int) -> RequestKind:
    """What a request does. A number that no row has writes: nobody knows that it does not.

    A bare number is taken for one of the ordinary dialect.
    """
    table = SNODE_REQUESTS if isinstance(code, SnodeCode) else REQUESTS
    row = table.get(code)
    return RequestKind.WRITE if row is None else row.kind
