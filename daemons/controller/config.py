"""Configuration of a controller: ControllerConfig of 5.x, the listener, and etcd."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from mq.daemons.acl.writers_config import GuardedSettings
from mq.daemons.config import ConfigError, Section, setting
from mq.daemons.operation_config import OperationConfig
from mq.daemons.remoting_config import NettyServerConfig

DEFAULT_PORT = 9878


@dataclass(frozen=True)
class ControllerConfig(Section):
    """The controller itself."""

    rocketmq_home: str | None = setting(
        factory=lambda: os.environ.get("ROCKETMQ_HOME"),
        shown="$ROCKETMQ_HOME",
        doc="folder of the installation, which contains the ACL files",
    )
    config_store_path: str = setting(
        factory=lambda: str(Path.home() / "controller" / "controller.properties"),
        shown="~/controller/controller.properties",
        doc="file in which changed settings are saved; the one given with -c",
        path=True,
    )
    controller_d_leger_group: str = setting(
        "mq",
        "the group of controllers: those of one group and one etcd manage the same brokers",
        name="controllerDLegerGroup",
        important=True,
    )
    controller_address: str = setting(
        "",
        "host:port at which brokers and other controllers reach this one; empty: its listen "
        "address, which is useless to others if it listens on all addresses",
        important=True,
    )
    scan_not_active_broker_interval: int = setting(
        1000, "pause between checks for silent brokers", unit="ms", long=True
    )
    scan_inactive_master_interval: int = setting(
        5000, "pause between checks for replica sets whose master is dead", unit="ms", long=True
    )
    enable_elect_unclean_master: bool = setting(
        False,
        "if no broker in sync is alive, elect another: messages that it does not have are lost",
        updatable=True,
    )
    notify_broker_role_changed: bool = setting(
        True, "notify brokers at once of a new master", updatable=True
    )
    config_black_list: str = setting(
        "configBlackList;configStorePath",
        "settings, separated by ;, that may not be changed while the controller runs",
    )

    def check(self) -> None:
        """Refuse invalid values.

        Raises:
            ConfigError: names the setting.
        """
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", self.controller_d_leger_group):
            raise ConfigError(
                f"controllerDLegerGroup={self.controller_d_leger_group}: expected letters, digits, "
                f'"_", "." and "-"'
            )
        if self.controller_address and not re.fullmatch(r"\S+:[0-9]{1,5}", self.controller_address):
            raise ConfigError(
                f'controllerAddress={self.controller_address}: write host:port, such as "10.0.0.5:'
                f'{DEFAULT_PORT}"'
            )
        for name, value in (
            ("scanNotActiveBrokerInterval", self.scan_not_active_broker_interval),
            ("scanInactiveMasterInterval", self.scan_inactive_master_interval),
        ):
            if value < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")


@dataclass(frozen=True)
class EtcdConfig(Section):
    """etcd, which stores the controllers' state and elects their leader. No Java names."""

    etcd_endpoints: str = setting(
        "http://127.0.0.1:2379",
        "URLs of etcd, separated by ;, each with http:// or https://",
        important=True,
    )
    etcd_prefix: str = setting("/mq/controller", "prefix of the keys", important=True)
    etcd_ca_file: str = setting("", "certificates that sign etcd's; empty: those of the system")
    etcd_cert_file: str = setting("", "certificate of this controller, if etcd requires one")
    etcd_key_file: str = setting("", "its key")
    etcd_user: str = setting("", "user name, if etcd requires one")
    etcd_password_file: str = setting("", "file whose first line is the password")
    leader_lease_seconds: int = setting(
        3,
        "time after the death of the leader until another controller leads, or a little later",
        unit="s",
    )

    @property
    def endpoints(self) -> list[str]:
        return [part.strip().rstrip("/") for part in self.etcd_endpoints.split(";") if part.strip()]

    def check(self) -> None:
        """Refuse invalid values.

        Raises:
            ConfigError: names the setting.
        """
        if not self.endpoints:
            raise ConfigError('etcdEndpoints is empty: write a URL, such as "http://10.0.0.5:2379"')
        for endpoint in self.endpoints:
            if not re.fullmatch(r"https?://[^\s/]+", endpoint):
                raise ConfigError(
                    f"etcdEndpoints={self.etcd_endpoints}: {endpoint} is not a URL like "
                    f"http://10.0.0.5:2379"
                )
        if not re.fullmatch(r"/[!-~]{0,200}", self.etcd_prefix) or self.etcd_prefix.endswith("/"):
            raise ConfigError(f"etcdPrefix={self.etcd_prefix}: expected a path like /mq/controller")
        if not 2 <= self.leader_lease_seconds <= 60:
            raise ConfigError(f"leaderLeaseSeconds={self.leader_lease_seconds}: expected 2 to 60")


class ControllerSettings(GuardedSettings):
    """The configuration of one controller."""

    section_names = ("controller", "etcd", "server", "tls", "writers", "operation")
    own = "controller"
    daemon = "controller"
    risk = "name the masters of all brokers"

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.controller = ControllerConfig()
        self.etcd = EtcdConfig()
        self.server = NettyServerConfig(listen_port=DEFAULT_PORT)
        self.operation = OperationConfig()
