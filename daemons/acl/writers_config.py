"""Settings of who may change something at a name server or a controller, and where it listens."""

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
    """Who may change something. None of them has a Java name."""

    acl_enable: bool = setting(
        False, "take requests that change something from administrators only, by their signature"
    )
    acl_plain_file: str = setting(
        "conf/plain_acl.yml",
        "file of accounts, relative to rocketmqHome; conf/acl/*.yml are read, too",
        name="rocketmq.acl.plain.file",
    )
    write_allow_list: str = setting(
        "",
        "addresses and networks, separated by ;, that may change something without a signature; "
        "empty: with aclEnable=false everyone may, as with Java. SIGHUP reads it again",
    )

    @property
    def asks_who_writes(self) -> bool:
        """Whether there is access control. Raises ConfigError."""
        return self.acl_enable or bool(parse_networks(self.write_allow_list))

    def check(self) -> None:
        """Refuse values that cannot work. Raises ConfigError."""
        parse_networks(self.write_allow_list)


class GuardedSettings(Settings):
    """The settings of a daemon that has these, and one listener. ``own`` is the section that says
    where changed settings are saved; ``daemon`` is the daemon's name for people, ``risk`` what a
    stranger may do where nobody is asked."""

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
        """Defaults, then the file, then `overrides` by property name; then the checks.

        Raises:
            ConfigError: the file or a value cannot be used.
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
        """Where to listen: loopback unless bindAddress says otherwise or somebody checks who asks.

        One that others reach, and that asks nobody, says so in the log.
        """
        guarded = self.writers.asks_who_writes
        host = self.server.bind_address or (EVERYWHERE if guarded else LOOPBACK)
        if host == LOOPBACK and not self.server.bind_address:
            log.warning(
                "listening on %s only: set bindAddress=0.0.0.0 to serve other hosts", LOOPBACK
            )
        elif not guarded and not is_loopback(host):
            log.warning(
                "ACCESS CONTROL IS OFF and the %s listens on %s: whoever reaches it may %s "
                "(aclEnable=false, writeAllowList empty)",
                self.daemon,
                host,
                self.risk,
            )
        return host

    def read_allow_list_again(self) -> None:
        """Take writeAllowList from the file as it is now, unless the command line has set it.

        Raises:
            ConfigError: it cannot be used; the former list stays.
        """
        was = self.writers.write_allow_list
        if self.path is None or ALLOW_LIST in self.overrides:
            return
        text = read_file(self.path).get(ALLOW_LIST, "")
        if not parse_networks(text) and parse_networks(was) and not self.writers.acl_enable:
            raise ConfigError(f"{ALLOW_LIST} is empty now: restart to let everyone write")
        if text != was:
            log.info("setting read again: %s=%s", ALLOW_LIST, text)
            self.writers = self.writers.replace(write_allow_list=text)
