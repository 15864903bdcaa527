"""Configuration of a snode: SnodeConfig of the snode branch, and settings of this snode only."""

import logging
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mq.client.credentials import AccessKey, read_access_key
from mq.client.errors import ClientError
from mq.client.routing.address_server import is_url
from mq.client.transport.caller import parse_name_servers
from mq.daemons.acl.networks import is_loopback
from mq.daemons.config import ConfigError, Section, Settings, read_file, setting
from mq.daemons.host_addresses import LOOPBACK, resolve
from mq.daemons.operation_config import OFF, SnodeOperationConfig
from mq.daemons.remoting_config import NettyClientConfig, NettyServerConfig
from mq.daemons.snode.push.service import SlowConsumerPolicy
from mq.daemons.tls_config import TlsConfig

log = logging.getLogger(__name__)

DEFAULT_PORT = 11911
# Names of snodes, clusters and enodes.
_NAME = re.compile(r"[A-Za-z0-9_.%|-]{1,255}")
# Limits of registerNameServerPeriod in ms (the snode branch's SnodeController).
SHORTEST_PERIOD = 10_000
LONGEST_PERIOD = 60_000


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_SNODE"


@dataclass(frozen=True)
class SnodeConfig(Section):
    """The snode itself: its identity and its behaviour. Sizes of thread pools have no effect."""

    rocketmq_home: str | None = setting(
        factory=lambda: os.environ.get("ROCKETMQ_HOME"),
        shown="$ROCKETMQ_HOME",
        doc="folder of the installation: ACL files and conf/flow_control.yml are under it",
    )
    namesrv_addr: str | None = setting(
        factory=lambda: os.environ.get("NAMESRV_ADDR"),
        shown="$NAMESRV_ADDR",
        doc="name servers, host:port separated by ;",
        important=True,
    )
    cluster_name: str = setting("defaultCluster", "name of its cluster", important=True)
    snode_name: str = setting(
        factory=_host_name,
        shown="the host name",
        doc="its unique name; in embedded mode the broker's",
        important=True,
    )
    snode_ip1: str = setting(
        "",
        "address announced to clients; empty: its listen address, or this host's own address",
        name="snodeIP1",
        important=True,
    )
    snode_ip2: str = setting("", "a second address", name="snodeIP2", effect=False)
    snode_id: int = setting(0, "its number", long=True, effect=False)
    metrics_enable: bool = setting(
        True, "open metricsExportPort for Prometheus, if prometheus-client is installed"
    )
    metrics_export_port: int = setting(
        1234, "port from which Prometheus reads metrics; 0: any free port; metricsPort overrides it"
    )
    snode_heart_beat_interval: int = setting(
        30_000, "pause between heartbeats to brokers", unit="ms", long=True
    )
    register_name_server_period: int = setting(
        30_000, "pause between registrations; 10 s to 60 s", unit="ms"
    )
    house_keeping_interval: int = setting(
        10_000, "pause between checks for silent clients", unit="ms"
    )
    channel_expired_timeout: int = setting(
        120_000, "a client without a heartbeat for this long is evicted", unit="ms", long=True
    )
    slow_consumer_threshold: int = setting(
        1024,
        "limit of the lag of a consumer that gets pushed messages",
        long=True,
    )
    slow_consumer_policy: SlowConsumerPolicy = setting(
        SlowConsumerPolicy.CLOSE,
        "action for a consumer above that limit: CLOSE its connection, as the snode branch did at "
        "first, or SKIP the message, as its last state does",
    )
    load_offset_interval: int = setting(3000, "age of offsets of slow consumers", effect=False)
    auto_create_subscription_group: bool = setting(True, "create missing groups, at every broker")
    notify_consumer_ids_changed_enable: bool = setting(
        True, "notify consumers when their group changes"
    )
    enable_property_filter: bool = setting(True, "allow SQL92 filters")
    vip_channel_enabled: bool = setting(
        True, "ask brokers for offsets on listenPort - 2", name="vipChannelEnabled", effect=False
    )
    forward_offsets: bool = setting(
        False,
        "send committed offsets to brokers at once, as the snode branch's last state does, "
        "instead of every persistOffsetInterval",
    )
    persist_offset_interval: int = setting(
        120_000, "pause between sending offsets to brokers; the first time after at most 10 s",
        unit="ms",
    )  # fmt: skip
    max_cached_offsets: int = setting(
        200_000, "limit of kept offsets; those of more queues are sent to brokers at once"
    )
    enode_request_timeout: int = setting(3000, "timeout of requests to brokers", unit="ms")
    pull_connections: int = setting(
        4, "connections to each broker for pulls, in addition to the one for other requests"
    )
    default_enode: str = setting(
        "",
        "broker for requests that name none, such as those of ordinary clients of 4.x; empty: the "
        "only one, if there is only one",
        important=True,
    )
    enode_ports: str = setting(
        "",
        "ports that stand for brokers, NAME:PORT separated by ;: a request at this port that "
        "names no broker is for this one, and the snode's routes announce the port to clients",
        important=True,
    )
    acl_enable: bool = setting(False, "enable access control", important=True)
    acl_plain_file: str = setting(
        "conf/plain_acl.yml",
        "file of accounts, relative to rocketmqHome; conf/acl/*.yml are read, too",
        name="rocketmq.acl.plain.file",
    )
    enode_acl_file: str = setting(
        "",
        "file with accessKey and secretKey that sign requests to brokers and name servers, "
        "replacing their senders' signatures; only with aclEnable=true. SIGHUP reloads it",
    )
    flow_control_file: str = setting(
        "conf/flow_control.yml",
        "limits of requests, relative to rocketmqHome; reloaded when it changes",
        name="rocketmq.flow.control.file",
    )
    remoting_server_interceptors: str = setting(
        "", "dotted names of Python classes around every request, separated by commas"
    )
    send_message_interceptors: str = setting("", "the same around sends")
    consume_message_interceptors: str = setting("", "the same around pulls")
    embedded_mode_enable: bool = setting(
        False,
        "run a broker in this process, from embeddedBrokerConfig, and call it without a socket "
        "(the snode branch: true, because its default has a store)",
        important=True,
    )
    embedded_broker_config: str = setting("", "settings file of that broker, as for mq broker -c")
    fetech_name_server: bool = setting(
        False, "a misspelled name of fetchNamesrvAddrByAddressServer", effect=False
    )
    fetch_namesrv_addr_by_address_server: bool = setting(
        False, "namesrvAddr is the URL of an address server that returns the name servers"
    )
    snode_send_message_min_pool_size: int = setting(10, "threads that send", effect=False)
    snode_send_message_max_pool_size: int = setting(20, "threads that send", effect=False)
    snode_send_thread_pool_queue_capacity: int = setting(10_000, "sends that wait", effect=False)
    snode_heart_beat_core_pool_size: int = setting(1, "threads of heartbeats", effect=False)
    snode_heart_beat_max_pool_size: int = setting(2, "threads of heartbeats", effect=False)
    snode_heart_beat_thread_pool_queue_capacity: int = setting(
        1000, "heartbeats that wait", effect=False
    )
    snode_push_message_min_pool_size: int = setting(10, "threads that push", effect=False)
    snode_push_message_max_pool_size: int = setting(20, "threads that push", effect=False)
    snode_push_message_thread_pool_queue_capacity: int = setting(
        10_000, "pushes that wait", effect=False
    )
    config_store_path: str = setting(
        factory=lambda: str(Path.home() / "snode" / "snode.properties"),
        shown="~/snode/snode.properties",
        doc="the file given with -c",
    )

    @property
    def register_seconds(self) -> float:
        """The pause between registrations, within its limits."""
        period = max(SHORTEST_PERIOD, min(self.register_name_server_period, LONGEST_PERIOD))
        return period / 1000

    def name_servers(self) -> str | tuple[str, ...]:
        """host:port of each name server, or the URL of the address server. Raises ConfigError."""
        if self.fetch_namesrv_addr_by_address_server:
            if not is_url(self.namesrv_addr or ""):
                raise ConfigError(
                    f"namesrvAddr={self.namesrv_addr or ''}: expected the URL of an address server "
                    "(fetchNamesrvAddrByAddressServer=true)"
                )
            return self.namesrv_addr or ""
        try:
            return parse_name_servers(self.namesrv_addr or "")
        except ClientError as error:
            raise ConfigError(
                f'namesrvAddr={self.namesrv_addr or ""}: {error}; write "10.0.0.1:9876;…", or use '
                "-n"
            ) from None

    def stand_ins(self) -> dict[str, int]:
        """enodePorts: the ports that stand for brokers, by broker name. Raises ConfigError."""
        found: dict[str, int] = {}
        for part in filter(None, map(str.strip, self.enode_ports.split(";"))):
            name, _, port = part.rpartition(":")
            if not _NAME.fullmatch(name) or not port.isdecimal() or int(port) > 65535:
                raise ConfigError(f"enodePorts={self.enode_ports}: {part} is not NAME:PORT")
            if name in found or (int(port) and int(port) in found.values()):
                raise ConfigError(f"enodePorts={self.enode_ports}: {part} occurs twice")
            found[name] = int(port)
        return found

    def check(self) -> None:
        """Refuse invalid values.

        Raises:
            ConfigError: names the setting.
        """
        for name, text in (("snodeName", self.snode_name), ("clusterName", self.cluster_name)):
            if not _NAME.fullmatch(text):
                raise ConfigError(f"{name}={text}: expected letters, digits and _.%|-")
        for name, value, least in (
            ("snodeHeartBeatInterval", self.snode_heart_beat_interval, 10),
            ("houseKeepingInterval", self.house_keeping_interval, 10),
            ("channelExpiredTimeout", self.channel_expired_timeout, 1),
            ("slowConsumerThreshold", self.slow_consumer_threshold, 0),
            ("persistOffsetInterval", self.persist_offset_interval, 10),
            ("maxCachedOffsets", self.max_cached_offsets, 0),
            ("enodeRequestTimeout", self.enode_request_timeout, 10),
            ("pullConnections", self.pull_connections, 1),
            ("metricsExportPort", self.metrics_export_port, 0),
        ):
            if value < least:
                raise ConfigError(f"{name}={value}: must be at least {least}")
        self.stand_ins()
        if self.default_enode and not _NAME.fullmatch(self.default_enode):
            raise ConfigError(f"defaultEnode={self.default_enode}: not a broker name")
        if self.enode_acl_file and not self.acl_enable:
            raise ConfigError(
                "enodeAclFile without aclEnable=true: any client that reaches the snode would have "
                "the permissions of its account"
            )
        if self.embedded_mode_enable and not self.embedded_broker_config:
            raise ConfigError("embeddedModeEnable=true: embeddedBrokerConfig names no file")


