"""Options of every client, declared once: sessions, producers and consumers alike.

A client takes a `ClientOptions`, or an open session which has one, or its fields as keywords, which
go before those of the object.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from mq.client.errors import ClientError
from mq.client.hooks import Hook, check_hooks
from mq.client.intervals import DEFAULT_INTERVALS, Intervals
from mq.protocol import command

if TYPE_CHECKING:
    import ssl

    from mq.client.credentials import AccessKey

# RemotingCommand.SERIALIZE_TYPE_ENV; Java's property rocketmq.serialize.type is an option here.
SERIALIZATION_VARIABLE = "ROCKETMQ_SERIALIZE_TYPE"

_T = TypeVar("_T")


class Serialization(IntEnum):
    """How the headers of requests are written (SerializeType); peers answer in the same form."""

    JSON = command.JSON
    ROCKETMQ = command.ROCKETMQ  # binary: shorter


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Options of every client.

    Attributes:
        timeout: seconds for one request, connecting included, unless a call says otherwise.
        connect_timeout: seconds for connecting.
        instance: this client's part of the client id; by default it is unique.
        unit_name: the unit of a cluster that spans several; messages say then that they are of a
            unit.
        namespace: of topics and groups: queues have their full names, messages the short ones.
        credentials: every request is signed with them.
        tls: every connection is encrypted with it.
        intervals: how often routes are refreshed, heartbeats sent and offsets committed.
        serialization: of the headers of requests; None is what ROCKETMQ_SERIALIZE_TYPE says, else
            JSON. What the binary form cannot carry (codes over 32767) goes as JSON.
        hooks: code of the user's around sends, consumption and requests: see `hooks`.
        snode: brokers are reached through snodes, which name servers tell of.

    Raises ClientError for what is no hook.
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
    """The same as keywords; tests/client/test_options.py holds them to the fields."""

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
    """What the options say, or else the environment. Raises ClientError for another word there."""
    if options.serialization is not None:
        return options.serialization
    name = os.environ.get(SERIALIZATION_VARIABLE, "").strip() or "JSON"
    try:
        return Serialization[name]
    except KeyError:
        names = " or ".join(Serialization.__members__)
        raise ClientError(f"{SERIALIZATION_VARIABLE} is {name!r}: it must be {names}") from None


def take(options: _T, keywords: dict[str, Any]) -> _T:
    """`options` changed by those keywords that are fields of it, which leave `keywords`."""
    names = keywords.keys() & {field.name for field in fields(options)}  # type: ignore[arg-type]
    if not names:
        return options
    return replace(options, **{name: keywords.pop(name) for name in names})  # type: ignore[type-var]


def refuse(who: object, keywords: dict[str, Any]) -> None:
    """Raises TypeError for a keyword that nobody has taken, as Python itself does."""
    for name in keywords:
        kind = type(who).__name__
        raise TypeError(f"{kind}.__init__() got an unexpected keyword argument {name!r}")
