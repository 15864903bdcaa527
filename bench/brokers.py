"""The brokers and name servers that are compared: starts, observes and ends their processes."""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.jvm import JDK_FLAGS, jars, write_home, write_properties
from tests.interop.ports import free_port

RELEASE = "4.9.7"
START_SECONDS = 120.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")

# A request that any daemon answers, if only with an error.
_PING = b'{"code":106,"flag":0,"language":"OTHER","opaque":1,"version":409}'


def stop_on_sigterm() -> None:
    """Make SIGTERM end this program and its daemons, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


class Daemon:
    """One measured process, listening on ``port``."""

    def __init__(self, name: str, command: list[str], home: Path, port: int) -> None:
        self.name = name
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self._command = command
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> float:
        """Start it; returns the seconds from exec until the first answer to a request."""
        self._home.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "HOME": str(self._home), "ROCKETMQ_HOME": str(self._home)}
        # Compiled modules are kept, as in an installation of mq.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with open(self._home / "output", "ab") as output:
            started = time.perf_counter()
            self._process = subprocess.Popen(
                self._command, cwd=self._home, env=environment, stdout=output, stderr=output
            )
        while not self._answers():
            if self._process.poll() is not None or time.perf_counter() - started > START_SECONDS:
                tail = (self._home / "output").read_text()[-2000:]
                raise SystemExit(f"{self.name} does not serve:\n{tail}")
            time.sleep(0.002)
        return time.perf_counter() - started

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                connection.sendall(struct.pack(">ii", 4 + len(_PING), len(_PING)) + _PING)
                return bool(connection.recv(4))
        except OSError:
            return False

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def process(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def cpu_seconds(self) -> float:
        """User and system time since its start."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def private_megabytes(self) -> float:
        """Return its private memory: neither files nor shared (RssAnon)."""
        found = re.search(r"^RssAnon:\s+(\d+) kB$", self._proc("status"), re.M)
        assert found is not None
        return int(found[1]) / 1024

    def _proc(self, name: str) -> str:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/{name}").read_text()


def java_name_server(folder: Path) -> Daemon:
    home, port = folder / "java-namesrv", free_port()
    write_home(home)
    write_properties(home / "namesrv.properties", {"listenPort": port})
    main = ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(home / "namesrv.properties")]
    return Daemon("Java name server", _java(home, ["-Xms512m", "-Xmx512m"], main), home, port)


def our_name_server(folder: Path) -> Daemon:
    home, port = folder / "mq-namesrv", free_port()
    home.mkdir(parents=True)
    write_properties(home / "namesrv.properties", {"listenPort": port})
    command = [*_mq(), "namesrv", "-c", str(home / "namesrv.properties")]
    return Daemon("mq namesrv", command, home, port)


def java_broker(folder: Path, settings: dict[str, object], release: str = RELEASE) -> Daemon:
    home, port = folder / "java-broker", free_port()
    write_home(home)
    _write_broker_settings(home, port, settings)
    memory = ["-Xms2g", "-Xmx2g", "-XX:+UseG1GC"]
    main = ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(home / "broker.properties")]
    return Daemon(f"Java {release}", _java(home, memory, main, release), home, port)


def our_broker(folder: Path, settings: dict[str, object]) -> Daemon:
    home, port = folder / "mq-broker", free_port()
    home.mkdir(parents=True)
    _write_broker_settings(home, port, settings)
    command = [*_mq(), "broker", "-c", str(home / "broker.properties")]
    return Daemon("mq", command, home, port)


def store_of(folder: Path, broker: Daemon) -> Path:
    """Return the commit log's folder of a broker created here."""
    name = "mq-broker" if broker.name == "mq" else "java-broker"
    return folder / name / "store" / "commitlog"


def _write_broker_settings(home: Path, port: int, settings: dict[str, object]) -> None:
    store = home / "store"
    fixed = {
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
    }
    write_properties(home / "broker.properties", {**fixed, **settings})


def _java(home: Path, memory: list[str], main: list[str], release: str = RELEASE) -> list[str]:
    path = os.pathsep.join((str(home / "conf"), f"{jars(f'server-{release}')}/*"))
    options = [
        f"-Duser.home={home}",
        f"-Drmq.logback.configurationFile={home}/conf/rmq.logback.xml",
    ]
    return ["java", *JDK_FLAGS, *memory, *options, "-cp", path, *main]


def _mq() -> list[str]:
    return [sys.executable, "-m", "mq"]
