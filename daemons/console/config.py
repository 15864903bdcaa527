"""Settings of the console. None of them has a Java name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mq.daemons.acl.networks import is_loopback, parse_networks
from mq.daemons.config import ConfigError, Section, Settings, read_file, setting
from mq.daemons.console.collector.limits import Limits, networks
from mq.daemons.console.collector.paced import COLLECTOR_RATE
from mq.daemons.console.history.history import MOST_SERIES
from mq.daemons.operation_config import MetricsConfig
from mq.daemons.tls_config import TlsConfig

DEFAULT_PORT = 8082
LOOPBACK = "127.0.0.1"
_PREFIX = re.compile(r"(/[A-Za-z0-9._-]+)*")


@dataclass(frozen=True)
class CollectorConfig(Section):
    """How clusters are polled in the background, and what is kept."""

    history_file: str = setting("", "database of rates and lags; empty: history.sqlite in dataPath")
    history_series_max: int = setting(
        MOST_SERIES, "maximum number of series; each is one figure of a broker, topic or group"
    )
    broker_networks: str = setting(
        "",
        "networks, separated by commas, of the brokers to connect to: any client that may register "
        "at a name server chooses addresses; empty: any",
    )
    requests_per_second_max: int = setting(
        int(COLLECTOR_RATE), "maximum number of requests per second to one broker or name server"
    )
    checkup_minutes: int = setting(10, "interval between runs of mq doctor", unit="min")

    @property
    def limits(self) -> Limits:
        """The limits of data from peers."""
        return Limits(networks=networks(self.broker_networks))

    def check(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ConfigError: names the setting.
        """
        try:
            networks(self.broker_networks)
        except ValueError as error:
            raise ConfigError(f"brokerNetworks={self.broker_networks}: {error}") from None
        for name, value, least, most in (
            ("historySeriesMax", self.history_series_max, 0, 1_000_000),
            ("requestsPerSecondMax", self.requests_per_second_max, 1, 1000),
            ("checkupMinutes", self.checkup_minutes, 1, 10_080),
        ):
            if not least <= value <= most:
                raise ConfigError(f"{name}={value}: expected {least} to {most}")


@dataclass(frozen=True)
class ConsoleConfig(Section):
    """The console itself."""

    listen_port: int = setting(DEFAULT_PORT, "port for browsers", important=True)
    bind_address: str = setting(
        LOOPBACK,
        "address to listen on; addresses other than loopback need accounts, and TLS or tlsAtProxy",
        important=True,
    )
    namesrv_addr: str = setting("", "name servers of the cluster, separated by ;", important=True)
    contexts: str = setting(
        "", "contexts to show as clusters, separated by ;: see mq context", important=True
    )
    contexts_file: str = setting(
        "", "file with the contexts; empty: that of the user who starts the console"
    )
    access_key_file: str = setting(
        "", "YAML file with the access key for the cluster of namesrvAddr"
    )
    data_path: str = setting(
        factory=lambda: str(Path.home() / "console"),
        shown="~/console",
        doc="directory of accounts, audit and history",
        important=True,
        path=True,
    )
    users_file: str = setting("", "file of accounts; empty: users.json in dataPath", path=True)
    audit_file: str = setting("", "file of the audit; empty: audit.jsonl in dataPath", path=True)
    read_only: bool = setting(False, "allow no changes to any user", important=True)
    read_only_clusters: str = setting("", "clusters, separated by ;, without changes")
    exports_allowed: bool = setting(True, "whether tables and messages may be downloaded")
    path_prefix: str = setting("", "path under which a proxy serves the console, such as /mq")
    allowed_hosts: str = setting(
        "",
        "host names, separated by ;, in the addresses that browsers use, besides those of "
        "loopback and bindAddress",
    )
    trusted_proxies: str = setting(
        "",
        "addresses and networks, separated by ;, of proxies whose X-Forwarded-For and -Proto are "
        "trusted",
    )
    tls_at_proxy: bool = setting(
        False, "a proxy of trustedProxies terminates TLS, so the console needs none"
    )
    session_idle_minutes: int = setting(
        30, "a session ends after this time without use", unit="min"
    )
    session_hours: int = setting(12, "maximum duration of a session", unit="h")
    request_timeout_millis: int = setting(
        2000, "timeout of a broker or name server for a page", unit="ms"
    )
    page_timeout_millis: int = setting(
        8000, "timeout of a whole page; searches have their own limits", unit="ms"
    )

    @property
    def users_path(self) -> Path:
        return Path(self.users_file) if self.users_file else Path(self.data_path) / "users.json"

    @property
    def audit_path(self) -> Path:
        return Path(self.audit_file) if self.audit_file else Path(self.data_path) / "audit.jsonl"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.bind_address)

    def check(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ConfigError: names the setting.
        """
        if not 0 <= self.listen_port <= 65535:
            raise ConfigError(f"listenPort={self.listen_port}: expected 0 to 65535")
        if not self.bind_address:
            raise ConfigError("bindAddress is empty: set an address, such as 127.0.0.1")
        if not _PREFIX.fullmatch(self.path_prefix):
            raise ConfigError(f"pathPrefix={self.path_prefix}: expected a path like /mq")
        parse_networks(self.trusted_proxies)
        if self.tls_at_proxy and not self.trusted_proxies.strip():
            raise ConfigError("tlsAtProxy=true needs the addresses of proxies: trustedProxies")
        for name, value, least in (
            ("sessionIdleMinutes", self.session_idle_minutes, 1),
            ("sessionHours", self.session_hours, 1),
            ("requestTimeoutMillis", self.request_timeout_millis, 100),
            ("pageTimeoutMillis", self.page_timeout_millis, 100),
        ):
            if value < least:
                raise ConfigError(f"{name}={value}: must be at least {least}")


class ConsoleSettings(Settings):
    """The configuration of one console. Components with their own settings have a section."""

    section_names = ("console", "collector", "tls", "operation")

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.console = ConsoleConfig()
        self.collector = CollectorConfig()
        self.tls = TlsConfig()
        self.operation = MetricsConfig()

    @classmethod
    def load(cls, path: Path | None = None, overrides: Mapping[str, str] | None = None) -> Self:
        """Load the defaults, the file, and `overrides` by property name, and check them.

        Raises:
            ConfigError: the file or a value cannot be used.
        """
        settings = cls(path)
        if path is not None:
            settings.apply(read_file(path))
        settings.finish(overrides)
        return settings
