"""The intervals of a client's periodic work."""

from dataclasses import dataclass

from mq.client.errors import ClientError


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