class SnodeSettings(Settings):
    """The configuration of one snode."""

    section_names = ("snode", "server", "client", "tls", "operation")

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.snode = SnodeConfig()
        self.server = NettyServerConfig(listen_port=DEFAULT_PORT)
        self.client = NettyClientConfig()
        self.tls = TlsConfig()
        self.operation = SnodeOperationConfig()
        self.listen_host = LOOPBACK

    @classmethod
    def load(cls, path: Path | None = None, overrides: Mapping[str, str] | None = None) -> Self:
        """Read defaults, then the file, then `overrides` by property name; then check.

        Raises:
            ConfigError: the file or a value is invalid.
        """
        settings = cls(path)
        if path is not None:
            settings.apply(read_file(path))
            settings.snode = settings.snode.replace(config_store_path=str(path))
        settings.finish(overrides)
        settings._resolve_addresses()
        return settings

    def exported(self) -> SnodeOperationConfig:
        """The operation section with the port of the metrics."""
        operation = self.operation
        if operation.metrics_port == OFF and self.snode.metrics_enable:
            return operation.replace(metrics_port=self.snode.metrics_export_port)
        return operation

    def enode_key(self) -> AccessKey | None:
        """The key that signs requests to brokers; None if senders' signatures are kept.

        Raises:
            ConfigError: the file is invalid.
        """
        if not self.snode.enode_acl_file:
            return None
        try:
            return read_access_key(Path(self.snode.enode_acl_file))
        except ClientError as error:
            raise ConfigError(f"enodeAclFile: {error}") from None

    def _resolve_addresses(self) -> None:
        """Determine the listen address and the announced address, like a broker: loopback, unless
        an announced address is configured or access control is on.
        """
        snode = self.snode
        host, advertised = resolve(
            self.server.bind_address, snode.snode_ip1, is_guarded=snode.acl_enable
        )
        self.listen_host = host
        self.snode = snode.replace(snode_ip1=advertised, snode_ip2=snode.snode_ip2 or advertised)
        if snode.acl_enable or is_loopback(host):
            if not (self.server.bind_address or snode.snode_ip1) and is_loopback(host):
                log.warning(
                    "listening on %s only: set snodeIP1 or bindAddress to serve other hosts", host
                )
            return
        log.warning(
            "ACCESS CONTROL IS OFF and the snode listens on %s: any client that reaches it may "
            "read and write what brokers allow the snode (aclEnable=false)",
            host,
        )
