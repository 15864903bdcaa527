"""The real Java peers: a name server, a broker, mqadmin and small client programs.

Everything runs below a directory of the test (its HOME, store and logs), on its own ports, in a
process group that ends with the context manager or with this process.
"""

import os
import random
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.interop import archives
from tests.interop.jvm import (
    CACHE,
    HERE,
    JDK_FLAGS,
    SHORT_LIVED,
    compiled,
    jars,
    locked,
    write_home,
    write_properties,
)
from tests.interop.ports import free_port
from tests.interop.process import Process, die_with_parent

SERVER_RELEASES = ("4.9.7", "5.5.0")
CLIENT_RELEASES = ("4.9.8", "5.5.0")

# Otherwise a server creates a certificate, which takes more CPU time than the rest of its start.
# Clients that use TLS are tested against our daemons.
_WITHOUT_TLS = "-Dtls.server.mode=disabled"

_START_SECONDS = 90


def java_command(folder: Path, home: Path, heap: str, main: str, *classes: Path) -> list[str]:
    path = os.pathsep.join([archives.class_path(folder), *map(str, classes)])
    options = [f"-Xms{heap}", f"-Xmx{heap}", f"-Duser.home={home}", _WITHOUT_TLS]
    # 5.x searches it there before its jars, one of which prints pages of notices.
    options += [f"-Drmq.logback.configurationFile={home}/conf/rmq.logback.xml"]
    if main.endswith("Startup"):  # a killed daemon leaves a library of RocksDB, 13 MB
        options += [f"-Djava.io.tmpdir={home}"]
    flags = [*JDK_FLAGS, *SHORT_LIVED]
    return ["java", *flags, *_archive_options(folder), *options, "-cp", path, main]


_recorded: list[str] = []  # the option that makes JVMs record the classes they load


def _archive_options(folder: Path) -> list[str]:
    if not folder.name.startswith(("server-", "client-")):
        return []
    if _recorded:
        return _recorded
    with locked(CACHE / f"{folder.name}.jsa.lock"):
        if archives.is_wanted(folder):
            archives.make(folder, [*JDK_FLAGS, *SHORT_LIVED], lambda x: _load(folder.name, x))
    return archives.options(folder)


def _load(jars_of: str, recording: str) -> None:
    """Start the programs that use the jars, with a JVM option that records loaded classes."""
    kind, _, release = jars_of.partition("-")
    _recorded.append(recording)
    try:
        with tempfile.TemporaryDirectory() as name:
            tmp = Path(name)
            if kind == "client":
                with JavaProgram(release, "Client.java", "127.0.0.1:1", "JSON", tmp=tmp):
                    return
            with JavaNameServer(release, tmp) as server, JavaBroker(release, tmp, server.address):
                mqadmin(release, "topicList", "-n", server.address, tmp=tmp)
    finally:
        _recorded.clear()


class JavaNameServer(Process):
    """A Java name server of `release` ("4.9.7"), its files below `tmp`."""

    def __init__(
        self, release: str, tmp: Path, port: int | None = None, config: Mapping[str, object] = {}
    ) -> None:
        home = tmp / f"namesrv-{release}"
        self.release = release
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        write_home(home)
        write_properties(home / "namesrv.conf", {"listenPort": self.port, **config})
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        command = java_command(jars(f"server-{release}"), home, "256m", main)
        super().__init__([*command, "-c", str(home / "namesrv.conf")], home, "boot success")

    def start(self) -> None:
        super().start()
        socket.create_connection(("127.0.0.1", self.port), 30).close()


# A 5.5 broker loops without pause until this time has passed since its start, ten seconds by
# default (TransactionMetricsFlushService.run); and every second it compares a wheel of 38 MB byte
# by byte (TimerWheel.flush), which takes an eighth of a core. Three seconds after the last
# transaction that it ended, it loops again, taking a whole core until it stops (batchSendOpMessage
# of TransactionalMessageServiceImpl wants to run once that interval has passed since a queue was
# written, even if no message waits). Ended transactions need not wait for the interval if they fill
# a batch.
CALM_5 = {
    "transactionMetricFlushInterval": 300,
    "timerFlushIntervalMs": 30_000,
    "transactionOpBatchInterval": 3_600_000,
    "transactionOpMsgMaxSize": 1,
}


