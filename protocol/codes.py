"""Codes of the remoting protocol: requests, responses, languages.

Wire values: never renumber, never reuse. A gap in the numbers is a gap in Java too. Sources:
org.apache.rocketmq.common.protocol.RequestCode and ResponseCode, remoting.protocol
RemotingSysResponseCode and LanguageCode.

The row of a request code holds all properties of the request (`mq.protocol.requests`). The access
control of brokers and of name servers, the requests that a dry run sends, the tables of
docs/protocol.md and docs/permissions.md, and tests over all codes are derived from the rows. The
header of a request is found by its declaration (`mq.protocol.headers.HEADERS`).
"""

from collections.abc import Iterator
from enum import Enum, IntEnum, unique
from typing import Any

from mq.protocol.requests import (
    ANY_ACCOUNT,
    AS_GROUP,
    AS_GROUP_NAMED,
    BROKER,
    CLIENT,
    CONFIG_OF_GROUP,
    CONTROLLER,
    END_OWN_TRANSACTION,
    FILTER_SERVER,
    GROUP_IN_BODY,
    NAME_SERVER,
    NOBODY,
    PRESENCE,
    READ,
    READ_MESSAGE,
    READ_TOPIC,
    READ_TOPIC_AS_GROUP,
    SEND,
    SEND_BACK,
    SEND_TO_TOPIC,
    SNODE,
    TOPIC_AND_GROUP_IN_BODY,
    WRITE,
    RequestKind,
    Right,
    Role,
    Row,
)

ONLY_4 = "4.x"  # known to 4.9.8, removed in 5.x
SINCE_5 = "5.x"  # unknown to 4.9.8
ONLY_SNODE = "snode"  # of the snode branch of 2019, which no release has


@unique
class Dialect(Enum):
    """The meaning of request codes on a connection; docs/decisions/0059-dialects.md."""

    ORDINARY = "ordinary"  # RequestCode: the default of a connection
    SNODE = "snode"  # SnodeCode, and RequestCode for all other codes


class _Asked(IntEnum):
    """The number of a request, with its properties."""

    _value_: int
    kind: RequestKind
    answered_by: Role
    rights: tuple[Right, ...] | None
    body: str
    release: str  #: "" for every release, else ONLY_4, SINCE_5 or ONLY_SNODE

    def __new__(cls, *row: Any) -> "_Asked":
        """The arguments are the fields of a Row, which an enum unpacks like any tuple."""
        number, *known = row
        member = int.__new__(cls, number)
        member._value_ = number
        member.kind, member.answered_by, member.rights, member.body, member.release = known
        return member

    @property
    def needs(self) -> str:
        """The rights as text: "SUB topic, SUB group", "any account", "an administrator"."""
        if self.rights is None:
            return "an administrator"
        return ", ".join(map(str, self.rights)) or "any account"


