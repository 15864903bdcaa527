"""Options of TubeMQ's clients, in seconds; docs/tubemq-client.md has the original's names.

Where the C++ and the Java client differ the C++ one's default is taken, unless it is said why not.
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

# Least and most of what the original bounds (tubemq_config.cc, TubeClientConfig.java).
TIMEOUT_BOUNDS = (8.0, 300.0)
READY_WAIT_FOR_EVER = inf


def _within(name: str, value: float, least: float, most: float = inf) -> None:
    if not least <= value <= most:
        bounds = f"at least {least:g}" if most == inf else f"between {least:g} and {most:g}"
        raise ClientError(f"{name} must be {bounds}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class TubeClientOptions:
    """Options of every client of TubeMQ.

    Attributes:
        timeout: seconds for one request, 8 to 300 (rpc_read_timeout). Java has 10, and takes 3.
        connect_timeout: seconds for connecting. The C++ client began with 20 and came to Java's 3.
        heartbeat_interval: seconds between two heartbeats to the master, and to each broker
            (heartbeat_period). Java has 13; 10 are three within the 30 that a master waits.
        heartbeat_failures: after so many heartbeats in a row that have failed, the next come ...
        heartbeat_interval_after_failures: ... so many seconds apart.
        credentials: user and password, for masters and brokers that ask for them.
        tls: every connection is encrypted with it; masters and brokers have other ports for that.
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
    """Where a group begins in a partition in which it has no offset (ConsumePosition)."""

    FIRST = -1
    LATEST = 0
    LATEST_ALWAYS = 1  # and where it has one, too


@dataclass(frozen=True, kw_only=True)
class SessionBinding:
    """Consumption bound to a session: nothing is assigned until all its members are there.

    Attributes:
        session_key: of the session: members that have another are refused.
        source_count: how many members it has.
        offsets: where to begin, by partition key, "broker:topic:partition".
        select_big: of offsets for the same partition the larger one holds.

    Raises ClientError for a session key that no master takes, a key of no partition, an offset
    below 0, and fewer than one member.
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
        consume_from: where to begin in partitions in which the group has no offset.
        bound: consumption bound to a session, which may begin at offsets that are given.
        ready_wait: seconds that `get_message` waits for a partition that has its turn; 0 looks
            once, `inf` waits for ever (max_part_check_period). The C++ client looks each
            part_check_slice; here nothing has to be looked for again.
        not_found_wait: seconds that a partition without messages is left alone.
        rollback_unconfirmed: messages that were not confirmed when their partition leaves come
            again; else they count as consumed.
        rebalance_wait: seconds that a partition which is to leave is waited for, if its messages
            are not confirmed yet. Java does; the C++ client has the setting and does not wait.
        confirm_wait: messages that are not confirmed so many seconds after they were given come
            again. `inf` for never. As Java does: the C++ client looks only when the master has
            been silent for 30 s, and a partition that nobody confirms stands still until then.
        close_wait: seconds that `close` waits for what is under way, and as long for its peers.
        report_interval: every so many heartbeats the master is told which partitions are held.
        confirm_locally: `confirm` asks nobody: the next get says that the messages before it were
            consumed (Java's pullConfirmInLocal).
        prefetch: how many replies are fetched ahead, of other partitions, while messages are worked
            on.
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
