"""Options of TubeMQ producers, in seconds and bytes."""

from dataclasses import dataclass

from mq.client.errors import ClientError
from mq.client.tube.options import TubeClientKeywords, TubeClientOptions


@dataclass(frozen=True, kw_only=True)
class TubeProducerOptions(TubeClientOptions):
    """Options of a `TubeProducer`. Defaults are Java's unless noted otherwise.

    Attributes:
        retries: how often `send` tries another partition after a refusal, or after a broker that
            could not be reached. A message that may have been stored is never sent again. (Java's
            producer leaves this to the caller.)
        checksum: send each message with a checksum, which the broker verifies. (Java sends none.)
        failures_to_freeze: a partition is avoided for `frozen_seconds` after more consecutive
            failures than this.
        frozen_seconds: how long it is avoided.
        unavailable_seconds: how long a broker that reports itself as unavailable (503) is avoided,
            if another one is usable; otherwise `frozen_seconds`. (Java's waits in either case.)
        link_failures: after this many failed connections within `link_window` a broker is avoided
            for `link_forbidden_seconds`, if at most `link_forbidden_rate` of all brokers are.
        link_window: seconds.
        link_forbidden_seconds: the longest time of avoidance: an established connection ends it.
        link_forbidden_rate: of the brokers of a cluster, at least one.
        link_pending: sends without an answer per broker, after which it gets no more.
        pending: sends without an answer, after which more are refused.
        close_wait: seconds that `close` waits for sends in flight.
    """

    retries: int = 2
    checksum: bool = True
    failures_to_freeze: int = 3
    frozen_seconds: float = 3.0
    unavailable_seconds: float = 50.0
    link_failures: int = 5
    link_window: float = 60.0
    link_forbidden_seconds: float = 1800.0
    link_forbidden_rate: float = 0.3
    link_pending: int = 50_000
    pending: int = 500_000
    close_wait: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (
            *("retries", "failures_to_freeze", "frozen_seconds", "unavailable_seconds"),
            *("link_window", "link_forbidden_seconds", "link_forbidden_rate", "close_wait"),
        ):
            if not getattr(self, name) >= 0:
                raise ClientError(f"{name} must be at least 0, not {getattr(self, name)!r}")
        for name in ("link_failures", "link_pending", "pending"):
            if not getattr(self, name) >= 1:
                raise ClientError(f"{name} must be at least 1, not {getattr(self, name)!r}")


class TubeProducerKeywords(TubeClientKeywords, total=False):
    """The fields of `TubeProducerOptions` as keywords."""

    retries: int
    checksum: bool
    failures_to_freeze: int
    frozen_seconds: float
    unavailable_seconds: float
    link_failures: int
    link_window: float
    link_forbidden_seconds: float
    link_forbidden_rate: float
    link_pending: int
    pending: int
    close_wait: float
