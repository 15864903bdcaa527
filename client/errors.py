"""Errors of a client and of its peers.

MQError
  ├── ConnectError          the connection failed or broke
  ├── RequestTimeout        no answer in time; the request may have been carried out
  ├── ReplyTimeout          a request message was sent, but no consumer replied in time
  ├── BadAnswer             the peer's answer cannot be decoded
  ├── RouteNotFound         no name server knows the topic
  ├── ClientError           the caller made a mistake, or this client does not support the call
  └── BrokerError           the peer refused; one subclass per response code, see `for_code`

`retriable` says whether the same request may succeed at another broker or a moment later.
"""

import os
import socket

from mq.protocol.codes import ResponseCode


class MQError(Exception):
    """The base of all errors that this client raises itself."""

    retriable = False


class ConnectError(MQError):
    """The connection to `address` failed, or broke before the answer arrived."""

    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class RequestTimeout(MQError):
    """`address` did not answer within `seconds`. It may still have carried out the request."""

    retriable = True

    def __init__(self, address: str, seconds: float, code: int) -> None:
        super().__init__(f"{address}: no answer to request {code} within {seconds:g} s")
        self.address = address
        self.seconds = seconds
        self.code = code


class ReplyTimeout(MQError):
    """The request message was stored in `topic`, but no reply arrived within `seconds`."""

    def __init__(self, topic: str, seconds: float) -> None:
        super().__init__(
            f"the request was sent to topic {topic}, but no consumer replied within {seconds:g} s"
        )
        self.topic = topic
        self.seconds = seconds


class BadAnswer(MQError):
    """`address` sent something that is not an answer to the request."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: unreadable answer: {reason}")
        self.address = address
        self.reason = reason


class RouteNotFound(MQError):
    """No name server has a route of `topic`, or the route does not permit the operation."""

    def __init__(self, topic: str, reason: str = "no name server knows it") -> None:
        super().__init__(f"topic {topic}: {reason}")
        self.topic = topic


class ClientError(MQError):
    """A mistake of the caller: a closed client, an oversized message, an invalid address."""


class BrokerError(MQError):
    """A broker or name server answered with an error code.

    `code` is the response code (possibly one that this release does not know), `remark` is the
    peer's text, and `address` is the peer.
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
        """The name of the code, or its number if it has no name."""
        try:
            return ResponseCode(self.code).name
        except ValueError:
            return f"code {self.code}"


class RemoteSystemError(BrokerError):
    """The peer failed internally, or refused for a reason that has no code of its own."""

    code = ResponseCode.SYSTEM_ERROR
    retriable = True


class NoneThere(RemoteSystemError):
    """The queried object does not exist, which Java reports with the code of a system error.

    The remark distinguishes it from a failure: a broker that fails, or that refuses access (4.9
    does so with an exception), answers with the same code and makes no statement about the object.
    """

    retriable = False


class SystemBusy(BrokerError):
    """The peer is overloaded and did not accept the request."""

    code = ResponseCode.SYSTEM_BUSY
    retriable = True


class RequestNotSupported(BrokerError):
    """The peer does not know this kind of request."""

    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class MessageIllegal(BrokerError):
    """The message violates a limit: its size, its properties or its topic's name."""

    code = ResponseCode.MESSAGE_ILLEGAL

    @property
    def names_limit(self) -> bool:
        """Whether the remark names the broker's maxMessageSize: the body may exceed it."""
        return "maxMessageSize" in str(self) or "body length limit" in str(self)  # ours, Java's


class ServiceNotAvailable(BrokerError):
    """The broker cannot store messages now: it is stopping, it is a slave, or its disk is full."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE
    retriable = True


class NoPermission(BrokerError):
    """The broker, topic or account does not permit the operation. Another broker may."""

    code = ResponseCode.NO_PERMISSION
    retriable = True


class SettingRefused(NoPermission):
    """The peer does not permit a request to change this setting."""

    retriable = False


class TopicNotExist(BrokerError):
    """The broker does not have the topic and may not create it. Another broker may have it."""

    code = ResponseCode.TOPIC_NOT_EXIST
    retriable = True


class NoBuyerId(BrokerError):
    """A hosted broker requires the account of the sender."""

    code = ResponseCode.NO_BUYER_ID
    retriable = True


class NotInCurrentUnit(BrokerError):
    """The topic belongs to another unit of a multi-site installation."""

    code = ResponseCode.NOT_IN_CURRENT_UNIT
    retriable = True


class QueryNotFound(BrokerError):
    """There is no such message, offset or entry."""

    code = ResponseCode.QUERY_NOT_FOUND


class PullNotFound(BrokerError):
    """There is no message at the requested offset."""

    code = ResponseCode.PULL_NOT_FOUND


class SubscriptionParseFailed(BrokerError):
    """The subscription's expression cannot be parsed."""

    code = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class SubscriptionNotExist(BrokerError):
    """The broker has received no heartbeat in which this group subscribes to the topic."""

    code = ResponseCode.SUBSCRIPTION_NOT_EXIST
    retriable = True


class SubscriptionNotLatest(BrokerError):
    """The broker knows an older subscription than the one of the pull."""

    code = ResponseCode.SUBSCRIPTION_NOT_LATEST
    retriable = True


class SubscriptionGroupNotExist(BrokerError):
    """The broker does not have the consumer group and may not create it."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


class ConsumerNotOnline(BrokerError):
    """No consumer of the group is connected to the broker."""

    code = ResponseCode.CONSUMER_NOT_ONLINE


class FlowControl(BrokerError):
    """The broker throttles this client and did not accept the request."""

    code = ResponseCode.FLOW_CONTROL
    retriable = True


def reason_of(error: OSError) -> str:
    """Return the system's text for an error; asyncio puts its own text into `strerror`."""
    # The numbers of these errors are not errnos: 1 of an SSLError is not "Operation not permitted".
    own_numbers = isinstance(error, socket.gaierror) or type(error).__module__ == "ssl"
    if own_numbers or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


_BY_CODE = {int(error.code): error for error in BrokerError.__subclasses__()}

# Prefix and suffix of the remarks of brokers that do not have the queried object.
_NONE_THERE = (
    ("no consumer for this group, ", ""),  # ConsumerManageProcessor.getConsumerListByGroup
    ("the producer group[", "] not exist"),  # AdminBrokerProcessor.getProducerConnectionList
    ("The stats <", "> not exist"),  # AdminBrokerProcessor.viewBrokerStatsData
    ("can not find message by the offset, ", ""),  # QueryMessageProcessor.viewMessageById
    ("The checkpoint is null", ""),  # AdminBrokerProcessor.getTimerCheckPoint
)


def for_code(code: int, remark: str | None, address: str) -> BrokerError:
    """Return the error for a response code, of the matching subclass.

    A system error whose remark says that the object does not exist becomes NoneThere.
    """
    if code == ResponseCode.SYSTEM_ERROR and remark:
        for begin, end in _NONE_THERE:
            if remark.startswith(begin) and remark.endswith(end):
                return NoneThere(remark, address, code)
    return _BY_CODE.get(code, BrokerError)(remark, address, code)
