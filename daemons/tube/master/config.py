"""Configuration of a TubeMQ master: the names of master.ini, and our own settings.

A file has sections: `[master]` as in the original, `[etcd]` for a set of masters. The sections of
the original's databases, such as `[meta_bdb]` and `[meta_zookeeper]`, are not read: metadata is in
SQLite, or in etcd.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mq.daemons.acl.networks import is_loopback
from mq.daemons.config import ConfigError, Section, Settings, setting
from mq.daemons.controller.config import EtcdConfig
from mq.daemons.host_addresses import LOOPBACK
from mq.daemons.operation_config import OperationConfig
from mq.daemons.tls_config import TlsConfig
from mq.daemons.tube.ini import read_ini
from mq.daemons.tube.master.broker_run import Waits
from mq.daemons.tube.settings import check_host_name, check_ranges, listen_host
from mq.daemons.tube.web_methods import KNOWN_TOKENS
from mq.protocol.tube.codes import MASTER_PORT, MASTER_TLS_PORT, MASTER_WEB_PORT

log = logging.getLogger(__name__)

_MINUTE = 60_000


@dataclass(frozen=True)
class MasterConfig(Section):
    """Settings of the master itself."""

    host_name: str = setting(
        LOOPBACK,
        "name or address of this master for clients, brokers and other masters; if it is "
        "not loopback, connections are accepted on all addresses",
        important=True,
    )
    bind_address: str = setting("", "address to listen on; empty: that of hostName")
    port: int = setting(MASTER_PORT, "port of clients and brokers", important=True)
    web_port: int = setting(MASTER_WEB_PORT, "port of administrators, HTTP", important=True)
    tls_enable: bool = setting(False, "listen on tlsPort, too, with the certificates of tls.*")
    tls_port: int = setting(MASTER_TLS_PORT, "port of clients and brokers that use TLS")
    consumer_balance_period_ms: int = setting(
        _MINUTE, "pause between two rounds of assigning partitions", unit="ms", important=True
    )
    first_balance_delay_after_start_ms: int = setting(
        30_000, "unused, as in the original", unit="ms", effect=False
    )
    consumer_heartbeat_timeout_ms: int = setting(
        30_000, "a consumer without heartbeats for this time is removed", unit="ms"
    )
    producer_heartbeat_timeout_ms: int = setting(
        30_000, "a producer without heartbeats for this time is removed", unit="ms"
    )
    broker_heartbeat_timeout_ms: int = setting(
        30_000, "a broker without heartbeats for this time is removed", unit="ms"
    )
    subscribe_wait_ms: int = setting(
        30_000, "producers see a new topic this long after consumers", unit="ms"
    )
    publish_wait_ms: int = setting(
        5000, "the broker's change is complete this long after that", unit="ms"
    )
    conf_mod_auth_token: str = setting(
        "ASDFGHJKL",
        "token that administrators need for changes; the default is public, so it is "
        "accepted on loopback only",
    )
    meta_data_path: str = setting(
        "var/meta_data",
        "folder of the metadata of a master without a set",
        important=True,
        path=True,
    )
    master_group: str = setting(
        "",
        "name of this master's set of masters; a set elects its active master in "
        "etcd and stores its metadata there; empty: no set",
        important=True,
    )
    accounts_file: str = setting(
        "", "file of lines name=password; with it the signatures of clients are verified"
    )
    start_visit_token_check: bool = setting(
        False, "brokers serve only clients with a visit token, which this master issues"
    )
    start_produce_authenticate: bool = setting(
        False, "authenticate producers, here and (by their visit tokens) at brokers"
    )
    start_produce_authorize: bool = setting(
        False, "not supported, and refused: there is no list of producers", effect=False
    )
    start_consume_authenticate: bool = setting(
        False, "authenticate consumers, here and (by their visit tokens) at brokers"
    )
    start_consume_authorize: bool = setting(
        False, "brokers, too, refuse groups that may not consume a topic, and filter items"
    )
    visit_token_valid_period_ms: int = setting(
        5 * _MINUTE,
        "validity of a visit token; a new one is made after 4/5 of it, and brokers accept the last "
        "six",
        unit="ms",
    )
    auth_valid_time_stamp_period_ms: int = setting(
        20_000, "maximum clock difference of a client that signs", unit="ms"
    )
    need_broker_visit_auth: bool = setting(False, "authenticate brokers")
    visit_name: str = setting("", "user name that brokers authenticate with")
    visit_password: str = setting("", "password that brokers authenticate with")
    max_group_broker_consume_rate: int = setting(
        1000, "maximum number of brokers that serve one member of a group"
    )
    start_offset_reset_check: bool = setting(
        False, "only groups that are set up may choose their start offsets"
    )
    max_meta_force_update_period_ms: int = setting(
        3 * _MINUTE,
        "interval of sending all topic metadata to client-balanced groups again",
        unit="ms",
    )
    max_group_rebalance_wait_period: int = setting(2, "unused, as in the original", effect=False)
    max_auto_forbidden_cnt: int = setting(
        5, "brokers that are automatically closed for writes", effect=False
    )
    rebalance_parallel: int = setting(4, "threads that assign partitions", effect=False)
    row_lock_wait_dur_ms: int = setting(30_000, "time to get a lock", unit="ms", effect=False)
    rpc_read_timeout_ms: int = setting(10_000, "time for a request", unit="ms", effect=False)
    netty_write_buffer_high_water_mark: int = setting(
        10 << 20, "unsent bytes of one peer", unit="bytes", effect=False
    )
    netty_write_buffer_low_water_mark: int = setting(
        5 << 20, "unsent bytes of one peer", unit="bytes", effect=False
    )
    online_only_read_to_rw_period_ms: int = setting(
        2 * _MINUTE, "unused", name="onlineOnlyReadToRWPeriodMs", unit="ms", effect=False
    )
    offline_only_read_to_rw_period_ms: int = setting(
        30_000, "unused", name="offlineOnlyReadToRWPeriodMs", unit="ms", effect=False
    )
    step_chg_wait_period_ms: int = setting(12_000, "unused", unit="ms", effect=False)
    socket_send_buffer: int = setting(-1, "SO_SNDBUF", effect=False)
    socket_recv_buffer: int = setting(-1, "SO_RCVBUF", effect=False)
    web_resource_path: str = setting("", "pages of the original", effect=False)
    use_web_proxy: bool = setting(False, "pages of the original", effect=False)

    def waits(self) -> Waits:
        """Return the durations of the steps of a broker's start."""
        return Waits(self.subscribe_wait_ms / 1000, self.publish_wait_ms / 1000)

    def broker_account(self) -> tuple[str, str] | None:
        """Return the name and password of brokers."""
        return (self.visit_name, self.visit_password) if self.need_broker_visit_auth else None

    def check(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ConfigError: names the setting.
        """
        ranges = (
            ("port", self.port, 0, 65535),
            ("webPort", self.web_port, -1, 65535),
            ("tlsPort", self.tls_port, 0, 65535),
            ("consumerBalancePeriodMs", self.consumer_balance_period_ms, 10, 1 << 31),
            ("consumerHeartbeatTimeoutMs", self.consumer_heartbeat_timeout_ms, 100, 1 << 31),
            ("producerHeartbeatTimeoutMs", self.producer_heartbeat_timeout_ms, 100, 1 << 31),
            ("brokerHeartbeatTimeoutMs", self.broker_heartbeat_timeout_ms, 100, 1 << 31),
            ("subscribeWaitMs", self.subscribe_wait_ms, 0, 1 << 31),
            ("publishWaitMs", self.publish_wait_ms, 0, 1 << 31),
            ("visitTokenValidPeriodMs", self.visit_token_valid_period_ms, 3 * _MINUTE, 1 << 31),
            ("authValidTimeStampPeriodMs", self.auth_valid_time_stamp_period_ms, 5000, 2 * _MINUTE),
            ("maxGroupBrokerConsumeRate", self.max_group_broker_consume_rate, 1, 1 << 31),
            ("maxMetaForceUpdatePeriodMs", self.max_meta_force_update_period_ms, _MINUTE, 1 << 31),
        )
        check_ranges(ranges)
        if self.start_produce_authorize:
            raise ConfigError(
                "startProduceAuthorize=true: there is no list of producers, so nothing could be "
                "authorized; remove it, and use startProduceAuthenticate with accountsFile"
            )
        if self.need_broker_visit_auth and not (self.visit_name and self.visit_password):
            raise ConfigError("needBrokerVisitAuth=true: set visitName and visitPassword, too")
        if self.master_group and not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", self.master_group):
            raise ConfigError(
                f'masterGroup={self.master_group}: expected letters, digits, "_", "." and "-"'
            )
        if not self.conf_mod_auth_token or len(self.conf_mod_auth_token) > 128:
            raise ConfigError("confModAuthToken: expected 1 to 128 characters")
        check_host_name(self.host_name)


class MasterSettings(Settings):
    """The configuration of one master."""

    section_names = ("master", "etcd", "tls", "operation")

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.master = MasterConfig()
        self.etcd = EtcdConfig(etcd_prefix="/mq/tube")
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
        settings.finish(overrides)
        settings._guard()
        return settings

    def listen_host(self) -> str:
        """Return the address to listen on."""
        return listen_host(self.master.bind_address, self.master.host_name)

    def _guard(self) -> None:
        """Warn of settings without protection; raise ConfigError for an open port."""
        host, master = self.listen_host(), self.master
        if not master.need_broker_visit_auth and (
            master.start_visit_token_check
            or master.start_produce_authenticate
            or master.start_consume_authenticate
        ):
            log.warning(
                "brokers do not authenticate (needBrokerVisitAuth): a process that registers "
                "as one of them gets the visit tokens that clients are checked by"
            )
        if is_loopback(host):
            return
        if master.web_port >= 0 and master.conf_mod_auth_token in KNOWN_TOKENS:
            raise ConfigError(
                f"confModAuthToken is publicly known, and this master listens on {host}: "
                "set another, or webPort=-1"
            )
        open_to = [
            who
            for who, asked in (
                ("producers", master.start_produce_authenticate and master.accounts_file),
                ("consumers", master.start_consume_authenticate and master.accounts_file),
                ("brokers", master.need_broker_visit_auth),
            )
            if not asked
        ]
        if open_to:
            log.warning(
                "this master listens on %s and does not authenticate %s: any client may "
                "register, read and send (accountsFile, startProduceAuthenticate, "
                "startConsumeAuthenticate, needBrokerVisitAuth)",
                host,
                " and ".join(filter(None, (", ".join(open_to[:-1]), open_to[-1]))),
            )