@unique
class RequestCode(_Asked):
    """Request codes."""

    SEND_MESSAGE = Row(10, SEND, BROKER, SEND_TO_TOPIC)
    # A pull may carry an offset to commit: it is removed for accounts that may only read.
    PULL_MESSAGE = Row(11, READ, BROKER | FILTER_SERVER | SNODE, READ_TOPIC_AS_GROUP)
    QUERY_MESSAGE = Row(12, READ, BROKER, READ_TOPIC)
    QUERY_BROKER_OFFSET = Row(13, READ, NOBODY)
    QUERY_CONSUMER_OFFSET = Row(14, READ, BROKER | SNODE, READ_TOPIC_AS_GROUP)
    UPDATE_CONSUMER_OFFSET = Row(15, WRITE, BROKER | SNODE, READ_TOPIC_AS_GROUP)
    UPDATE_AND_CREATE_TOPIC = Row(17, WRITE, BROKER)
    UPDATE_AND_CREATE_TOPIC_LIST = Row(
        18, WRITE, BROKER, body="CreateTopicListRequestBody", release=SINCE_5
    )
    GET_ALL_TOPIC_CONFIG = Row(21, READ, BROKER, ANY_ACCOUNT)
    GET_TOPIC_CONFIG_LIST = Row(22, READ, NOBODY)
    GET_TOPIC_NAME_LIST = Row(23, READ, NOBODY)
    UPDATE_BROKER_CONFIG = Row(25, WRITE, BROKER)
    GET_BROKER_CONFIG = Row(26, READ, BROKER, ANY_ACCOUNT)
    TRIGGER_DELETE_FILES = Row(27, WRITE, NOBODY)
    GET_BROKER_RUNTIME_INFO = Row(28, READ, BROKER, ANY_ACCOUNT)
    SEARCH_OFFSET_BY_TIMESTAMP = Row(29, READ, BROKER | SNODE, ANY_ACCOUNT)
    GET_MAX_OFFSET = Row(30, READ, BROKER | SNODE, ANY_ACCOUNT)
    GET_MIN_OFFSET = Row(31, READ, BROKER | SNODE, ANY_ACCOUNT)
    GET_EARLIEST_MSG_STORETIME = Row(32, READ, BROKER, ANY_ACCOUNT)
    VIEW_MESSAGE_BY_ID = Row(33, READ, BROKER, READ_MESSAGE)
    HEART_BEAT = Row(34, PRESENCE, BROKER | SNODE, TOPIC_AND_GROUP_IN_BODY, body="HeartbeatData")
    UNREGISTER_CLIENT = Row(35, PRESENCE, BROKER | SNODE, AS_GROUP)
    CONSUMER_SEND_MSG_BACK = Row(36, SEND, BROKER | SNODE, SEND_BACK)
    END_TRANSACTION = Row(37, WRITE, BROKER, END_OWN_TRANSACTION)
    GET_CONSUMER_LIST_BY_GROUP = Row(38, READ, BROKER | SNODE, AS_GROUP)
    CHECK_TRANSACTION_STATE = Row(39, WRITE, CLIENT)
    NOTIFY_CONSUMER_IDS_CHANGED = Row(40, WRITE, CLIENT)
    LOCK_BATCH_MQ = Row(41, WRITE, BROKER | SNODE, GROUP_IN_BODY, body="LockBatchRequestBody")
    UNLOCK_BATCH_MQ = Row(42, WRITE, BROKER | SNODE, GROUP_IN_BODY, body="UnlockBatchRequestBody")
    GET_ALL_CONSUMER_OFFSET = Row(43, READ, BROKER, ANY_ACCOUNT)
    GET_ALL_DELAY_OFFSET = Row(45, READ, BROKER, ANY_ACCOUNT)
    CHECK_CLIENT_CONFIG = Row(46, READ, BROKER | SNODE, ANY_ACCOUNT, body="CheckClientRequestBody")
    GET_CLIENT_CONFIG = Row(47, READ, NOBODY, release=SINCE_5)
    UPDATE_AND_CREATE_ACL_CONFIG = Row(50, WRITE, BROKER, release=ONLY_4)
    DELETE_ACL_CONFIG = Row(51, WRITE, BROKER, release=ONLY_4)
    GET_BROKER_CLUSTER_ACL_INFO = Row(52, READ, BROKER, release=ONLY_4)
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = Row(53, WRITE, BROKER, release=ONLY_4)
    # Of 4.9.7; removed in 4.9.8.
    GET_BROKER_CLUSTER_ACL_CONFIG = Row(54, READ, BROKER, release=ONLY_4)
    GET_TIMER_CHECK_POINT = Row(60, READ, BROKER, ANY_ACCOUNT, release=SINCE_5)
    GET_TIMER_METRICS = Row(61, READ, NOBODY, release=SINCE_5)
    PUT_KV_CONFIG = Row(100, WRITE, NAME_SERVER)
    GET_KV_CONFIG = Row(101, READ, NAME_SERVER)
    DELETE_KV_CONFIG = Row(102, WRITE, NAME_SERVER)
    REGISTER_BROKER = Row(103, WRITE, NAME_SERVER, body="RegisterBrokerBody")
    UNREGISTER_BROKER = Row(104, WRITE, NAME_SERVER)
    GET_ROUTEINFO_BY_TOPIC = Row(105, READ, NAME_SERVER | SNODE)
    GET_BROKER_CLUSTER_INFO = Row(106, READ, NAME_SERVER)
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = Row(200, WRITE, BROKER, body="SubscriptionGroupConfig")
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = Row(201, READ, BROKER, ANY_ACCOUNT)
    GET_TOPIC_STATS_INFO = Row(202, READ, BROKER, ANY_ACCOUNT)
    GET_CONSUMER_CONNECTION_LIST = Row(203, READ, BROKER, ANY_ACCOUNT)
    GET_PRODUCER_CONNECTION_LIST = Row(204, READ, BROKER, ANY_ACCOUNT)
    WIPE_WRITE_PERM_OF_BROKER = Row(205, WRITE, NAME_SERVER)
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = Row(206, READ, NAME_SERVER)
    DELETE_SUBSCRIPTIONGROUP = Row(207, WRITE, BROKER)
    GET_CONSUME_STATS = Row(208, READ, BROKER, ANY_ACCOUNT)
    SUSPEND_CONSUMER = Row(209, WRITE, NOBODY)
    RESUME_CONSUMER = Row(210, WRITE, NOBODY)
    RESET_CONSUMER_OFFSET_IN_CONSUMER = Row(211, WRITE, NOBODY)
    RESET_CONSUMER_OFFSET_IN_BROKER = Row(212, WRITE, NOBODY)
    ADJUST_CONSUMER_THREAD_POOL = Row(213, WRITE, NOBODY)
    WHO_CONSUME_THE_MESSAGE = Row(214, READ, NOBODY)
    DELETE_TOPIC_IN_BROKER = Row(215, WRITE, BROKER)
    DELETE_TOPIC_IN_NAMESRV = Row(216, WRITE, NAME_SERVER)
    REGISTER_TOPIC_IN_NAMESRV = Row(217, WRITE, NAME_SERVER, body="TopicRouteData", release=SINCE_5)
    GET_KVLIST_BY_NAMESPACE = Row(219, READ, NAME_SERVER)
    RESET_CONSUMER_CLIENT_OFFSET = Row(220, WRITE, CLIENT, body="ResetOffsetBody")
    GET_CONSUMER_STATUS_FROM_CLIENT = Row(221, READ, CLIENT)
    INVOKE_BROKER_TO_RESET_OFFSET = Row(222, WRITE, BROKER)
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = Row(223, READ, BROKER, ANY_ACCOUNT)
    GET_TOPICS_BY_CLUSTER = Row(224, READ, NAME_SERVER)
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = Row(
        225, WRITE, BROKER, body="SubscriptionGroupList", release=SINCE_5
    )
    QUERY_TOPIC_CONSUME_BY_WHO = Row(300, READ, BROKER, ANY_ACCOUNT)
    # Its handler checks the caller: only the key that the broker gives to its own filter servers.
    REGISTER_FILTER_SERVER = Row(301, WRITE, BROKER, ANY_ACCOUNT)
    REGISTER_MESSAGE_FILTER_CLASS = Row(302, WRITE, FILTER_SERVER, READ_TOPIC_AS_GROUP)
    QUERY_CONSUME_TIME_SPAN = Row(303, READ, BROKER, ANY_ACCOUNT)
    GET_SYSTEM_TOPIC_LIST_FROM_NS = Row(304, READ, NAME_SERVER)
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = Row(305, READ, BROKER, ANY_ACCOUNT)
    CLEAN_EXPIRED_CONSUMEQUEUE = Row(306, WRITE, BROKER)
    GET_CONSUMER_RUNNING_INFO = Row(307, READ, BROKER | CLIENT, ANY_ACCOUNT)
    QUERY_CORRECTION_OFFSET = Row(308, READ, BROKER, ANY_ACCOUNT)
    CONSUME_MESSAGE_DIRECTLY = Row(309, WRITE, BROKER | CLIENT)
    SEND_MESSAGE_V2 = Row(310, SEND, BROKER | SNODE, SEND_TO_TOPIC)
    GET_UNIT_TOPIC_LIST = Row(311, READ, NAME_SERVER)
    GET_HAS_UNIT_SUB_TOPIC_LIST = Row(312, READ, NAME_SERVER)
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = Row(313, READ, NAME_SERVER)
    CLONE_GROUP_OFFSET = Row(314, WRITE, BROKER)
    VIEW_BROKER_STATS_DATA = Row(315, READ, BROKER, ANY_ACCOUNT)
    CLEAN_UNUSED_TOPIC = Row(316, WRITE, BROKER)
    GET_BROKER_CONSUME_STATS = Row(317, READ, BROKER, ANY_ACCOUNT)
    UPDATE_NAMESRV_CONFIG = Row(318, WRITE, NAME_SERVER)
    GET_NAMESRV_CONFIG = Row(319, READ, NAME_SERVER)
    SEND_BATCH_MESSAGE = Row(320, SEND, BROKER | SNODE, SEND_TO_TOPIC)
    QUERY_CONSUME_QUEUE = Row(321, READ, BROKER, READ_TOPIC)
    # This postpones the expiry of a broker, as BROKER_HEARTBEAT does.
    QUERY_DATA_VERSION = Row(322, WRITE, NAME_SERVER, body="DataVersion")
    RESUME_CHECK_HALF_MESSAGE = Row(323, WRITE, BROKER)
    SEND_REPLY_MESSAGE = Row(324, SEND, BROKER, SEND_TO_TOPIC)
    SEND_REPLY_MESSAGE_V2 = Row(325, SEND, BROKER, SEND_TO_TOPIC)
    PUSH_REPLY_MESSAGE_TO_CLIENT = Row(326, WRITE, CLIENT)
    ADD_WRITE_PERM_OF_BROKER = Row(327, WRITE, NAME_SERVER)
    GET_ALL_PRODUCER_INFO = Row(328, READ, BROKER, ANY_ACCOUNT)
    DELETE_EXPIRED_COMMITLOG = Row(329, WRITE, BROKER)
    QUERY_TOPICS_BY_CONSUMER = Row(343, READ, BROKER, ANY_ACCOUNT, release=SINCE_5)
    QUERY_SUBSCRIPTION_BY_CONSUMER = Row(345, READ, NOBODY, release=SINCE_5)
    GET_TOPIC_CONFIG = Row(351, READ, BROKER, ANY_ACCOUNT, release=SINCE_5)
    GET_SUBSCRIPTIONGROUP_CONFIG = Row(352, READ, BROKER, CONFIG_OF_GROUP, release=SINCE_5)
    UPDATE_AND_GET_GROUP_FORBIDDEN = Row(353, WRITE, NOBODY, release=SINCE_5)
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = Row(354, READ, NOBODY, release=SINCE_5)
    EXPORT_ROCKSDB_CONFIG_TO_JSON = Row(355, WRITE, BROKER, release=SINCE_5)
    LITE_PULL_MESSAGE = Row(361, READ, BROKER | SNODE, READ_TOPIC_AS_GROUP, release=SINCE_5)
    RECALL_MESSAGE = Row(370, WRITE, BROKER, SEND_TO_TOPIC, release=SINCE_5)
    QUERY_ASSIGNMENT = Row(
        400,
        READ,
        BROKER,
        TOPIC_AND_GROUP_IN_BODY,
        body="QueryAssignmentRequestBody",
        release=SINCE_5,
    )
    SET_MESSAGE_REQUEST_MODE = Row(
        401, WRITE, BROKER, body="SetMessageRequestModeRequestBody", release=SINCE_5
    )
    GET_ALL_MESSAGE_REQUEST_MODE = Row(402, READ, BROKER, ANY_ACCOUNT, release=SINCE_5)
    UPDATE_AND_CREATE_STATIC_TOPIC = Row(
        513, WRITE, NOBODY, body="TopicQueueMappingDetail", release=SINCE_5
    )
    GET_BROKER_MEMBER_GROUP = Row(901, READ, NAME_SERVER, release=SINCE_5)
    ADD_BROKER = Row(902, WRITE, NOBODY, release=SINCE_5)
    REMOVE_BROKER = Row(903, WRITE, NOBODY, release=SINCE_5)
    BROKER_HEARTBEAT = Row(904, WRITE, NAME_SERVER | CONTROLLER, release=SINCE_5)
    NOTIFY_MIN_BROKER_ID_CHANGE = Row(905, WRITE, BROKER, ANY_ACCOUNT, release=SINCE_5)
    # It cannot change here what it changes in Java: see its handler. A notice only triggers a
    # query.
    EXCHANGE_BROKER_HA_INFO = Row(906, WRITE, BROKER, ANY_ACCOUNT, release=SINCE_5)
    GET_BROKER_HA_STATUS = Row(907, READ, BROKER, ANY_ACCOUNT, release=SINCE_5)
    RESET_MASTER_FLUSH_OFFSET = Row(908, WRITE, NOBODY, release=SINCE_5)
    CONTROLLER_ALTER_SYNC_STATE_SET = Row(
        1001, WRITE, CONTROLLER, body="SyncStateSet", release=SINCE_5
    )
    CONTROLLER_ELECT_MASTER = Row(1002, WRITE, CONTROLLER, release=SINCE_5)
    CONTROLLER_REGISTER_BROKER = Row(1003, WRITE, CONTROLLER, release=SINCE_5)
    CONTROLLER_GET_REPLICA_INFO = Row(1004, READ, CONTROLLER, release=SINCE_5)
    CONTROLLER_GET_METADATA_INFO = Row(1005, READ, CONTROLLER, release=SINCE_5)
    CONTROLLER_GET_SYNC_STATE_DATA = Row(1006, READ, CONTROLLER, release=SINCE_5)
    GET_BROKER_EPOCH_CACHE = Row(1007, READ, BROKER, ANY_ACCOUNT, release=SINCE_5)
    NOTIFY_BROKER_ROLE_CHANGED = Row(
        1008, WRITE, BROKER, ANY_ACCOUNT, body="SyncStateSet", release=SINCE_5
    )
    UPDATE_CONTROLLER_CONFIG = Row(1009, WRITE, CONTROLLER, release=SINCE_5)
    GET_CONTROLLER_CONFIG = Row(1010, READ, CONTROLLER, release=SINCE_5)
    CLEAN_BROKER_DATA = Row(1011, WRITE, CONTROLLER, release=SINCE_5)
    CONTROLLER_GET_NEXT_BROKER_ID = Row(1012, WRITE, CONTROLLER, release=SINCE_5)
    CONTROLLER_APPLY_BROKER_ID = Row(1013, WRITE, CONTROLLER, release=SINCE_5)
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = Row(2001, WRITE, NOBODY, release=SINCE_5)
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = Row(2002, WRITE, NOBODY, release=SINCE_5)
    GET_COLD_DATA_FLOW_CTR_INFO = Row(2003, READ, NOBODY, release=SINCE_5)
    SET_COMMITLOG_READ_MODE = Row(2004, WRITE, NOBODY, release=SINCE_5)
    AUTH_CREATE_USER = Row(3001, WRITE, NOBODY, body="UserInfo", release=SINCE_5)
    AUTH_UPDATE_USER = Row(3002, WRITE, NOBODY, body="UserInfo", release=SINCE_5)
    AUTH_DELETE_USER = Row(3003, WRITE, NOBODY, release=SINCE_5)
    AUTH_GET_USER = Row(3004, READ, NOBODY, release=SINCE_5)
    AUTH_LIST_USER = Row(3005, READ, NOBODY, release=SINCE_5)
    AUTH_CREATE_ACL = Row(3006, WRITE, NOBODY, body="AclInfo", release=SINCE_5)
    AUTH_UPDATE_ACL = Row(3007, WRITE, NOBODY, body="AclInfo", release=SINCE_5)
    AUTH_DELETE_ACL = Row(3008, WRITE, NOBODY, release=SINCE_5)
    AUTH_GET_ACL = Row(3009, READ, NOBODY, release=SINCE_5)
    AUTH_LIST_ACL = Row(3010, READ, NOBODY, release=SINCE_5)
    POP_MESSAGE = Row(200050, WRITE, BROKER, READ_TOPIC_AS_GROUP, release=SINCE_5)
    ACK_MESSAGE = Row(200051, WRITE, BROKER, READ_TOPIC_AS_GROUP, release=SINCE_5)
    PEEK_MESSAGE = Row(200052, READ, BROKER, READ_TOPIC_AS_GROUP, release=SINCE_5)
    CHANGE_MESSAGE_INVISIBLETIME = Row(200053, WRITE, BROKER, READ_TOPIC_AS_GROUP, release=SINCE_5)
    NOTIFICATION = Row(200054, READ, BROKER, READ_TOPIC_AS_GROUP, release=SINCE_5)
    POLLING_INFO = Row(200055, READ, BROKER, READ_TOPIC_AS_GROUP, release=SINCE_5)
    POP_ROLLBACK = Row(200056, WRITE, BROKER, release=SINCE_5)
    BATCH_ACK_MESSAGE = Row(
        200151,
        WRITE,
        BROKER,
        TOPIC_AND_GROUP_IN_BODY,
        body="BatchAckMessageRequestBody",
        release=SINCE_5,
    )


