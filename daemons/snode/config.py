"""Configuration of a snode: SnodeConfig of the snode branch, and what is this one's own."""

import logging
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mq.client.address_server import is_url
from mq.client.caller import parse_name_servers
from mq.client.credentials import AccessKey, read_access_key
from mq.client.errors import ClientError
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
# registerNameServerPeriod is held within these, in ms (the snode branch's SnodeController).
SHORTEST_PERIOD = 10_000
LONGEST_PERIOD = 60_000


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_SNODE"


@dataclass(frozen=True)
class SnodeConfig(Section):
    """The snode itself: who it is, whom it serves and how. Sizes of thread pools mean nothing."""

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
    cluster_name: str = setting("defaultCluster", "cluster that it is in", important=True)
    snode_name: str = setting(
        factory=_host_name,
        shown="the host name",
        doc="its name, which no other snode may have; in embedded mode the broker's",
        important=True,
    )
    snode_ip1: str = setting(
        "",
        "address that clients are told; empty: where it listens, or this host's own address",
        name="snodeIP1",
        important=True,
    )
    snode_ip2: str = setting("", "a second address", name="snodeIP2", effect=False)
    snode_id: int = setting(0, "its number", long=True, effect=False)
    metrics_enable: bool = setting(
        True, "open metricsExportPort for Prometheus, where prometheus-client is installed"
    )
    metrics_export_port: int = setting(
        1234, "port that Prometheus reads metrics from; 0: any free port; metricsPort goes before"
    )
    snode_heart_beat_interval: int = setting(
        30_000, "pause between heartbeats to brokers", unit="ms", long=True
    )
    register_name_server_period: int = setting(
        30_000, "pause between registrations; 10 s to 60 s", unit="ms"
    )
    house_keeping_interval: int = setting(
        10_000, "pause between looks for silent clients", unit="ms"
    )
    channel_expired_timeout: int = setting(
        120_000, "a client without a heartbeat for this long is gone", unit="ms", long=True
    )
    slow_consumer_threshold: int = setting(
        1024,
        "messages that a consumer that is pushed to may be behind",
        long=True,
    )
    slow_consumer_policy: SlowConsumerPolicy = setting(
        SlowConsumerPolicy.CLOSE,
        "what becomes of one that is further behind: CLOSE its connection, as the snode branch did "
        "first, or SKIP the message, as it did in the end",
    )
    load_offset_interval: int = setting(3000, "age of offsets of slow consumers", effect=False)
    auto_create_subscription_group: bool = setting(
        True, "make groups that are new, at every broker"
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True, "tell consumers when their group changes"
    )
    enable_property_filter: bool = setting(True, "allow SQL92 filters")
    vip_channel_enabled: bool = setting(
        True, "ask brokers for offsets on listenPort - 2", name="vipChannelEnabled", effect=False
    )
    forward_offsets: bool = setting(
        False,
        "send committed offsets to brokers at once, as the snode branch did in the end, "
        "instead of every persistOffsetInterval",
    )
    persist_offset_interval: int = setting(
        120_000, "pause between two times that offsets go to brokers, the first after 10 s at most",
        unit="ms",
    )  # fmt: skip
    max_cached_offsets: int = setting(
        200_000, "offsets kept; those of more queues go to brokers at once"
    )
    enode_request_timeout: int = setting(
        3000, "a broker that does not answer for this long is given up", unit="ms"
    )
    pull_connections: int = setting(
        4, "connections to each broker for pulls, beside the one for all else"
    )
    default_enode: str = setting(
        "",
        "broker that requests are for which name none, as those of ordinary clients of 4.x; empty: "
        "the only one, if there is one only",
        important=True,
    )
    enode_ports: str = setting(
        "",
        "ports that stand for brokers, NAME:PORT separated by ;: what comes there and names no "
        "broker is for this one, and routes that are asked of the snode tell clients of it",
        important=True,
    )
    acl_enable: bool = setting(False, "check who may do what", important=True)
    acl_plain_file: str = setting(
        "conf/plain_acl.yml",
        "file of accounts, relative to rocketmqHome; conf/acl/*.yml are read, too",
        name="rocketmq.acl.plain.file",
    )
    enode_acl_file: str = setting(
        "",
        "file with accessKey and secretKey that requests to brokers and name servers are signed "
        "with, instead of their senders' signatures; only with aclEnable=true. SIGHUP reads it "
        "again",
    )
    flow_control_file: str = setting(
        "conf/flow_control.yml",
        "limits of requests, relative to rocketmqHome; read again when it changes",
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
        "(the snode branch: true, for its default has a store)",
        important=True,
    )
    embedded_broker_config: str = setting("", "settings of that broker: a file as for mq broker -c")
    fetech_name_server: bool = setting(
        False, "a misspelt name of fetchNamesrvAddrByAddressServer", effect=False
    )
    fetch_namesrv_addr_by_address_server: bool = setting(
        False, "ask the address server that namesrvAddr is the URL of for name servers"
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
        """host:port of each, or the URL of the address server. Raises ConfigError."""
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
        """enodePorts: the port that stands for a broker, by its name. Raises ConfigError."""
        found: dict[str, int] = {}
        for part in filter(None, map(str.strip, self.enode_ports.split(";"))):
            name, _, port = part.rpartition(":")
            if not _NAME.fullmatch(name) or not port.isdecimal() or int(port) > 65535:
                raise ConfigError(f"enodePorts={self.enode_ports}: {part} is not NAME:PORT")
            if name in found or (int(port) and int(port) in found.values()):
                raise ConfigError(f"enodePorts={self.enode_ports}: {part} is there twice")
            found[name] = int(port)
        return found

    def check(self) -> None:
        """Refuse values that cannot work.

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
            raise ConfigError(f"defaultEnode={self.default_enode}: is no name of a broker")
        if self.enode_acl_file and not self.acl_enable:
            raise ConfigError(
                "enodeAclFile without aclEnable=true: everyone who reaches the snode would have "
                "the rights of its account"
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
        """Defaults, then the file, then `overrides` by property name; then the checks.

        Raises:
            ConfigError: the file or a value cannot be used.
        """
        settings = cls(path)
        if path is not None:
            settings.apply(read_file(path))
            settings.snode = settings.snode.replace(config_store_path=str(path))
        settings.finish(overrides)
        settings._resolve_addresses()
        return settings

    def exported(self) -> SnodeOperationConfig:
        """The operation section with the port that metrics are read from."""
        operation = self.operation
        if operation.metrics_port == OFF and self.snode.metrics_enable:
            return operation.replace(metrics_port=self.snode.metrics_export_port)
        return operation

    def enode_key(self) -> AccessKey | None:
        """What requests to brokers are signed with; None where senders' signatures stay.

        Raises:
            ConfigError: the file cannot be used.
        """
        if not self.snode.enode_acl_file:
            return None
        try:
            return read_access_key(Path(self.snode.enode_acl_file))
        except ClientError as error:
            raise ConfigError(f"enodeAclFile: {error}") from None

    def _resolve_addresses(self) -> None:
        """Where to listen and what address to tell others, as a broker does it: loopback, unless an
        address for others is named or somebody checks who asks."""
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
            "ACCESS CONTROL IS OFF and the snode listens on %s: whoever reaches it may read and "
            "write what brokers let the snode (aclEnable=false)",
            host,
        )
