"""Fields that 5.x added to whole families of requests, for requests that brokers forward."""

from mq.protocol.codes import SINCE_5
from mq.protocol.headers.schema import Header, field


class RpcRequestHeader(Header):
    """A request that a broker may forward to another one. 4.9.8 knows only the broker's name."""

    namespace: str | None = field(default=None, wire="ns", release=SINCE_5)
    namespaced: bool | None = field(default=None, wire="nsd", release=SINCE_5)
    broker: str | None = field(default=None, wire="bname")
    one_way: bool | None = field(default=None, wire="oway", release=SINCE_5)


class TopicRequestHeader(RpcRequestHeader):
    """A request about a topic; `logical` if it is about a static one."""

    logical: bool | None = field(default=None, wire="lo", release=SINCE_5)


class TopicQueueRequestHeader(TopicRequestHeader):
    """A request about one queue of a topic."""
