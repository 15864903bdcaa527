"""Settings of access control and the listen address of a name server or a controller."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mq.daemons.acl.networks import is_loopback, parse_networks
from mq.daemons.config import ConfigError, Section, Settings, read_file, setting
from mq.daemons.operation_config import OperationConfig
from mq.daemons.remoting_config import NettyServerConfig
from mq.daemons.tls_config import TlsConfig

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
ALLOW_LIST = "writeAllowList"


@dataclass(frozen=True)
class WritersConfig(Section):
    """Access control of changes. Only those of ACL files have Java names."""

    acl_enable: bool = setting(
        False, "accept changes only from administrators, identified by their signature"
    )
    acl_plain_file: str = setting(
        "conf/plain_acl.yml",
        "file of accounts, relative to rocketmqHome; conf/acl/*.yml are read, too",
        name="rocketmq.acl.plain.file",
    )
    write_allow_list: str = setting(
        "",
        "addresses and networks, separated by ;, that may make changes without a signature; "
        "empty: with aclEnable=false all may, as with Java. SIGHUP reloads it",
    )

    @property
    def asks_who_writes(self) -> bool:
        """Whether there is access control. Raises ConfigError."""
        return self.acl_enable or bool(parse_networks(self.write_allow_list))

    def check(self) -> None:
        """Refuse invalid values. Raises ConfigError."""
        parse_networks(self.write_allow_list)


class GuardedSettings(Settings):
    """The settings of a daemon with one listener and access control of changes.

    ``own`` is the section with the path of the file in which changed settings are saved. ``daemon``
    is the daemon's name in texts; ``risk`` describes what any client can do without access control.
    """

    own = ""
    daemon = ""
    risk = ""

    server: NettyServerConfig
    tls: TlsConfig
    operation: OperationConfig

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.tls = TlsConfig()
        self.writers = WritersConfig()
        self.overrides: Mapping[str, str] = {}

    @classmethod
    def load(cls, path: Path | None = None, overrides: Mapping[str, str] | None = None) -> Self:
        """Read defaults, then the file, then `overrides` by property name; then check.

        Raises:
            ConfigError: the file or a value is invalid.
        """
        settings = cls(path)
        if path is not None:
            settings.apply(read_file(path))
            section: Section = getattr(settings, cls.own)
            setattr(settings, cls.own, section.replace(config_store_path=str(path)))
        settings.overrides = dict(overrides or {})
        settings.finish(settings.overrides)
        return settings

    def listen_host(self) -> str:
        """The listen address: loopback unless bindAddress is set or access control is on.

        Logs a warning if other hosts reach it and there is no access control.
        """
        guarded = self.writers.asks_who_writes
        host = self.server.bind_address or (EVERYWHERE if guarded else LOOPBACK)
        if host == LOOPBACK and not self.server.bind_address:
            log.warning(
                "listening on %s only: set bindAddress=0.0.0.0 to serve other hosts", LOOPBACK
            )
        elif not guarded and not is_loopback(host):
            log.warning(
                "ACCESS CONTROL IS OFF and the %s listens on %s: any client that reaches it may %s "
                "(aclEnable=false, writeAllowList empty)",
                self.daemon,
                host,
                self.risk,
            )
        return host

    def read_allow_list_again(self) -> None:
        """Read writeAllowList from the file again, unless the command line has set it.

        Raises:
            ConfigError: it is invalid; the former list stays in force.
        """
        was = self.writers.write_allow_list
        if self.path is None or ALLOW_LIST in self.overrides:
            return
        text = read_file(self.path).get(ALLOW_LIST, "")
        if not parse_networks(text) and parse_networks(was) and not self.writers.acl_enable:
            raise ConfigError(f"{ALLOW_LIST} is empty now; restart to let all clients write")
        if text != was:
            log.info("setting reloaded: %s=%s", ALLOW_LIST, text)
            self.writers = self.writers.replace(write_allow_list=text)
