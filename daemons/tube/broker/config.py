"""Configuration of a TubeMQ broker: the names of broker.ini, and our own settings.

A file has sections: `[broker]` as in the original; `[tls]` and `[operation]` as in all daemons.
`[zookeeper]`, `[audit]` and `[prometheus]` are not read: offsets are in a file, and metrics have
the settings of all daemons.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Self

from mq.daemons.acl.networks import is_loopback
from mq.daemons.config import ConfigError, Section, Settings, setting
from mq.daemons.host_addresses import LOOPBACK, local_address
from mq.daemons.operation_config import OperationConfig
from mq.daemons.tls_config import TlsConfig
from mq.daemons.tube.broker.store.errors import FlushMode
from mq.daemons.tube.broker.store.layout import INDEX_SIZE
from mq.daemons.tube.ini import read_ini
from mq.daemons.tube.settings import check_host_name, check_ranges, listen_host
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.tube.codes import BROKER_PORT, BROKER_TLS_PORT, BROKER_WEB_PORT
from mq.protocol.tube.strings import Address, parse_addresses

log = logging.getLogger(__name__)

# Tokens of the original's master and of its sample file: not secret.
KNOWN_TOKENS = frozenset({"ASDFGHJKL", "abc"})
_MINUTE = 60_000
_DAY = 24 * 60 * _MINUTE


@dataclass(frozen=True)
class BrokerConfig(Section):
    """Settings of the broker itself."""

    broker_id: int = setting(
        0, "number in the cluster; 0: derived from its address", important=True
    )
    host_name: str = setting(
        LOOPBACK,
        "name or address of this broker for clients, as at the master; if "
        "it is not loopback, connections are accepted on all addresses",
        important=True,
    )
    bind_address: str = setting("", "address to listen on; empty: that of hostName")
    port: int = setting(BROKER_PORT, "port of clients", important=True)
    web_port: int = setting(BROKER_WEB_PORT, "port of administrators, HTTP; -1: none")
    tls_enable: bool = setting(False, "listen on tlsPort, too, with the certificates of tls.*")
    tls_port: int = setting(BROKER_TLS_PORT, "port of clients that use TLS")
    master_address_list: str = setting(
        "",
        "masters, host:port,host:port; empty: none, with the topics of topicList",
        important=True,
    )
    topic_list: str = setting(
        "", "without masters: the topics, as name:partitions:stores,…", important=True
    )
    primary_path: str = setting("var/tube", "folder of the messages", important=True, path=True)
    offset_stg_file_path: str = setting(
        "", "folder of groups' offsets; empty: primaryPath", path=True
    )
    flush_mode: FlushMode = setting(  # noqa: RUF009
        FlushMode.os,
        "durability of acknowledged messages: sync, on the disk (survives a power cut); os, in the "
        "file (survives a kill); memory, accepted (as the original: lost with the process)",
        important=True,
    )
    max_segment_size: int = setting(1 << 30, "size of a data file", unit="bytes")
    max_index_segment_size: int = setting(
        700_000 * INDEX_SIZE, "size of an index file", unit="bytes"
    )
    transfer_size: int = setting(512 * 1024, "bytes of messages in one answer", unit="bytes")
    index_trans_count: int = setting(
        1000, "messages of other partitions that a read may skip, per partition of a topic"
    )
    consumer_reg_timeout_ms: int = setting(
        30_000, "a consumer without requests for this time is removed", unit="ms"
    )
    update_consumer_offsets: bool = setting(
        True, "lower the offset of a group that is beyond the end of a partition"
    )
    heartbeat_period_ms: int = setting(8000, "pause between heartbeats to the master", unit="ms")
    rpc_read_timeout_ms: int = setting(10_000, "limit for an answer of the master", unit="ms")
    log_clearup_duration_ms: int = setting(
        3 * _MINUTE, "interval of checks for expired files", unit="ms"
    )
    offset_stg_file_sync_ms: int = setting(
        5000, "interval between saves of offsets: a kill loses at most this time", unit="ms"
    )
    grp_offset_stg_exp_ms: int = setting(
        20 * _DAY,
        "offsets of a group that commits nothing for this time are deleted",
        unit="ms",
        long=True,
    )
    visit_token_check_in_valid_time_ms: int = setting(
        2 * _MINUTE,
        "with a master of Java, no visit token is refused for this time after a registration",
        unit="ms",
    )
    visit_master_auth: bool = setting(False, "sign requests to the master")
    visit_name: str = setting("", "user name for the signature")
    visit_password: str = setting("", "password for the signature")
    allowed_read_io_excpt_cnt: int = setting(
        3, "maximum of failed reads within ioExcptStatsDurationMs; then reading stops",
        name="allowedReadIOExcptCnt",
    )  # fmt: skip
    allowed_write_io_excpt_cnt: int = setting(
        3,
        "maximum of failed writes in that time; then sending stops",
        name="allowedWriteIOExcptCnt",
    )
    io_excpt_stats_duration_ms: int = setting(2 * _MINUTE, "that time", unit="ms")
    conf_mod_auth_token: str = setting(
        "", "token of administrators for setting offsets; empty: none is needed, on loopback"
    )
    def_eth_name: str = setting("eth1", "network interface", effect=False)
    enable_mem_store: bool = setting(True, "see flushMode", effect=False)
    enable_write_offset2_zk: bool = setting(
        False, "offsets to ZooKeeper, too", name="enableWriteOffset2Zk", effect=False
    )
    offset_stg_cache_flush_ms: int = setting(5000, "of the original's cache", effect=False)
    offset_stg_sync_dur_warn_ms: int = setting(20_000, "of the original's cache", effect=False)
    log_flush_disk_dur_ms: int = setting(20_000, "of the original's flushes", effect=False)
    log_flush_mem_dur_ms: int = setting(10_000, "of the original's flushes", effect=False)
    load_message_stores_in_parallel: bool = setting(True, "of the original's start", effect=False)
    group_offset_scan_dur_ms: int = setting(
        60_000, "pause between records of the topic __offset_history__", effect=False
    )
    tcp_write_service_thread: int = setting(0, "threads", effect=False)
    tcp_read_service_thread: int = setting(0, "threads", effect=False)
    tls_write_service_thread: int = setting(0, "threads", effect=False)
    tls_read_service_thread: int = setting(0, "threads", effect=False)
    default_deduce_read_size: int = setting(7 << 30, "fixed at 7 GiB", long=True, effect=False)
    netty_write_buffer_high_water_mark: int = setting(10 << 20, "unsent bytes", effect=False)
    netty_write_buffer_low_water_mark: int = setting(5 << 20, "unsent bytes", effect=False)
    auth_valid_time_stamp_period_ms: int = setting(20_000, "of clocks", effect=False)
    row_lock_wait_dur_ms: int = setting(30_000, "time to get a lock", effect=False)
    socket_send_buffer: int = setting(-1, "SO_SNDBUF", effect=False)
    socket_recv_buffer: int = setting(-1, "SO_RCVBUF", effect=False)

    @property
    def number(self) -> int:
        """Return the broker's id (BrokerConfig.getBrokerId)."""
        if self.broker_id > 0:
            return self.broker_id
        try:
            address = int(IPv4Address(self.host_name))
        except ValueError:
            address = int(IPv4Address(local_address()))
        return address if address < 1 << 31 else (1 << 32) - address

    def masters(self) -> tuple[Address, ...]:
        return parse_addresses(self.master_address_list) if self.master_address_list else ()

    def check(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ConfigError: names the setting.
        """
        ranges = (
            ("brokerId", self.broker_id, 0, (1 << 31) - 1),
            ("port", self.port, 0, 65535),
            ("webPort", self.web_port, -1, 65535),
            ("tlsPort", self.tls_port, 0, 65535),
            ("maxSegmentSize", self.max_segment_size, 1024, 1 << 31),
            ("maxIndexSegmentSize", self.max_index_segment_size, INDEX_SIZE, 1 << 31),
            ("transferSize", self.transfer_size, 1, 1 << 31),
            ("indexTransCount", self.index_trans_count, 1, 1 << 20),
            ("consumerRegTimeoutMs", self.consumer_reg_timeout_ms, 100, 1 << 31),
            ("heartbeatPeriodMs", self.heartbeat_period_ms, 10, 1 << 31),
            ("rpcReadTimeoutMs", self.rpc_read_timeout_ms, 100, 1 << 31),
            ("logClearupDurationMs", self.log_clearup_duration_ms, 10, 1 << 31),
            ("offsetStgFileSyncMs", self.offset_stg_file_sync_ms, 10, 1 << 31),
            ("grpOffsetStgExpMs", self.grp_offset_stg_exp_ms, _MINUTE, 1 << 62),
            ("ioExcptStatsDurationMs", self.io_excpt_stats_duration_ms, 1, 1 << 31),
        )
        check_ranges(ranges)
        if not self.primary_path.strip("/ "):
            raise ConfigError(f"primaryPath={self.primary_path}: expected a folder")
        if self.visit_master_auth and not (self.visit_name and self.visit_password):
            raise ConfigError("visitMasterAuth=true: set visitName and visitPassword, too")
        check_host_name(self.host_name)
        try:
            self.masters()
            fixed_topics(self.topic_list)
        except (RemoteProtocolError, ValueError) as error:
            raise ConfigError(f"masterAddressList, topicList: {error}") from None


def fixed_topics(text: str) -> list[tuple[str, int, int]]:
    """Return the topics of `topicList`: name, partitions, stores. Raises ValueError."""
    found = []
    for item in filter(None, map(str.strip, text.split(","))):
        name, _, rest = item.partition(":")
        partitions, _, stores = rest.partition(":")
        found.append((name, int(partitions or 1), int(stores or 1)))
        if not (0 < found[-1][1] < 10_000 and 0 < found[-1][2] < 10_000 and name):
            raise ValueError(f"{item}: expected name:partitions:stores")
    return found


class BrokerSettings(Settings):
    """The configuration of one broker."""

    section_names = ("broker", "tls", "operation")

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.broker = BrokerConfig()
        self.tls = TlsConfig()
        self.operation = OperationConfig()

    @classmethod
    def load(cls, path: Path | None = None, overrides: Mapping[str, str] | None = None) -> Self:
        """Load the defaults, then the file, then `overrides` by name; then check them.

        Raises:
            ConfigError: the file or a value cannot be used.
        """
        settings = cls(path)
        if path is not None:
            for name, properties in read_ini(path).items():
                if name in ("", *cls.section_names):
                    settings.apply(properties)
                elif name == "tlsSetting":
                    settings.apply(_tls_names(properties))
        settings.finish(overrides)
        settings._guard()
        return settings

    def listen_host(self) -> str:
        """Return the address to listen on."""
        return listen_host(self.broker.bind_address, self.broker.host_name)

    def _guard(self) -> None:
        """Log the permissions of anonymous clients; raise ConfigError if they are too many."""
        host, token = self.listen_host(), self.broker.conf_mod_auth_token
        if is_loopback(host):
            return
        if self.broker.web_port >= 0 and (not token or token in KNOWN_TOKENS):
            raise ConfigError(
                f"confModAuthToken is empty or publicly known, and this broker listens on "
                f"{host}: set another, or webPort=-1"
            )
        log.warning(
            "this broker listens on %s: any client may send and consume, unless its master has "
            "startVisitTokenCheck, startProduceAuthenticate or startConsumeAuthenticate",
            host,
        )


def _tls_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the original's section that ours has: its key stores are Java's, ours
    are PEM files.
    """
    found = {name: properties[name] for name in ("tlsEnable", "tlsPort") if name in properties}
    if properties.get("tlsTwoWayAuthEnable", "").strip().lower() == "true":
        # Clients without a certificate must not be accepted because of different setting names.
        found |= {"tls.server.authClient": "true", "tls.server.need.client.auth": "require"}
    return found