#: A field of the response to a snode's heartbeat: the dialect of the connection from then on.
DIALECT_FIELD = "dialect"


@unique
class SnodeCode(_Asked):
    """Request codes in the dialect of snodes, if they differ from RequestCode.

    351 to 355 have other meanings for a broker of 5.x on an ordinary connection. A broker accepts
    this dialect only from administrators: see Row.
    """

    REGISTER_SNODE = Row(350, WRITE, NAME_SERVER, release=ONLY_SNODE)
    SNODE_PULL_MESSAGE = Row(351, READ, BROKER | SNODE, READ_TOPIC_AS_GROUP, release=ONLY_SNODE)
    PUSH_MESSAGE = Row(352, WRITE, CLIENT, release=ONLY_SNODE)
    GET_SNODE_CLUSTER_INFO = Row(353, READ, NAME_SERVER, release=ONLY_SNODE)
    GET_SNODE_INFO = Row(354, READ, NAME_SERVER, release=ONLY_SNODE)
    CREATE_RETRY_TOPIC = Row(355, WRITE, BROKER | SNODE, AS_GROUP_NAMED, release=ONLY_SNODE)


#: A request code of either dialect.
AnyCode = RequestCode | SnodeCode

#: Requests that send messages themselves, without replies and messages sent back.
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)

