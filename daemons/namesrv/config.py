"""Configuration of a name server: NamesrvConfig of 4.9.8, some 5.x names, and the listener."""

import os
from dataclasses import dataclass
from pathlib import Path

from mq.daemons.acl.writers_config import GuardedSettings
from mq.daemons.config import ConfigError, Section, setting
from mq.daemons.operation_config import NameServerOperationConfig
from mq.daemons.remoting_config import NettyServerConfig

DEFAULT_PORT = 9876


@dataclass(frozen=True)
class NamesrvConfig(Section):
    """The name server itself."""

    rocketmq_home: str | None = setting(
        factory=lambda: os.environ.get("ROCKETMQ_HOME"),
        shown="$ROCKETMQ_HOME",
        doc="folder of the installation, which contains the ACL files",
    )
    kv_config_path: str = setting(
        factory=lambda: str(Path.home() / "namesrv" / "kvConfig.json"),
        shown="~/namesrv/kvConfig.json",
        doc="file of the key-value configuration",
        path=True,
    )
    config_store_path: str = setting(
        factory=lambda: str(Path.home() / "namesrv" / "namesrv.properties"),
        shown="~/namesrv/namesrv.properties",
        doc="file in which changed settings are saved; the one given with -c",
        path=True,
    )
    product_env_name: str = setting("center", "environment queried with clusterTest")
    cluster_test: bool = setting(False, "query another environment for missing routes")
    address_server_domain: str = setting(
        "jmenv.tbsite.net",
        "host[:port] of the address server from which clusterTest gets name servers (a system "
        "property of Java)",
        name="rocketmq.namesrv.domain",
    )
    address_server_sub_group: str = setting(
        "nsaddr",
        "path of that query, before -productEnvName (also a system property)",
        name="rocketmq.namesrv.domain.subgroup",
    )
    order_message_enable: bool = setting(
        False, "add the queues of ordered topics to their routes", updatable=True
    )
    return_order_topic_config_to_broker: bool = setting(
        True, "send a broker the ordered topics when it registers (a 5.x name)", updatable=True
    )
    delete_topic_with_broker_registration: bool = setting(
        False,
        "remove topics that a broker no longer has when it registers (a 5.x name)",
        updatable=True,
    )
    support_acting_master: bool = setting(
        False,
        "while a replica set has no master, show its slave with the lowest id as a readable one, "
        "if its brokers have enableSlaveActingMaster (a 5.x name)",
        updatable=True,
    )
    notify_min_broker_id_changed: bool = setting(
        False, "notify the brokers of a replica set at once of a new lowest id (a 5.x name)"
    )
    scan_not_active_broker_interval: int = setting(
        5000, "pause between checks for silent brokers (a 5.x name)", unit="ms", long=True
    )
    broker_expired_timeout: int = setting(
        120_000,
        "a broker without a registration or heartbeat for this long is evicted",
        unit="ms",
        updatable=True,
    )
    snode_expired_timeout: int = setting(
        120_000,
        "a snode that has not registered for this long is evicted (Java never does)",
        unit="ms",
        updatable=True,
    )
    config_black_list: str = setting(
        "configBlackList;configStorePath;kvConfigPath",
        "settings, separated by ;, that may not be changed while the name server runs",
    )

    def check(self) -> None:
        """Refuse invalid values.

        Raises:
            ConfigError: names the setting.
        """
        for name, value in (
            ("scanNotActiveBrokerInterval", self.scan_not_active_broker_interval),
            ("brokerExpiredTimeout", self.broker_expired_timeout),
            ("snodeExpiredTimeout", self.snode_expired_timeout),
        ):
            if value < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")


class NamesrvSettings(GuardedSettings):
    """The configuration of one name server; sections in the order in which Java prints them."""

    section_names = ("namesrv", "server", "tls", "writers", "operation")
    own = "namesrv"
    daemon = "name server"
    risk = "register brokers and delete routes"

    operation: NameServerOperationConfig

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.namesrv = NamesrvConfig()
        self.server = NettyServerConfig(listen_port=DEFAULT_PORT)
        self.operation = NameServerOperationConfig()
