"""Codes of the remoting protocol: what is asked, what came of it, who speaks.

Wire values: never renumber, never reuse. A gap in the numbers is a gap in Java too.
Sources: org.apache.rocketmq.common.protocol.RequestCode and ResponseCode, remoting.protocol
RemotingSysResponseCode and LanguageCode, common.MQVersion.
"""

from enum import Enum, IntEnum, unique
from functools import lru_cache

ONLY_4 = "4.x"  # known to 4.9.8, gone in 5.x
SINCE_5 = "5.x"  # unknown to 4.9.8
ONLY_SNODE = "snode"  # of the snode branch of 2019, which no release has


@unique
class Dialect(Enum):
    """Which meaning a request code has on a connection; docs/decisions/0059-dialects.md."""

    ORDINARY = "ordinary"  # RequestCode: what a connection speaks until something else is agreed on
    SNODE = "snode"  # SnodeCode, and RequestCode for what that does not have


class _Code(IntEnum):
    """A wire number that remembers which releases know it."""

    _value_: int
    release: str  #: "" for every release, else ONLY_4, SINCE_5 or ONLY_SNODE

    def __new__(cls, value: int, release: str = "") -> "_Code":
        member = int.__new__(cls, value)
        member._value_ = value
        member.release = release
        return member


@unique
class RequestCode(_Code):
    """What a request asks for."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_BROKER_OFFSET = 13
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18, SINCE_5
    GET_ALL_TOPIC_CONFIG = 21
    GET_TOPIC_CONFIG_LIST = 22
    GET_TOPIC_NAME_LIST = 23
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    TRIGGER_DELETE_FILES = 27
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    GET_CLIENT_CONFIG = 47, SINCE_5
    UPDATE_AND_CREATE_ACL_CONFIG = 50, ONLY_4
    DELETE_ACL_CONFIG = 51, ONLY_4
    GET_BROKER_CLUSTER_ACL_INFO = 52, ONLY_4
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53, ONLY_4
    GET_BROKER_CLUSTER_ACL_CONFIG = 54, ONLY_4  # of 4.9.7; 4.9.8 has dropped it
    GET_TIMER_CHECK_POINT = 60, SINCE_5
    GET_TIMER_METRICS = 61, SINCE_5
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    SUSPEND_CONSUMER = 209
    RESUME_CONSUMER = 210
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211
    RESET_CONSUMER_OFFSET_IN_BROKER = 212
    ADJUST_CONSUMER_THREAD_POOL = 213
    WHO_CONSUME_THE_MESSAGE = 214
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217, SINCE_5
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225, SINCE_5
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    REGISTER_FILTER_SERVER = 301
    REGISTER_MESSAGE_FILTER_CLASS = 302
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343, SINCE_5
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345, SINCE_5
    GET_TOPIC_CONFIG = 351, SINCE_5
    GET_SUBSCRIPTIONGROUP_CONFIG = 352, SINCE_5
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353, SINCE_5
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354, SINCE_5
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355, SINCE_5
    LITE_PULL_MESSAGE = 361, SINCE_5
    RECALL_MESSAGE = 370, SINCE_5
    QUERY_ASSIGNMENT = 400, SINCE_5
    SET_MESSAGE_REQUEST_MODE = 401, SINCE_5
    GET_ALL_MESSAGE_REQUEST_MODE = 402, SINCE_5
    UPDATE_AND_CREATE_STATIC_TOPIC = 513, SINCE_5
    GET_BROKER_MEMBER_GROUP = 901, SINCE_5
    ADD_BROKER = 902, SINCE_5
    REMOVE_BROKER = 903, SINCE_5
    BROKER_HEARTBEAT = 904, SINCE_5
    NOTIFY_MIN_BROKER_ID_CHANGE = 905, SINCE_5
    EXCHANGE_BROKER_HA_INFO = 906, SINCE_5
    GET_BROKER_HA_STATUS = 907, SINCE_5
    RESET_MASTER_FLUSH_OFFSET = 908, SINCE_5
    CONTROLLER_ALTER_SYNC_STATE_SET = 1001, SINCE_5
    CONTROLLER_ELECT_MASTER = 1002, SINCE_5
    CONTROLLER_REGISTER_BROKER = 1003, SINCE_5
    CONTROLLER_GET_REPLICA_INFO = 1004, SINCE_5
    CONTROLLER_GET_METADATA_INFO = 1005, SINCE_5
    CONTROLLER_GET_SYNC_STATE_DATA = 1006, SINCE_5
    GET_BROKER_EPOCH_CACHE = 1007, SINCE_5
    NOTIFY_BROKER_ROLE_CHANGED = 1008, SINCE_5
    UPDATE_CONTROLLER_CONFIG = 1009, SINCE_5
    GET_CONTROLLER_CONFIG = 1010, SINCE_5
    CLEAN_BROKER_DATA = 1011, SINCE_5
    CONTROLLER_GET_NEXT_BROKER_ID = 1012, SINCE_5
    CONTROLLER_APPLY_BROKER_ID = 1013, SINCE_5
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001, SINCE_5
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002, SINCE_5
    GET_COLD_DATA_FLOW_CTR_INFO = 2003, SINCE_5
    SET_COMMITLOG_READ_MODE = 2004, SINCE_5
    AUTH_CREATE_USER = 3001, SINCE_5
    AUTH_UPDATE_USER = 3002, SINCE_5
    AUTH_DELETE_USER = 3003, SINCE_5
    AUTH_GET_USER = 3004, SINCE_5
    AUTH_LIST_USER = 3005, SINCE_5
    AUTH_CREATE_ACL = 3006, SINCE_5
    AUTH_UPDATE_ACL = 3007, SINCE_5
    AUTH_DELETE_ACL = 3008, SINCE_5
    AUTH_GET_ACL = 3009, SINCE_5
    AUTH_LIST_ACL = 3010, SINCE_5
    POP_MESSAGE = 200050, SINCE_5
    ACK_MESSAGE = 200051, SINCE_5
    PEEK_MESSAGE = 200052, SINCE_5
    CHANGE_MESSAGE_INVISIBLETIME = 200053, SINCE_5
    NOTIFICATION = 200054, SINCE_5
    POLLING_INFO = 200055, SINCE_5
    POP_ROLLBACK = 200056, SINCE_5
    BATCH_ACK_MESSAGE = 200151, SINCE_5


#: Of the answer to a snode's heartbeat: which dialect the connection speaks from then on.
DIALECT_FIELD = "dialect"


@unique
class SnodeCode(_Code):
    """What a request asks for in the dialect of snodes, where that differs from RequestCode.

    351 to 355 mean something else to a broker of 5.x, on an ordinary connection.
    """

    REGISTER_SNODE = 350, ONLY_SNODE
    SNODE_PULL_MESSAGE = 351, ONLY_SNODE
    PUSH_MESSAGE = 352, ONLY_SNODE
    GET_SNODE_CLUSTER_INFO = 353, ONLY_SNODE
    GET_SNODE_INFO = 354, ONLY_SNODE
    CREATE_RETRY_TOPIC = 355, ONLY_SNODE


#: Those that send messages, as themselves: not one that is answered, or sent back.
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)

#: Those that read a queue from an offset on, and may carry one to commit.
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class ResponseCode(_Code):
    """What came of a request.

    5.x gave 209, 210 and 211 a second meaning: the 4.9.8 name is the canonical one here, because
    4.9.8 is the reference release, and the name of 5.x is its alias. Which one a peer means follows
    from the request: the old three answer ACL requests (50, 51, 53), the new ones answer others.
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
    """The language that a peer is written in (RemotingCommand.language)."""

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