#: Requests that read a queue from an offset on, and may carry an offset to commit.
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


def answered_by(role: Role, dialect: Dialect | None = None) -> Iterator[AnyCode]:
    """Return the requests to a broker, a name server, a client, a controller or a snode.

    Without a dialect: those of any connection; for a broker the ordinary codes. (The two dialects
    meet only at brokers: the port of a snode has one dialect, and among the requests to a name
    server or a client no number has two meanings.)
    """
    if dialect is None and role is BROKER:
        dialect = Dialect.ORDINARY
    if dialect in (None, Dialect.ORDINARY):
        yield from (code for code in RequestCode if role in code.answered_by)
    if dialect in (None, Dialect.SNODE):
        yield from (code for code in SnodeCode if role in code.answered_by)


def kind_of(code: int) -> RequestKind:
    """Return the kind of a request. An unknown number counts as a write, to be safe.

    A bare number is taken as one of the ordinary dialect.
    """
    if isinstance(code, _Asked):
        return code.kind
    try:
        return RequestCode(code).kind
    except ValueError:
        return RequestKind.WRITE


class _Result(IntEnum):
    """A response code with the releases that know it."""

    _value_: int
    release: str  #: "" for every release, else ONLY_4 or SINCE_5

    def __new__(cls, value: int, release: str = "") -> "_Result":
        member = int.__new__(cls, value)
        member._value_ = value
        member.release = release
        return member