class JavaBroker(Process):
    """A Java broker of `release` ("4.9.7") registered with `namesrv`, with its files in `tmp`.

    `config` adds to or replaces the settings. `store` is the folder of the store (by default in
    `tmp`), so that a broker can start on a folder written by another. When `start` returns, it has
    registered with the name server (with an empty `namesrv` it has none), and answers queries about
    its runtime info.
    """

    def __init__(
        self,
        release: str,
        tmp: Path,
        namesrv: str,
        config: Mapping[str, object] = {},
        *,
        port: int | None = None,
        store: Path | None = None,
    ) -> None:
        self.release = release
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.name = str(config.get("brokerName", "java-broker"))
        self.namesrv = namesrv
        home = tmp / f"broker-{release}-{self.port}"
        self.store = store or home / "store"
        write_home(home)
        settings: dict[str, object] = {
            "brokerName": self.name,
            "brokerIP1": "127.0.0.1",
            "listenPort": self.port,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            # With Java's default size, a log file takes a gigabyte of a small test disk.
            "mappedFileSizeCommitLog": 64 << 20,
            # For a busy test machine: by default, a send that has waited for 200 ms is refused.
            "waitTimeMillsInSendQueue": 10_000,
            # Other tests cover refusals for a full disk.
            "diskMaxUsedSpaceRatio": 95,
            # It registers a new topic only once with name servers. A failure is repaired by the
            # next full registration, by default every half minute.
            "registerNameServerPeriod": 10_000,
            **(CALM_5 if release.startswith("5") else {}),
        }
        write_properties(home / "broker.conf", {**settings, **config})
        main = "org.apache.rocketmq.broker.BrokerStartup"
        command = java_command(jars(f"server-{release}"), home, "512m", main)
        arguments = ["-c", str(home / "broker.conf"), *(["-n", namesrv] if namesrv else [])]
        super().__init__([*command, *arguments], home, "boot success")

    def start(self) -> None:
        super().start()
        socket.create_connection(("127.0.0.1", self.port), 30).close()
        begin = time.monotonic()
        # In its first second it has no figures, and fails queries for them
        # (StoreStatsService.getPutTps).
        while b"NoSuchElementException" in _ask(self.address, _GET_BROKER_RUNTIME_INFO):
            if time.monotonic() - begin > _START_SECONDS:
                raise TimeoutError(f"{self.name} does not report its runtime info")
            time.sleep(0.05)
        # "boot success" is printed before a 5.x name server has processed the registration.
        urged = False
        for namesrv in filter(None, self.namesrv.split(";")):
            while self.name.encode() not in _ask(namesrv, _GET_BROKER_CLUSTER_INFO):
                waited = time.monotonic() - begin
                if waited > _START_SECONDS:
                    raise TimeoutError(f"{self.name} did not register with {namesrv}")
                if waited > 0.5 and not urged:
                    # A 5.x broker that has not yet read the list of name servers registers with
                    # none, and again only ten seconds later. This change makes it register at once
                    # (AdminBrokerProcessor.updateBrokerConfig).
                    urged = True
                    _ask(self.address, _UPDATE_BROKER_CONFIG, b"brokerPermission=6\n")
                time.sleep(0.05)


_UPDATE_BROKER_CONFIG = 25
_GET_BROKER_RUNTIME_INFO = 28
_GET_BROKER_CLUSTER_INFO = 106


