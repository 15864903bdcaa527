"""Configuration of a filter server: FiltersrvConfig of 4.2.0, its sandboxes, and the listener."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mq.client.errors import ClientError
from mq.client.transport.caller import parse_address
from mq.daemons.acl.networks import is_loopback
from mq.daemons.config import ConfigError, Section, Settings, log, read_file, setting
from mq.daemons.filtersrv.sandbox.process import Limits
from mq.daemons.host_addresses import LOOPBACK, parse_name_servers, resolve
from mq.daemons.operation_config import OperationConfig
from mq.daemons.remoting_config import NettyServerConfig
from mq.daemons.tls_config import TlsConfig

MEBIBYTE = 1024 * 1024

# In a file that belongs to the broker, these ports are the broker's.
_OF_THE_BROKER = ("listenPort", "metricsPort", "configStorePath")


@dataclass(frozen=True)
class FiltersrvConfig(Section):
    """The filter server itself."""

    rocketmq_home: str | None = setting(
        factory=lambda: os.environ.get("ROCKETMQ_HOME"),
        shown="$ROCKETMQ_HOME",
        doc="folder of the installation, which contains the ACL files",
    )
    namesrv_addr: str | None = setting(
        factory=lambda: os.environ.get("NAMESRV_ADDR"),
        shown="$NAMESRV_ADDR",
        doc="name servers; not used: the broker announces it to them",
        important=True,
    )
    connect_which_broker: str = setting(
        "127.0.0.1:10911",
        "the broker from which it pulls; with the broker's file (-c) 127.0.0.1 and its listenPort",
        important=True,
    )
    filter_server_ip: str = setting(
        "",
        "address announced to consumers; empty: brokerIP1 of the file, its listen address, or "
        "this host's own address",
        name="filterServerIP",
        important=True,
    )
    compress_msg_body_over_howmuch: int = setting(
        8192, "bodies of at least this size are compressed for consumers", unit="bytes"
    )
    zip_compress_level: int = setting(5, "level of that compression, 0 to 9")
    client_upload_filter_class_enable: bool = setting(
        False,
        "accept classes that consumers upload, and run them in sandboxes (true with Java, which "
        "runs them unprotected); false: classes are files in filterClassFolder",
        important=True,
    )
    filter_class_repertory_url: str = setting(
        "http://fsrep.tbsite.net/filterclass",
        "the source of Java's classes while uploads are off; here filterClassFolder",
        effect=False,
    )
    fs_server_async_semaphore_value: int = setting(
        2048, "limit of pulls in progress, and half of it for one class; more are refused"
    )
    fs_server_callback_executor_threads: int = setting(64, "threads that call back", effect=False)
    fs_server_worker_threads: int = setting(64, "threads that decode frames", effect=False)
    acl_enable: bool = setting(
        False, "check pulls and uploads by the accounts of the broker's ACL files"
    )
    acl_plain_file: str = setting(
        "conf/plain_acl.yml",
        "file of accounts, relative to rocketmqHome; conf/acl/*.yml are read, too",
        name="rocketmq.acl.plain.file",
    )
    broker_acl_file: str = setting(
        "",
        "file with the accessKey and secretKey that sign requests to the broker; a filter server "
        "started by its broker uses the key that the broker gave it",
    )
    filter_upload_accounts: str = setting(
        "",
        "with aclEnable: access keys, separated by ;, whose accounts may upload classes for topics "
        "and groups that they may read; *: every account; empty: only administrators",
    )


@dataclass(frozen=True)
class SandboxConfig(Section):
    """Classes and their limits. None of these settings has a Java name."""

    filter_class_folder: str = setting(
        factory=lambda: str(Path.home() / "filterclass"),
        shown="~/filterclass",
        doc="folder of NAME.py, with the class of that name, while uploads are off; checked every "
        "minute",
    )
    filter_class_max_bytes: int = setting(64 * 1024, "limit of a class's size", unit="bytes")
    filter_max_classes: int = setting(
        100, "limit of groups and topics with a class; more are refused"
    )
    filter_memory_max_bytes: int = setting(
        256 * MEBIBYTE, "limit of memory mapped by the sandbox of a class", unit="bytes", long=True
    )
    filter_held_max_bytes: int = setting(
        128 * MEBIBYTE,
        "limit of messages that wait for classes, in all pulls together, and a quarter of it for "
        "one class; above it pulls are refused",
        unit="bytes",
        long=True,
    )
    filter_load_millis: int = setting(
        3000, "limit of the time to compile and create a class", unit="ms"
    )
    filter_batch_millis: int = setting(
        1000, "limit of the time of a class for the messages of a pull, plus ...", unit="ms"
    )
    filter_message_millis: int = setting(
        20, "... this time for each message; above it the sandbox is ended", unit="ms"
    )

    @property
    def limits(self) -> Limits:
        return Limits(
            self.filter_memory_max_bytes,
            self.filter_load_millis / 1000,
            self.filter_batch_millis / 1000,
            self.filter_message_millis / 1000,
        )


class FiltersrvSettings(Settings):
    """The configuration of one filter server."""

    section_names = ("filtersrv", "sandbox", "server", "tls", "operation")

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        self.filtersrv = FiltersrvConfig()
        self.sandbox = SandboxConfig()
        self.server = NettyServerConfig(listen_port=0)
        self.tls = TlsConfig()
        self.operation = OperationConfig()
        self.listen_host = LOOPBACK

    @classmethod
    def load(cls, path: Path | None = None, overrides: Mapping[str, str] | None = None) -> Self:
        """Read defaults, then the file, which may be the broker's, then `overrides` by property
        name.

        Raises:
            ConfigError: the file or a value is invalid.
        """
        settings = cls(path)
        properties = read_file(path) if path is not None else {}
        port = properties.get("listenPort", "")
        if "connectWhichBroker" not in properties and port.strip() not in ("", "0"):
            properties["connectWhichBroker"] = f"{LOOPBACK}:{port.strip()}"
        if not properties.get("filterServerIP") and properties.get("brokerIP1"):
            properties["filterServerIP"] = properties["brokerIP1"]
        settings.apply({k: v for k, v in properties.items() if k not in _OF_THE_BROKER})
        settings.finish(overrides)
        settings._resolve_addresses()
        return settings

    def check_sections(self, sections: Mapping[str, Section]) -> None:
        super().check_sections(sections)
        own, sandbox = sections["filtersrv"], sections["sandbox"]
        assert isinstance(own, FiltersrvConfig)
        assert isinstance(sandbox, SandboxConfig)
        parse_name_servers(own.namesrv_addr or "")
        try:
            parse_address(own.connect_which_broker)
        except ClientError as error:
            raise ConfigError(f"connectWhichBroker={own.connect_which_broker}: {error}") from None
        if not 0 <= own.zip_compress_level <= 9:
            raise ConfigError(f"zipCompressLevel={own.zip_compress_level}: expected 0 to 9")
        for name, value in (
            ("compressMsgBodyOverHowmuch", own.compress_msg_body_over_howmuch),
            ("fsServerAsyncSemaphoreValue", own.fs_server_async_semaphore_value),
            ("filterClassMaxBytes", sandbox.filter_class_max_bytes),
            ("filterMaxClasses", sandbox.filter_max_classes),
            ("filterHeldMaxBytes", sandbox.filter_held_max_bytes),
            ("filterLoadMillis", sandbox.filter_load_millis),
            ("filterBatchMillis", sandbox.filter_batch_millis),
            ("filterMessageMillis", sandbox.filter_message_millis),
        ):
            if value < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")
        if sandbox.filter_memory_max_bytes < 64 * MEBIBYTE:
            raise ConfigError(
                f"filterMemoryMaxBytes={sandbox.filter_memory_max_bytes}: an interpreter needs "
                f"at least {64 * MEBIBYTE}"
            )

    def _resolve_addresses(self) -> None:
        """Determine the listen address and the address announced to consumers, like a broker."""
        own = self.filtersrv
        host, told = resolve(
            self.server.bind_address, own.filter_server_ip, is_guarded=own.acl_enable
        )
        self.listen_host = host
        self.filtersrv = own.replace(filter_server_ip=told)
        if not self.filtersrv.acl_enable and not is_loopback(host):
            log.warning(
                "ACCESS CONTROL IS OFF and the filter server listens on %s: any client that "
                "reaches it may read every topic%s (aclEnable=false)",
                host,
                " and upload classes" if self.filtersrv.client_upload_filter_class_enable else "",
            )
