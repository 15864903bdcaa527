"""The numbers of TubeMQ's wire: services, methods, result codes, events."""

from enum import IntEnum

#: The value of an undefined number (TBaseConstants.META_VALUE_UNDEFINED).
UNDEFINED = -2

MASTER_PORT = 8715
MASTER_TLS_PORT = 8716
BROKER_PORT = 8123
BROKER_TLS_PORT = 8124
MASTER_WEB_PORT = 8080
BROKER_WEB_PORT = 8081

#: Protocol versions: com.tencent's clients, org.apache.tubemq's (and the C++ one), InLong's.
VERSIONS = (1, 2, 3)
VERSION = 3


class Service(IntEnum):
    """The service of a request. Wire values: never renumber, never reuse."""

    MASTER = 1
    BROKER_READ = 2
    BROKER_WRITE = 3
    BROKER_ADMIN = 4  # these two have no methods
    MASTER_ADMIN = 5


class Method(IntEnum):
    """The method of a request. Wire values: never renumber, never reuse.

    The suffixes are the original's: P a producer, C a consumer, B a broker, M a master.
    """

    PRODUCER_REGISTER_P2M = 1
    PRODUCER_HEARTBEAT_P2M = 2
    PRODUCER_CLOSE_P2M = 3
    CONSUMER_REGISTER_C2M = 4
    CONSUMER_HEARTBEAT_C2M = 5
    CONSUMER_CLOSE_C2M = 6
    BROKER_REGISTER_B2M = 7
    BROKER_HEARTBEAT_B2M = 8
    BROKER_CLOSE_B2M = 9
    # 11, 12, 14 and 19 are reserved, and answered as unsupported
    SEND_MESSAGE_P2B = 13
    CONSUMER_REGISTER_C2B = 15  # also to unregister: OpType
    CONSUMER_HEARTBEAT_C2B = 16
    GET_MESSAGES_C2B = 17
    CONSUMER_COMMIT_C2B = 18
    CONSUMER_REGISTER_V2_C2M = 20
    CONSUMER_HEARTBEAT_V2_C2M = 21
    CONSUMER_GET_PART_META_C2M = 22


#: The service that has a method.
SERVICES = {
    method: Service.BROKER_WRITE
    if method is Method.SEND_MESSAGE_P2B
    else Service.BROKER_READ
    if 15 <= method <= 18
    else Service.MASTER
    for method in Method
}


class OpType(IntEnum):
    """The operation of CONSUMER_REGISTER_C2B."""

    REGISTER = 31
    UNREGISTER = 32


class ReadStatus(IntEnum):
    """The start of a group in a partition."""

    NORMAL = 0  # at its offset, or at the oldest message
    FROM_MAX = 1  # at its offset, or at the end
    FROM_MAX_ALWAYS = 2  # at the end


class EventType(IntEnum):
    """An instruction of a master to a consumer."""

    CONNECT = 1
    DISCONNECT = 2
    REPORT = 3
    REFRESH = 4
    STOPREBALANCE = 5
    ONLY_CONNECT = 10
    ONLY_DISCONNECT = 20


class EventStatus(IntEnum):
    """The progress of a consumer with an event."""

    TODO = 0
    PROCESSING = 1
    DONE = 2
    UNKNOWN = -1
    FAILED = -2


class Code(IntEnum):
    """The result of a request. Wire values (TErrCodeConstants); the C++ client's own are last."""

    SUCCESS = 200
    NOT_READY = 201
    MOVED = 301
    BAD_REQUEST = 400
    UNAUTHORIZED = 401
    CONNECT_RETURN_NULL = 402
    FORBIDDEN = 403
    NOT_FOUND = 404
    ALL_PARTITION_FROZEN = 405
    NO_PARTITION_ASSIGNED = 406
    ALL_PARTITION_WAITING = 407
    ALL_PARTITION_INUSE = 408
    PARTITION_OCCUPIED = 410
    HB_NO_NODE = 411
    DUPLICATE_PARTITION = 412
    CERTIFICATE_FAILURE = 415
    SERVER_RECEIVE_OVERFLOW = 419
    CLIENT_SHUTDOWN = 420
    CLIENT_HIGH_FREQUENCY_REQUEST = 421
    PARTITION_UNSUBSCRIBABLE = 422
    PARTITION_UNPUBLISHABLE = 423
    CLIENT_INCONSISTENT_CONSUMETYPE = 424
    CLIENT_INCONSISTENT_TOPICSET = 425
    CLIENT_INCONSISTENT_FILTERSET = 426
    CLIENT_INCONSISTENT_SESSIONKEY = 427
    CLIENT_INCONSISTENT_SELECTBIG = 428
    CLIENT_INCONSISTENT_SOURCECOUNT = 429
    CLIENT_DUPLICATE_INDEXID = 430
    TOPIC_NOT_DEPLOYED = 431
    PARAMETER_MSG_NULL = 440
    PARAMETER_MSG_TOPIC_BLANK = 441
    PARAMETER_MSG_BODY_EMPTY = 442
    PARAMETER_MSG_TOPIC_UNPUBLISHED = 443
    PARAMETER_MSG_TOPIC_NO_PARTITION = 444
    PARAMETER_MSG_OVER_MAX_LENGTH = 445
    CONSUME_GROUP_FORBIDDEN = 450
    SERVER_CONSUME_SPEED_LIMIT = 452
    CONSUME_CONTENT_FORBIDDEN = 455
    INTERNAL_SERVER_ERROR = 500
    SERVICE_UNAVAILABLE = 503
    INTERNAL_SERVER_ERROR_MSGSET_NULL = 510
    UNSPECIFIED_ABNORMAL = 599

    RECEIVED_EXCEPTION = 501
    RESPONSE_TIMEOUT = 550
    NETWORK_TIMEOUT = 1000
    NETWORK_ERROR = 1001
    SERVER_STOPPED = 2001
    SERVICE_STOPPED = 2002
    CLIENT_STOPPED = 2003
    CONFIRM_TIMEOUT = 2004
    PARSE_FAILURE = 5001
