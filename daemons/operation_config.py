"""Settings of how a daemon is run: metrics, signs of life, limits. None of them has a Java name."""

import re
from dataclasses import dataclass

from mq.daemons.config import ConfigError, Section, setting

OFF = -1  # a port that is not opened
MEBIBYTE = 1024 * 1024
LEAST_MEMORY = 17 * MEBIBYTE  # one frame, and a little
# In us. Who is woken waits for much less; a number in another unit would keep a processor busy.
MOST_BUSY_POLL = 10_000


@dataclass(frozen=True)
class MetricsConfig(Section):
    """Where the metrics of a daemon go."""

    metrics_port: int = setting(
        OFF, "port that Prometheus reads metrics from; 0: any free port, -1: none"
    )
    metrics_host: str = setting("127.0.0.1", "address that this port is opened on")
    statsd_address: str = setting(
        "", "host:port that gets the same metrics by UDP, as StatsD takes them; empty: none"
    )
    statsd_interval_millis: int = setting(1000, "pause between two such reports", unit="ms")

    def check(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ConfigError: names the setting.
        """
        if not OFF <= self.metrics_port <= 65535:
            raise ConfigError(f"metricsPort={self.metrics_port}: expected -1 to 65535")
        if self.statsd_address and not re.fullmatch(r"[^\s]+:[0-9]{1,5}", self.statsd_address):
            raise ConfigError(
                f'statsdAddress={self.statsd_address}: write host:port, such as "127.0.0.1:8125"'
            )
        if self.statsd_interval_millis < 10:
            raise ConfigError(
                f"statsdIntervalMillis={self.statsd_interval_millis}: must be at least 10"
            )


@dataclass(frozen=True)
class OperationConfig(MetricsConfig):
    """What daemons have that speak the protocol."""

    slow_request_millis: int = setting(
        1000,
        "a request that takes this long, sends and pulls aside, is logged and counted; 0: none",
        unit="ms",
    )
    max_connections: int = setting(
        0,
        "connections to one port at most; 0: as many as the system's limit of open files allows",
        updatable=True,
    )
    client_memory_max_bytes: int = setting(
        192 * MEBIBYTE,
        "memory that all clients together may make this process hold: requests that are not whole, "
        "replies that nobody reads, long polls; above it those that hold most for longest are "
        "closed; 0: no limit",
        unit="bytes",
        updatable=True,
    )
    connection_memory_max_bytes: int = setting(
        64 * MEBIBYTE,
        "the same of one connection, which is closed above it; 0: no limit",
        unit="bytes",
        updatable=True,
    )
    liveness_beacon_enable: bool = setting(
        True, "brokers show name servers by UDP that they live, and name servers look for it"
    )

    def check(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ConfigError: names the setting.
        """
        super().check()
        for name, value, least in (
            ("slowRequestMillis", self.slow_request_millis, 0),
            ("maxConnections", self.max_connections, 0),
        ):
            if value < least:
                raise ConfigError(f"{name}={value}: must be at least {least}")
        for name, value in (
            ("clientMemoryMaxBytes", self.client_memory_max_bytes),
            ("connectionMemoryMaxBytes", self.connection_memory_max_bytes),
        ):
            if value and value < LEAST_MEMORY:
                raise ConfigError(
                    f"{name}={value}: must be at least {LEAST_MEMORY}, or 0 for no limit"
                )


@dataclass(frozen=True)
class NameServerOperationConfig(OperationConfig):
    """What a name server has beside."""

    liveness_beacon_timeout_millis: int = setting(
        3000, "a broker whose beacons stay out for this long leaves the routes", unit="ms"
    )

    def check(self) -> None:
        super().check()
        if self.liveness_beacon_timeout_millis < 100:
            raise ConfigError(
                f"livenessBeaconTimeoutMillis={self.liveness_beacon_timeout_millis}: "
                "must be at least 100"
            )


@dataclass(frozen=True)
class SnodeOperationConfig(OperationConfig):
    """What a snode has beside."""

    heartbeat_max_groups: int = setting(1000, "groups that one heartbeat may name; 0: no limit")
    max_auto_created_groups: int = setting(
        20_000, "while there are so many groups, none is made for a client; 0: no limit"
    )

    def check(self) -> None:
        super().check()
        for name, value in (
            ("heartbeatMaxGroups", self.heartbeat_max_groups),
            ("maxAutoCreatedGroups", self.max_auto_created_groups),
        ):
            if value < 0:
                raise ConfigError(f"{name}={value}: must be at least 0")


@dataclass(frozen=True)
class BrokerOperationConfig(OperationConfig):
    """What a broker has beside."""

    instances: int = setting(
        1, "brokers that run side by side under this file, each in a process of its own"
    )
    liveness_beacon_interval_millis: int = setting(1000, "pause between two beacons", unit="ms")
    busy_poll_micros: int = setting(
        100,
        "behind a request the broker looks for the next one for so long before it sleeps, while "
        f"seven of eight come by then, on more than one processor; {MOST_BUSY_POLL} at most, "
        "0: never",
        unit="us",
        updatable=True,
    )
    client_send_rate: int = setting(
        0,
        "messages a second that are taken from one client address; 0: no limit",
        unit="messages/s",
        updatable=True,
    )
    topic_max_bytes: str = setting(
        "",
        "bytes that a topic may keep: a number for every topic, or topic:number;topic:number with "
        "* for all others; empty: no limit",
        updatable=True,
    )
    heartbeat_max_groups: int = setting(
        1000, "groups that one heartbeat may name; 0: no limit", updatable=True
    )
    max_auto_created_groups: int = setting(
        20_000,
        "while there are so many subscription groups, none is made for a client; 0: no limit",
        updatable=True,
    )
    max_auto_created_topics: int = setting(
        50_000,
        "while there are so many topics, none is made for a send; 0: no limit",
        updatable=True,
    )

    def check(self) -> None:
        super().check()
        for name, value, least in (
            ("instances", self.instances, 1),
            ("livenessBeaconIntervalMillis", self.liveness_beacon_interval_millis, 10),
            ("busyPollMicros", self.busy_poll_micros, 0),
            ("clientSendRate", self.client_send_rate, 0),
            ("heartbeatMaxGroups", self.heartbeat_max_groups, 0),
            ("maxAutoCreatedGroups", self.max_auto_created_groups, 0),
            ("maxAutoCreatedTopics", self.max_auto_created_topics, 0),
        ):
            if value < least:
                raise ConfigError(f"{name}={value}: must be at least {least}")
        if self.busy_poll_micros > MOST_BUSY_POLL:
            raise ConfigError(
                f"busyPollMicros={self.busy_poll_micros}: must be at most {MOST_BUSY_POLL} (us)"
            )
        self.topic_limits()

    def topic_limits(self) -> dict[str, int]:
        """topicMaxBytes as bytes by topic; "*" stands for every other one.

        Raises:
            ConfigError: says what the format is.
        """
        limits = {}
        for part in filter(None, self.topic_max_bytes.replace(" ", "").split(";")):
            topic, _, number = part.rpartition(":")
            if not (number.isascii() and number.isdigit()):
                raise ConfigError(
                    f"topicMaxBytes={self.topic_max_bytes}: {part} is neither a number nor "
                    'topic:number; write for example "Orders:1000000000;*:50000000"'
                )
            limits[topic or "*"] = int(number)
        return limits
