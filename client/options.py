"""Options of every client: sessions, producers and consumers.

A client takes a `ClientOptions`, or an open session that has one, or the fields as keywords.
Keywords override the object.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from mq.client.errors import ClientError
from mq.client.hooks import Hook, check_hooks
from mq.protocol import command

if TYPE_CHECKING:
    import ssl

    from mq.client.credentials import AccessKey

# RemotingCommand.SERIALIZE_TYPE_ENV. Java's property rocketmq.serialize.type is an option here.
SERIALIZATION_VARIABLE = "ROCKETMQ_SERIALIZE_TYPE"

_T = TypeVar("_T")


@dataclass(frozen=True)
class Intervals:
    """Seconds between two refreshes of the routes, two heartbeats, and two commits of offsets.

    The defaults are Java's (ClientConfig): pollNameServerInterval, heartbeatBrokerInterval,
    persistConsumerOffsetInterval. A broker evicts a client after two minutes without a heartbeat.
    Raises ClientError for a value that is not above 0.
    """

    routes: float = 30.0
    heartbeats: float = 30.0
    offsets: float = 5.0

    def __post_init__(self) -> None:
        for name, seconds in vars(self).items():
            if not seconds > 0:
                raise ClientError(f"the interval of {name} must be above 0 s, not {seconds}")


DEFAULT_INTERVALS = Intervals()


class Serialization(IntEnum):
    """The format of request headers (SerializeType); peers answer in the same format."""

    JSON = command.JSON
    ROCKETMQ = command.ROCKETMQ  # binary: shorter


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Options of every client.

    Attributes:
        timeout: seconds for one request, including the connection, unless a call overrides it.
        connect_timeout: seconds for a connection.
        instance: this client's part of the client id; unique by default.
        unit_name: the unit, in a cluster of several units; messages are then marked as such.
        namespace: of topics and groups: queues have full names, messages the short ones.
        credentials: sign every request.
        tls: encrypts every connection.
        intervals: between refreshes of routes, heartbeats, and commits of offsets.
        serialization: of request headers; None means ROCKETMQ_SERIALIZE_TYPE, or JSON if that is
            not set. Requests that the binary format cannot carry (codes over 32767) use JSON.
        hooks: user code around sends, consumption and requests; see `hooks`.
        snode: reach brokers through snodes, which name servers list.

    Raises ClientError for a hook of an unknown kind.
    """

    timeout: float = 3.0
    connect_timeout: float = 3.0
    instance: str | None = None
    unit_name: str | None = None
    namespace: str | None = None
    credentials: "AccessKey | None" = None
    tls: "ssl.SSLContext | None" = None
    intervals: Intervals = DEFAULT_INTERVALS
    serialization: Serialization | None = None
    hooks: Sequence[Hook] = ()
    snode: bool = False

    def __post_init__(self) -> None:
        check_hooks(self.hooks)


class ClientKeywords(TypedDict, total=False):
    """The fields as keywords; tests/client/test_options.py checks that they match."""

    timeout: float
    connect_timeout: float
    instance: str | None
    unit_name: str | None
    namespace: str | None
    credentials: "AccessKey | None"
    tls: "ssl.SSLContext | None"
    intervals: Intervals
    serialization: Serialization | None
    hooks: Sequence[Hook]
    snode: bool


def chosen_serialization(options: ClientOptions) -> Serialization:
    """Return the configured serialization, or the environment's. Raises ClientError for an unknown
    name in the environment.
    """
    if options.serialization is not None:
        return options.serialization
    name = os.environ.get(SERIALIZATION_VARIABLE, "").strip() or "JSON"
    try:
        return Serialization[name]
    except KeyError:
        names = " or ".join(Serialization.__members__)
        raise ClientError(f"{SERIALIZATION_VARIABLE} is {name!r}: it must be {names}") from None


def take(options: _T, keywords: dict[str, Any]) -> _T:
    """Return `options` with the keywords that are its fields; removes them from `keywords`."""
    names = keywords.keys() & {field.name for field in fields(options)}  # type: ignore[arg-type]
    if not names:
        return options
    return replace(options, **{name: keywords.pop(name) for name in names})  # type: ignore[type-var]


def refuse(who: object, keywords: dict[str, Any]) -> None:
    """Raise TypeError for a remaining keyword, as Python itself does."""
    for name in keywords:
        kind = type(who).__name__
        raise TypeError(f"{kind}.__init__() got an unexpected keyword argument {name!r}")
