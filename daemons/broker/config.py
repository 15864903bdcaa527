"""Configuration of a broker: its six sections together."""

import copy
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from mq.client.credentials import AccessKey, read_access_key
from mq.client.errors import ClientError
from mq.client.transport.caller import parse_address
from mq.daemons.acl.networks import is_loopback
from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.store.layout import RECORD_OVER_BODY
from mq.daemons.broker.store_config import BrokerRole, MessageStoreConfig
from mq.daemons.config import ConfigError, Section, Settings, read_file
from mq.daemons.host_addresses import (
    LOOPBACK,
    parse_addresses,
    parse_name_servers,
    resolve,
)
from mq.daemons.operation_config import BrokerOperationConfig
from mq.daemons.remoting_config import NettyClientConfig, NettyServerConfig
from mq.daemons.tls_config import TlsConfig
from mq.protocol.frame import MAX_FRAME
from mq.protocol.names import MASTER_ID, IllegalName, check_topic

log = logging.getLogger(__name__)

DEFAULT_PORT = 10911
# The fast listener serves requests that must not wait behind pulls; clients compute its port this
# way.
FAST_PORT_DISTANCE = 2


class BrokerSettings(Settings):
    """The configuration of one broker; sections in the order in which Java prints them."""

    section_names = ("broker", "server", "client", "store", "tls", "operation")

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.broker = BrokerConfig()
        self.server = NettyServerConfig(listen_port=DEFAULT_PORT)
        self.client = NettyClientConfig()
        self.store = MessageStoreConfig()
        self.tls = TlsConfig()
        self.operation = BrokerOperationConfig()
        self.listen_host = LOOPBACK

    @classmethod
    def load(cls, path: Path | None = None, overrides: Mapping[str, str] | None = None) -> Self:
        """Read defaults, then the file, then `overrides` by property name; then check.

        Raises:
            ConfigError: the file or a value is invalid.
        """
        return cls(path)._complete(read_file(path) if path is not None else {}, overrides)

    @classmethod
    def load_one_of(cls, path: Path | None, section: str, properties: Mapping[str, str]) -> Self:
        """Load one of several brokers in a file. `properties` has the common ones and those of its
        section, to which changes are written. Raises ConfigError.
        """
        settings = cls(path)
        settings.section = section
        return settings._complete(properties)

    def _complete(
        self, properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> Self:
        # Java computes it from listenPort whatever the file says (BrokerStartup). Here an explicit
        # port is kept, and 0 stays 0: any free port.
        self.apply(properties)
        self.apply(overrides or {})
        if "haListenPort" not in {**properties, **(overrides or {})}:
            port = self.server.listen_port
            self.store = self.store.replace(ha_listen_port=port + 1 if port else 0)
        self.resolve()
        return self

    @property
    def fast_port(self) -> int:
        """Port of the fast listener; 0, any port, if the main listener uses any port."""
        port = self.server.listen_port
        return port - FAST_PORT_DISTANCE if port else 0

    def name_servers(self) -> list[str]:
        """The configured name servers as host:port."""
        return parse_name_servers(self.broker.namesrv_addr or "")

    def controllers(self) -> list[str]:
        """The configured controllers as host:port."""
        return parse_addresses("controllerAddr", self.broker.controller_addr)

    def in_role(self, role: BrokerRole, broker_id: int) -> Self:
        """A copy of these settings for a broker that starts in another role."""
        settings = copy.copy(self)
        settings.extra, settings.on_change = dict(self.extra), []
        settings.store = self.store.replace(broker_role=role)
        settings.broker = self.broker.replace(broker_id=broker_id)
        return settings

    def name_server_tls(self) -> ssl.SSLContext | None:
        """The TLS context for name servers; None for plain connections.

        Raises:
            ConfigError: names the invalid setting.
        """
        return self.tls.client_context() if self.tls.enable or self.client.use_tls else None

    def name_server_key(self) -> AccessKey | None:
        """The key that signs requests to name servers; None if they are not signed.

        Raises:
            ConfigError: the file is invalid.
        """
        if not self.broker.namesrv_acl_file:
            return None
        try:
            return read_access_key(Path(self.broker.namesrv_acl_file))
        except ClientError as error:
            raise ConfigError(f"namesrvAclFile: {error}") from None

    def resolve(self) -> None:
        """Check the settings together and set those that depend on others: brokerId of a master,
        addresses.

        Raises:
            ConfigError: names the invalid setting and the alternatives.
        """
        is_slave = self.store.broker_role is BrokerRole.SLAVE
        is_controlled = self.broker.enable_controller_mode
        if not is_slave and not is_controlled and self.broker.broker_id != MASTER_ID:
            # As in BrokerStartup. It would be refused if Java's sample files did not have such ids.
            log.warning(
                "brokerId=%d is ignored: a master's is always 0 (brokerRole=%s)",
                self.broker.broker_id,
                self.store.broker_role,
            )
            self.broker = self.broker.replace(broker_id=MASTER_ID)
        self.check()
        if is_controlled and self.broker.enable_slave_acting_master:
            log.warning("enableSlaveActingMaster=true has no effect: controllers elect a master")
        self.tls = self.tls.complete()
        self.log_without_effect()
        self._warn_of_names()
        if self.store.max_message_size > MAX_FRAME - RECORD_OVER_BODY:
            log.warning(
                "maxMessageSize=%d has no effect above %d: a request has at most %d bytes",
                self.store.max_message_size, MAX_FRAME - RECORD_OVER_BODY, MAX_FRAME,
            )  # fmt: skip
        self._resolve_addresses()

    def _warn_of_names(self) -> None:
        """Log names that Java's broker accepts and that are not legal topic names.

        A broker has topics named after itself and its cluster. Clients refuse to use such topics
        (org.apache.rocketmq.client.Validators), so replies of request-reply messaging fail.
        """
        for name, text in (
            ("brokerName", self.broker.broker_name),
            ("brokerClusterName", self.broker.broker_cluster_name),
        ):
            try:
                check_topic(text)
            except IllegalName:
                log.warning(
                    "%s=%s: clients refuse topics named after it, also for replies; for a new "
                    "broker use letters, digits, %%, |, - and _ only", name, text,
                )  # fmt: skip

    def check_sections(self, sections: Mapping[str, Section]) -> None:
        broker, store, server = sections["broker"], sections["store"], sections["server"]
        assert isinstance(broker, BrokerConfig)
        assert isinstance(store, MessageStoreConfig)
        assert isinstance(server, NettyServerConfig)
        if not 0 <= server.listen_port <= 65535 or 0 < server.listen_port <= FAST_PORT_DISTANCE:
            raise ConfigError(f"listenPort={server.listen_port}: expected 0 or 3 to 65535")
        super().check_sections(sections)
        if broker.enable_controller_mode:  # controllers assign role and id
            _check_controlled(broker, store, server)
        elif store.broker_role is BrokerRole.SLAVE and broker.broker_id <= MASTER_ID:
            raise ConfigError(
                f"brokerId={broker.broker_id}: a slave's brokerId must be above 0 "
                "(brokerRole=SLAVE)"
            )
        if store.ha_master_address:
            try:
                parse_address(store.ha_master_address)
            except ClientError as error:
                raise ConfigError(f"haMasterAddress={store.ha_master_address}: {error}") from None
        if not 0 <= store.ha_listen_port <= 65535:
            raise ConfigError(
                f"haListenPort={store.ha_listen_port}: expected 0 to 65535 (listenPort + 1 "
                f"unless it is set)"
            )

    def _resolve_addresses(self) -> None:
        """Determine the listen address and the announced address. Logs a warning if other hosts
        reach the broker and it has no access control.
        """
        named = self.server.bind_address or self.broker.broker_ip1
        host, advertised = resolve(
            self.server.bind_address, self.broker.broker_ip1, is_guarded=self.broker.acl_enable
        )
        self.listen_host = host
        self.broker = self.broker.replace(
            broker_ip1=advertised, broker_ip2=self.broker.broker_ip2 or advertised
        )
        if self.broker.acl_enable or is_loopback(host):
            if not named and is_loopback(host):
                log.warning(
                    "listening on %s only: set brokerIP1 or bindAddress to serve other hosts", host
                )
            return
        log.warning(
            "ACCESS CONTROL IS OFF and the broker listens on %s: any client that reaches it may "
            "read, write and delete everything (aclEnable=false)",
            host,
        )


def _check_controlled(
    broker: BrokerConfig, store: MessageStoreConfig, server: NettyServerConfig
) -> None:
    """Refuse settings that exclude controllers or the identity file. Raises ConfigError."""
    for name, text in (
        ("brokerName", broker.broker_name),
        ("brokerClusterName", broker.broker_cluster_name),
    ):
        if "#" in text:
            raise ConfigError(
                f"{name}={text}: with enableControllerMode=true a name must not contain #, which "
                "separates the fields of the file brokerIdentity"
            )
    if not parse_addresses("controllerAddr", broker.controller_addr):
        raise ConfigError(
            "enableControllerMode=true needs controllerAddr, the host:port of each controller"
        )
    if not server.listen_port:
        raise ConfigError(
            "listenPort=0 with enableControllerMode=true: controllers know a broker by its address"
        )
    if store.ha_master_address:
        raise ConfigError(
            f"haMasterAddress={store.ha_master_address} with enableControllerMode=true: controllers"
            " assign the master"
        )
    if broker.controller_heart_beat_timeout_mills <= broker.broker_heartbeat_interval:
        raise ConfigError(
            "controllerHeartBeatTimeoutMills="
            f"{broker.controller_heart_beat_timeout_mills}: must be more than "
            f"brokerHeartbeatInterval={broker.broker_heartbeat_interval}"
        )
