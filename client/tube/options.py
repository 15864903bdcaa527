"""Options of TubeMQ clients, in seconds; docs/tubemq-client.md lists the original's names.

If the C++ and the Java client differ, the default is the C++ client's unless noted otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING, TypedDict

from mq.client.errors import ClientError
from mq.client.tube.credentials import TubeCredentials
from mq.protocol.tube.errors import IllegalName, MalformedText
from mq.protocol.tube.names import check_session_key
from mq.protocol.tube.strings import PartitionKey

if TYPE_CHECKING:
    import ssl

# The bounds of the original (tubemq_config.cc, TubeClientConfig.java).
TIMEOUT_BOUNDS = (8.0, 300.0)
READY_WAIT_FOR_EVER = inf


def _within(name: str, value: float, least: float, most: float = inf) -> None:
    if not least <= value <= most:
        bounds = f"at least {least:g}" if most == inf else f"between {least:g} and {most:g}"
        raise ClientError(f"{name} must be {bounds}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class TubeClientOptions:
    """Options of every TubeMQ client.

    Attributes:
        timeout: seconds for one request, 8 to 300 (rpc_read_timeout). Java's default is 10, its
            minimum 3.
        connect_timeout: seconds for a connection. The C++ client changed from 20 to Java's 3.
        heartbeat_interval: seconds between two heartbeats to the master, and to each broker
            (heartbeat_period). Java has 13; 10 gives three within the 30 that a master waits.
        heartbeat_failures: after this many consecutive failures of heartbeats ...
        heartbeat_interval_after_failures: ... they are sent at this interval.
        credentials: user and password, for masters and brokers that require them.
        tls: encrypts every connection; masters and brokers have separate ports for TLS.
    """

    timeout: float = 15.0
    connect_timeout: float = 3.0
    heartbeat_interval: float = 10.0
    heartbeat_failures: int = 5
    heartbeat_interval_after_failures: float = 60.0
    credentials: TubeCredentials | None = None
    tls: "ssl.SSLContext | None" = None

    def __post_init__(self) -> None:
        _within("timeout", self.timeout, *TIMEOUT_BOUNDS)
        _within("connect_timeout", self.connect_timeout, 0.001)
        _within("heartbeat_interval", self.heartbeat_interval, 0.001)
        _within("heartbeat_failures", self.heartbeat_failures, 1)
        _within("heartbeat_interval_after_failures", self.heartbeat_interval_after_failures, 0.001)


class ConsumeFrom(IntEnum):
    """The starting position of a group without an offset in a partition (ConsumePosition)."""

    FIRST = -1
    LATEST = 0
    LATEST_ALWAYS = 1  # even if it has an offset


@dataclass(frozen=True, kw_only=True)
class SessionBinding:
    """Consumption bound to a session: nothing is assigned until all its members are there.

    Attributes:
        session_key: of the session: members with another key are refused.
        source_count: the number of its members.
        offsets: starting offsets by partition key, "broker:topic:partition".
        select_big: if members give different offsets for a partition, the largest one is used.

    Raises ClientError for an invalid session key or partition key, an offset below 0, and fewer
    than one member.
    """

    session_key: str
    source_count: int
    offsets: Mapping[str, int] = field(default_factory=dict)
    select_big: bool = True

    def __post_init__(self) -> None:
        _within("source_count", self.source_count, 1)
        try:
            check_session_key(self.session_key)
            for key, offset in self.offsets.items():
                PartitionKey.parse(key)
                _within(f"the offset of {key}", offset, 0)
        except (IllegalName, MalformedText) as error:
            raise ClientError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class TubeConsumerOptions(TubeClientOptions):
    """Options of a `TubeConsumer`.

    Attributes:
        consume_from: where to start in partitions without an offset of the group.
        bound: binds consumption to a session, with optional starting offsets.
        ready_wait: seconds that `get_message` waits for a partition that is ready; 0 checks once,
            `inf` waits without limit (max_part_check_period). The C++ client polls every
            part_check_slice; this client needs no polling.
        not_found_wait: seconds that a partition without messages pauses.
        rollback_unconfirmed: redeliver messages that are unconfirmed when their partition is
            revoked; otherwise they count as consumed.
        rebalance_wait: seconds that a revoked partition waits for the confirmation of its messages.
            As in Java; the C++ client has the setting but does not wait.
        confirm_wait: seconds after which unconfirmed messages are redelivered; `inf` for never. As
            in Java: the C++ client checks only when the master has been silent for 30 s, and an
            unconfirmed partition is blocked until then.
        close_wait: seconds that `close` waits for work in progress, and again for its peers.
        report_interval: the number of heartbeats between two reports of the owned partitions.
        confirm_locally: `confirm` sends no request: the next get reports that the messages before
            it were consumed (Java's pullConfirmInLocal).
        prefetch: the number of replies fetched in advance, from other partitions, while messages
            are processed.
    """

    consume_from: ConsumeFrom = ConsumeFrom.LATEST
    bound: SessionBinding | None = None
    ready_wait: float = 60.0
    not_found_wait: float = 0.4
    rollback_unconfirmed: bool = True
    rebalance_wait: float = 3.0
    confirm_wait: float = 60.0
    close_wait: float = 10.0
    report_interval: int = 6
    confirm_locally: bool = False
    prefetch: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("ready_wait", "not_found_wait", "rebalance_wait", "close_wait", "prefetch"):
            _within(name, getattr(self, name), 0)
        _within("confirm_wait", self.confirm_wait, 0.001)
        _within("report_interval", self.report_interval, 1)


class TubeClientKeywords(TypedDict, total=False):
    """The fields of `TubeClientOptions` as keywords."""

    timeout: float
    connect_timeout: float
    heartbeat_interval: float
    heartbeat_failures: int
    heartbeat_interval_after_failures: float
    credentials: TubeCredentials | None
    tls: "ssl.SSLContext | None"


class TubeConsumerKeywords(TubeClientKeywords, total=False):
    """The fields of `TubeConsumerOptions` as keywords."""

    consume_from: ConsumeFrom
    bound: SessionBinding | None
    ready_wait: float
    not_found_wait: float
    rollback_unconfirmed: bool
    rebalance_wait: float
    confirm_wait: float
    close_wait: float
    report_interval: int
    confirm_locally: bool
    prefetch: int