def _ask(address: str, code: int, body: bytes = b"") -> bytes:
    """Return the raw response: this module shares no code with the tested one."""
    header = b'{"code":%d,"flag":0,"language":"JAVA","opaque":1,"version":409}' % code
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)))
        connection.sendall(header + body)
        with connection.makefile("rb") as answer:
            (length,) = struct.unpack(">i", answer.read(4))
            return answer.read(length)


def mqadmin(
    release: str, *args: str, tmp: Path | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run the Java mqadmin of `release` ("4.9.7", "5.5.0") and return its output."""
    home = tmp or CACHE / "mqadmin-home"
    with locked(CACHE / "mqadmin-home.lock"):
        write_home(home)
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    command = java_command(jars(f"server-{release}"), home, "256m", main)
    return _run([*command, *args], home, timeout)


def run_java(
    release: str, driver: str, *args: str, timeout: float = 90
) -> subprocess.CompletedProcess[str]:
    """Run `tests/interop/java/DRIVER` with the Java client of `release` ("4.9.8", "5.5.0")."""
    home = CACHE / "client-home"
    home.mkdir(parents=True, exist_ok=True)
    return _run([*_client_command(release, driver, home), *args], home, timeout)


def run_server_java(
    release: str, driver: str, *args: str, timeout: float = 90
) -> subprocess.CompletedProcess[str]:
    """Run `tests/interop/java/DRIVER` with the classes of the broker of `release` ("4.9.7")."""
    home = CACHE / "server-home"
    home.mkdir(parents=True, exist_ok=True)
    folder = jars(f"server-{release}")
    classes = compiled(f"server-{release}", folder, HERE / "java" / driver)
    command = java_command(folder, home, "256m", Path(driver).stem, classes)
    return _run([*command, *args], home, timeout)


class JavaProgram(Process):
    """A program of `tests/interop/java` that keeps running; it is ready when it prints READY.

    It ends when its standard input closes, or on `stop`.
    """

    def __init__(self, release: str, driver: str, *args: str, tmp: Path) -> None:
        home = tmp / f"{Path(driver).stem}-{release}-{random.randrange(1 << 32):08x}"
        super().__init__([*_client_command(release, driver, home), *args], home, "READY")


def _client_command(release: str, driver: str, home: Path) -> list[str]:
    folder = jars(f"client-{release}")
    classes = compiled(release, folder, HERE / "java" / driver)
    return java_command(folder, home, "128m", Path(driver).stem, classes)


def _run(command: list[str], home: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*die_with_parent(), *command],
        cwd=home,
        env={**os.environ, "HOME": str(home), "ROCKETMQ_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class JavaController(Process):
    """The only controller of its group, of `release` ("5.5.0"), with its files below `tmp`."""

    def __init__(self, release: str, tmp: Path) -> None:
        home = tmp / f"controller-{release}"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        write_home(home)
        settings = {
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self.address}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": home / "store",
            "mappedFileSize": 1 << 20,
        }
        write_properties(home / "controller.conf", settings)
        main = "org.apache.rocketmq.controller.ControllerStartup"
        command = java_command(jars(f"server-{release}"), home, "256m", main)
        super().__init__([*command, "-c", str(home / "controller.conf")], home, "boot success")

    def start(self) -> None:
        super().start()
        socket.create_connection(("127.0.0.1", self.port), 30).close()


class JavaContainer(Process):
    """A broker container of `release` ("5.5.0") without brokers, with its files below `tmp`."""

    def __init__(self, release: str, tmp: Path, namesrv: str) -> None:
        home = tmp / f"container-{release}"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        write_home(home)
        address = {"brokerContainerIP": "127.0.0.1", "listenPort": self.port}
        settings = {**address, "namesrvAddr": namesrv}
        write_properties(home / "container.conf", settings)
        main = "org.apache.rocketmq.container.BrokerContainerStartup"
        command = java_command(jars(f"container-{release}"), home, "512m", main)
        super().__init__([*command, "-c", str(home / "container.conf")], home, "boot success")

    def start(self) -> None:
        super().start()
        socket.create_connection(("127.0.0.1", self.port), 30).close()
