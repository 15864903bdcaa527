"""Operational settings of a daemon: metrics, liveness, limits. None of them has a Java name."""

import re
from dataclasses import dataclass

from mq.daemons.config import ConfigError, Section, setting

OFF = -1  # a port that is not opened
MEBIBYTE = 1024 * 1024
LEAST_MEMORY = 17 * MEBIBYTE  # one frame, and a little more
# Limit in us. Waking up takes much less; a value in a wrong unit would keep a processor busy.
MOST_BUSY_POLL = 10_000


@dataclass(frozen=True)
class MetricsConfig(Section):
    """The exporters of a daemon's metrics."""

    metrics_port: int = setting(
        OFF, "port from which Prometheus reads metrics; 0: any free port, -1: none"
    )
    metrics_host: str = setting("127.0.0.1", "address on which this port is opened")
    statsd_address: str = setting(
        "", "host:port of a StatsD server that gets the same metrics by UDP; empty: none"
    )
    statsd_interval_millis: int = setting(1000, "pause between two such reports", unit="ms")

    def check(self) -> None:
        """Refuse invalid values.

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
    """Common settings of daemons that speak the protocol."""

    slow_request_millis: int = setting(
        1000,
        "a request other than sends and pulls that takes this long is logged and counted; 0: none",
        unit="ms",
    )
    max_connections: int = setting(
        0,
        "limit of connections to one port; 0: as many as the system's limit of open files allows",
        updatable=True,
    )
    client_memory_max_bytes: int = setting(
        192 * MEBIBYTE,
        "limit of memory that all clients together may make this process hold: incomplete "
        "requests, unread replies, long polls; above it those that have held the most for the "
        "longest time are closed; 0: no limit",
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
        True, "brokers send name servers UDP beacons, and name servers monitor them"
    )

    def check(self) -> None:
        """Refuse invalid values.

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
    """Additional settings of a name server."""

    liveness_beacon_timeout_millis: int = setting(
        3000, "a broker without beacons for this long is removed from the routes", unit="ms"
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
    """Additional settings of a snode."""

    heartbeat_max_groups: int = setting(1000, "limit of groups in one heartbeat; 0: no limit")
    max_auto_created_groups: int = setting(
        20_000, "limit of groups, above which none is created for a client; 0: no limit"
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
    """Additional settings of a broker."""

    instances: int = setting(
        1, "number of brokers that run with this file, each in its own process"
    )
    liveness_beacon_interval_millis: int = setting(1000, "pause between two beacons", unit="ms")
    busy_poll_micros: int = setting(
        100,
        "after a request the broker polls for the next one for so long before it sleeps, as long "
        "as seven of eight arrive by then, on more than one processor; at most "
        f"{MOST_BUSY_POLL}, 0: never",
        unit="us",
        updatable=True,
    )
    client_send_rate: int = setting(
        0,
        "limit of messages per second from one client address; 0: no limit",
        unit="messages/s",
        updatable=True,
    )
    topic_max_bytes: str = setting(
        "",
        "limit of stored bytes of a topic: a number for every topic, or topic:number;topic:number "
        "with * for all others; empty: no limit",
        updatable=True,
    )
    heartbeat_max_groups: int = setting(
        1000, "limit of groups in one heartbeat; 0: no limit", updatable=True
    )
    max_auto_created_groups: int = setting(
        20_000,
        "limit of subscription groups, above which none is created for a client; 0: no limit",
        updatable=True,
    )
    max_auto_created_topics: int = setting(
        50_000,
        "limit of topics, above which none is created for a send; 0: no limit",
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
        """topicMaxBytes as bytes by topic; "*" means all other topics.

        Raises:
            ConfigError: explains the format.
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
