"""Errors between a client and its peers.

MQError
├── ConnectError          nobody answers at the address, or the connection broke
├── RequestTimeout        no answer in time; the request may have been carried out
├── ReplyTimeout          a message was sent, but nobody replied to it in time
├── BadAnswer             the peer's answer cannot be read
├── RouteNotFound         no name server knows the topic
├── ClientError           the caller asked for something that this client cannot do
└── BrokerError           the peer refused; a subclass per response code, found by `for_code`

`retriable` says whether the same request may succeed at another broker or a moment later.
"""

import os
import socket

from mq.protocol.codes import ResponseCode


class MQError(Exception):
    """Anything that this client raises by itself."""

    retriable = False


class ConnectError(MQError):
    """No connection to `address`, or it broke before the answer came."""

    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class RequestTimeout(MQError):
    """`address` did not answer within `seconds`. It may still have done what was asked."""

    retriable = True

    def __init__(self, address: str, seconds: float, code: int) -> None:
        super().__init__(f"{address}: no answer to request {code} within {seconds:g} s")
        self.address = address
        self.seconds = seconds
        self.code = code


class ReplyTimeout(MQError):
    """The message asking for a reply was stored in `topic`, but no reply came in `seconds`."""

    def __init__(self, topic: str, seconds: float) -> None:
        super().__init__(
            f"the request was sent to topic {topic}, but no consumer replied within {seconds:g} s"
        )
        self.topic = topic
        self.seconds = seconds


class BadAnswer(MQError):
    """`address` sent something that is not an answer to what it was asked."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: unreadable answer: {reason}")
        self.address = address
        self.reason = reason


class RouteNotFound(MQError):
    """No name server has a route of `topic`, or none that allows what is wanted."""

    def __init__(self, topic: str, reason: str = "no name server knows it") -> None:
        super().__init__(f"topic {topic}: {reason}")
        self.topic = topic


class ClientError(MQError):
    """The caller's own mistake: a closed client, an oversized message, a bad address."""


class BrokerError(MQError):
    """A broker or name server answered with an error code.

    `code` is the response code (a number that this release need not know), `remark` the peer's
    own words, `address` who said it.
    """

    code: int = -1

    def __init__(self, remark: str | None, address: str, code: int | None = None) -> None:
        if code is not None:
            self.code = code
        self.remark = remark or ""
        self.address = address
        super().__init__(f"{address}: {self.code_name}: {self.remark or 'no reason given'}")

    @property
    def code_name(self) -> str:
        """The name of the code, or its number where it has none."""
        try:
            return ResponseCode(self.code).name
        except ValueError:
            return f"code {self.code}"


class RemoteSystemError(BrokerError):
    """The peer failed inside, or refuses for a reason that has no code of its own."""

    code = ResponseCode.SYSTEM_ERROR
    retriable = True


class NoneThere(RemoteSystemError):
    """The peer has none of what it was asked about, which Java's says with the code of a failure.

    Its words tell the two apart: a broker that fails, or whose access control refuses (4.9 does so
    by an exception), has the same code, and has said nothing of what is there.
    """

    retriable = False


class SystemBusy(BrokerError):
    """The peer is overloaded and took nothing."""

    code = ResponseCode.SYSTEM_BUSY
    retriable = True


class RequestNotSupported(BrokerError):
    """The peer does not know this kind of request."""

    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class MessageIllegal(BrokerError):
    """The message breaks a rule: its size, its properties, its topic's name."""

    code = ResponseCode.MESSAGE_ILLEGAL

    @property
    def names_limit(self) -> bool:
        """Whether the broker says what its maxMessageSize is: the body may be over it."""
        return "maxMessageSize" in str(self) or "body length limit" in str(self)  # ours, Java's


class ServiceNotAvailable(BrokerError):
    """The broker cannot store now: it is stopping, a replica, or its disk is full."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True


class NoPermission(BrokerError):
    """The broker, topic or account does not allow it. Another broker may."""

    code = ResponseCode.NO_PERMISSION
    retriable = True


class SettingRefused(NoPermission):
    """The peer does not let a request change this setting."""

    retriable = False


class TopicNotExist(BrokerError):
    """The broker has no such topic and may not create it. Another broker may have it."""

    code = ResponseCode.TOPIC_NOT_EXIST
    retriable = True


class NoBuyerId(BrokerError):
    """A hosted broker misses the account of the sender."""

    code = ResponseCode.NO_BUYER_ID
    retriable = True


class NotInCurrentUnit(BrokerError):
    """The topic lives in another unit of a many-site installation."""

    code = ResponseCode.NOT_IN_CURRENT_UNIT
    retriable = True


class QueryNotFound(BrokerError):
    """There is no such message, offset or entry."""

    code = ResponseCode.QUERY_NOT_FOUND


class PullNotFound(BrokerError):
    """No message waits at that offset."""

    code = ResponseCode.PULL_NOT_FOUND


class SubscriptionParseFailed(BrokerError):
    """The expression of the subscription cannot be read."""

    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class SubscriptionNotExist(BrokerError):
    """The broker has had no heartbeat of this group that subscribes to the topic."""

    code = ResponseCode.SUBSCRIPTION_NOT_EXIST
    retriable = True


class SubscriptionNotLatest(BrokerError):
    """The broker knows an older subscription than the one the consumer pulls with."""

    code = ResponseCode.SUBSCRIPTION_NOT_LATEST
    retriable = True


class SubscriptionGroupNotExist(BrokerError):
    """The broker has no such consumer group and may not create it."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


class ConsumerNotOnline(BrokerError):
    """No consumer of that group is connected to the broker."""

    code = ResponseCode.CONSUMER_NOT_ONLINE


class FlowControl(BrokerError):
    """The broker slows this client down and took nothing."""

    code = ResponseCode.FLOW_CONTROL
    retriable = True


def reason_of(error: OSError) -> str:
    """The system's words for what happened; asyncio puts its own in `strerror`."""
    # The numbers of these are no errno: 1 of an SSLError is not "Operation not permitted".
    own_numbers = isinstance(error, socket.gaierror) or type(error).__module__ == "ssl"
    if own_numbers or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


_BY_CODE = {int(error.code): error for error in BrokerError.__subclasses__()}

# How remarks begin, and end, of brokers that have none of what they are asked about.
_NONE_THERE = (
    ("no consumer for this group, ", ""),  # ConsumerManageProcessor.getConsumerListByGroup
    ("the producer group[", "] not exist"),  # AdminBrokerProcessor.getProducerConnectionList
    ("The stats <", "> not exist"),  # AdminBrokerProcessor.viewBrokerStatsData
    ("can not find message by the offset, ", ""),  # QueryMessageProcessor.viewMessageById
    ("The checkpoint is null", ""),  # AdminBrokerProcessor.getTimerCheckPoint
)


def for_code(code: int, remark: str | None, address: str) -> BrokerError:
    """Return the error for a response code, of the subclass that has it; NoneThere by the remark
    of a system error."""
    if code == ResponseCode.SYSTEM_ERROR and remark:
        for begin, end in _NONE_THERE:
            if remark.startswith(begin) and remark.endswith(end):
                return NoneThere(remark, address, code)
    return _BY_CODE.get(code, BrokerError)(remark, address, code)