class ResponseCode(_Result):
    """Response codes.

    5.x gave 209, 210 and 211 a second meaning: the 4.9.8 name is the canonical one here, because
    4.9.8 is the reference release, and the name of 5.x is its alias. The request determines which
    one a peer means: the old three answer ACL requests (50, 51, 53), the new ones answer others.
    """

    RPC_TIME_OUT = -1006, SINCE_5
    RPC_SEND_TO_CHANNEL_FAILED = -1004, SINCE_5
    RPC_ADDR_IS_NULL = -1002, SINCE_5
    RPC_UNKNOWN = -1000, SINCE_5
    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29, SINCE_5
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209, ONLY_4
    POLLING_FULL = 209  # alias, 5.x
    DELETE_ACL_CONFIG_FAILED = 210, ONLY_4
    POLLING_TIMEOUT = 210  # alias, 5.x
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211, ONLY_4
    BROKER_NOT_EXIST = 211  # alias, 5.x
    BROKER_DISPATCH_NOT_COMPLETE = 212, SINCE_5
    BROADCAST_CONSUMPTION = 213, SINCE_5
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501, SINCE_5
    ILLEGAL_OPERATION = 604, SINCE_5
    GO_AWAY = 1500, SINCE_5
    CONTROLLER_FENCED_MASTER_EPOCH = 2000, SINCE_5
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH = 2001, SINCE_5
    CONTROLLER_INVALID_MASTER = 2002, SINCE_5
    CONTROLLER_INVALID_REPLICAS = 2003, SINCE_5
    CONTROLLER_MASTER_NOT_AVAILABLE = 2004, SINCE_5
    CONTROLLER_INVALID_REQUEST = 2005, SINCE_5
    CONTROLLER_BROKER_NOT_ALIVE = 2006, SINCE_5
    CONTROLLER_NOT_LEADER = 2007, SINCE_5
    CONTROLLER_BROKER_METADATA_NOT_EXIST = 2008, SINCE_5
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA = 2009, SINCE_5
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED = 2010, SINCE_5
    CONTROLLER_MASTER_STILL_EXIST = 2011, SINCE_5
    CONTROLLER_ELECT_MASTER_FAILED = 2012, SINCE_5
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED = 2013, SINCE_5
    CONTROLLER_BROKER_ID_INVALID = 2014, SINCE_5
    CONTROLLER_JRAFT_INTERNAL_ERROR = 2015, SINCE_5
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS = 2016, SINCE_5
    USER_NOT_EXIST = 3001, SINCE_5
    POLICY_NOT_EXIST = 3002, SINCE_5


@unique
class LanguageCode(IntEnum):
    """The implementation language of a peer (RemotingCommand.language)."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13