CURRENT_VERSION = 409  # MQVersion.Version.V4_9_8, the release that this project follows


def version_name(version: int) -> str:
    """The name of a release from its number on the wire: 409 is "V4_9_8".

    Numbers beyond the list read as "HIGHER_VERSION", as in MQVersion.getVersionDesc; a negative
    one, at which Java throws, does too.
    """
    names = _version_names()
    return names[version] if 0 <= version < len(names) else names[-1]


def version_number(name: str) -> int:
    """The number of a release from its name, the other way round.

    Raises:
        ValueError: there is no release of that name.
    """
    return _version_names().index(name)


@lru_cache(maxsize=1)
def _version_names() -> tuple[str, ...]:
    """The ordinals of MQVersion.Version: but for the first, each release follows its SNAPSHOT."""
    names = ["V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1"]
    names += [f"V3_0_0_BETA{n}" for n in range(1, 6)]
    for n in range(6, 10):
        names += [f"V3_0_0_BETA{n}_SNAPSHOT", f"V3_0_0_BETA{n}"]
    names.append("V3_0_0_FINAL")
    patches = [("V3_0", range(1, 16)), ("V3_1", range(10)), ("V3_2", range(10))]
    patches += [(f"V3_{minor}", range(1, 10)) for minor in range(3, 10)]  # no V3_3_0 … V3_9_0
    patches += [(f"V{major}_{minor}", range(10)) for major in (4, 5) for minor in range(10)]
    for series, numbers in patches:
        for patch in numbers:
            names += [f"{series}_{patch}_SNAPSHOT", f"{series}_{patch}"]
    return (*names, "HIGHER_VERSION")
