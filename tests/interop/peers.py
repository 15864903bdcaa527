"""The real Java peers: their jars, a name server, a broker, mqadmin and small client programs.

Everything runs below a directory that the test gives (its HOME, store and logs), on ports of
its own, in a process group that ends with the context manager or with this process.
"""

import fcntl
import hashlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Self

import pytest

from mq.testing import is_free
from tests.interop import archives

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "java"
SERVER_RELEASES = ("4.9.7", "5.5.0")
CLIENT_RELEASES = ("4.9.8", "5.5.0")

# JDK 17 hides what these releases reach into.
JDK_FLAGS = """
--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED
--add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/jdk.internal.misc=ALL-UNNAMED
--add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util.concurrent=ALL-UNNAMED
--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED --add-exports=java.base/sun.nio.ch=ALL-UNNAMED
--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED
""".split()
# A test's peer lives for seconds: the quick compiler and the small collector start it sooner.
_SHORT_LIVED = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

_START_SECONDS = 90
_STOP_SECONDS = 30

_LOGBACK = b"""<configuration>
  <statusListener class="ch.qos.logback.core.status.NopStatusListener"/>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>${user.home}/peer.log</file><encoder><pattern>%d %-5level %msg%n</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="FILE"/></root>
</configuration>
"""


def require_java() -> None:
    """Skip the test when a JDK or Maven is missing; with CI=true fail instead."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if not missing:
        return
    reason = f"{', '.join(missing)} not found: apt-get install openjdk-17-jdk-headless maven"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that other test processes respect, so that work is done once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def jars(release: str) -> Path:
    """Return the folder of the jars of `release`, a pom's name such as `server-4.9.7`.

    Maven copies them into the cache on the first call. Skips as `require_java` does.
    """
    require_java()
    pom = HERE / "poms" / f"{release}.xml"
    folder = CACHE / release
    if not pom.is_file():
        raise ValueError(f"no pom for {release} in {pom.parent}")
    with _locked(CACHE / f"{release}.lock"):
        if not (folder.is_dir() and any(folder.glob("rocketmq-*.jar"))):
            partial = CACHE / f"{release}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            subprocess.run([*command, f"-DoutputDirectory={partial}"], check=True)
            partial.rename(folder)
    return folder


_SHARES = 48


def _share() -> int:
    """The number of a share of the ports that no other process has, until this one ends.

    Of whatever suite: several may run on a machine. With all shares taken two processes have one.
    """
    folder = Path(tempfile.gettempdir()) / f"mq-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for number in random.sample(range(_SHARES), _SHARES):
        file = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        return number  # its file stays open, and locked
    return random.randrange(_SHARES)


def _deck() -> Iterator[int]:
    """All ports for this process in a random order, again and again.

    Below those that the system gives to outgoing connections. None is asked for twice before all
    have been asked for.
    """
    ports = list(range(20_002 + 4 * _share(), 32_000, 4 * _SHARES))
    while True:
        random.shuffle(ports)
        yield from ports


_ports = _deck()


def free_port() -> int:
    """Return a port P such that P-2 (the broker's fast port), P and P+1 (its HA port) are free."""
    for port in islice(_ports, 500):
        if all(is_free(neighbour) for neighbour in range(port - 2, port + 2)):
            return port
    raise RuntimeError("no four free ports in a row between 20000 and 32000")


class Process:
    """A child process with its output read line by line; ends with the `with` block.

    `lines` holds what it printed (both streams). Ending is SIGKILL to the whole group: a test
    that wants a clean shutdown calls `stop` first.
    """

    def __init__(self, command: Sequence[str], home: Path, ready: str) -> None:
        self.command = list(command)
        self.home = home
        self.lines: list[str] = []
        self._ready = ready
        self._news = threading.Condition()
        self._ended = False
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it and return when it has printed the line that says it is ready."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._ended = False
        self.lines = []
        self._process = subprocess.Popen(
            [*_die_with_parent(), *self.command],
            cwd=self.home,
            env={**os.environ, "HOME": str(self.home), "ROCKETMQ_HOME": str(self.home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.wait_for_line(self._ready, _START_SECONDS)
        except BaseException:
            self.kill()
            raise

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for_line(self, text: str, timeout: float = 30, count: int = 1) -> list[str]:
        """Return the lines that contain `text` once there are `count`; TimeoutError otherwise."""

        def found() -> bool:
            return sum(text in line for line in self.lines) >= count

        with self._news:
            self._news.wait_for(lambda: found() or self._ended, timeout)
            if found():
                return [line for line in self.lines if text in line]
            printed = "\n".join(self.lines[-40:])
        state = "ended" if self._ended else f"has run {timeout:.0f} s"
        raise TimeoutError(f"{self.command[-1]} {state} without {count} of {text!r}:\n{printed}")

    def write_line(self, text: str) -> None:
        """Write a line to its standard input."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def pause(self) -> None:
        """Let it stand still (SIGSTOP): its machine goes on to acknowledge what arrives."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on where it stood."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def stop(self, timeout: float = _STOP_SECONDS) -> int:
        """Ask it to end (SIGTERM: Java runs its shutdown hooks) and return the exit status."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(timeout)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the whole group at once (SIGKILL) and reap it. Safe to call again."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        if self._reader is not None:
            self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass  # what it had not read when it ended
        self._process = None

    @property
    def pid(self) -> int:
        """The process id; for tests that send signals of their own."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


def _die_with_parent() -> list[str]:
    """A prefix that ends the child when this process is killed, where util-linux has it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def _java(folder: Path, home: Path, heap: str, main: str, *classes: Path) -> list[str]:
    path = os.pathsep.join([archives.class_path(folder), *map(str, classes)])
    options = [f"-Xms{heap}", f"-Xmx{heap}", f"-Duser.home={home}"]
    # Where 5.x looks for it before its jars, in which is one that prints pages of notices.
    options += [f"-Drmq.logback.configurationFile={home}/conf/rmq.logback.xml"]
    flags = [*JDK_FLAGS, *_SHORT_LIVED]
    return ["java", *flags, *_archive_options(folder), *options, "-cp", path, main]


_recorded: list[str] = []  # the option that has JVMs write down what they load


def _archive_options(folder: Path) -> list[str]:
    if not folder.name.startswith(("server-", "client-")):
        return []
    if _recorded:
        return _recorded
    with _locked(CACHE / f"{folder.name}.jsa.lock"):
        if archives.is_wanted(folder):
            archives.make(folder, [*JDK_FLAGS, *_SHORT_LIVED], lambda x: _load(folder.name, x))
    return archives.options(folder)


def _load(jars_of: str, recording: str) -> None:
    """Start what uses the jars, with a JVM option that writes down the classes it loads."""
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


def write_home(home: Path) -> None:
    """Make a ROCKETMQ_HOME: nothing but where and how much the programs log."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    # The first three are read by 4.9, the last by 5.x: `_java` says where it is.
    names = ("logback_broker.xml", "logback_namesrv.xml", "logback_tools.xml", "rmq.logback.xml")
    for name in names:
        (conf / name).write_bytes(_LOGBACK)


def write_properties(path: Path, settings: Mapping[str, object]) -> None:
    """Write a properties file, for -c."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


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
        command = _java(jars(f"server-{release}"), home, "256m", main)
        super().__init__([*command, "-c", str(home / "namesrv.conf")], home, "boot success")

    def start(self) -> None:
        super().start()
        socket.create_connection(("127.0.0.1", self.port), 5).close()


# A broker of 5.5 turns in a loop until this has passed since its start, ten seconds by default
# (TransactionMetricsFlushService.run); and each second it compares a wheel of 38 MB byte by byte
# (TimerWheel.flush), which takes an eighth of a core.
_CALM_5 = {"transactionMetricFlushInterval": 300, "timerFlushIntervalMs": 30_000}


class JavaBroker(Process):
    """A Java broker of `release` ("4.9.7") registered with `namesrv`, its files below `tmp`.

    `config` adds to or replaces the settings; the store is `store` (by default in `tmp`), so
    that a broker can be started on the directory that another one has written. It has
    registered with the name server when `start` returns; with an empty `namesrv` it has none.
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
            # A log file of Java's default size takes a gigabyte of a small test disk.
            "mappedFileSizeCommitLog": 64 << 20,
            # A busy test machine: by default a send that has waited 200 ms is refused.
            "waitTimeMillsInSendQueue": 10_000,
            # Refusals for a full disk have tests of their own.
            "diskMaxUsedSpaceRatio": 95,
            **(_CALM_5 if release.startswith("5") else {}),
        }
        write_properties(home / "broker.conf", {**settings, **config})
        main = "org.apache.rocketmq.broker.BrokerStartup"
        command = _java(jars(f"server-{release}"), home, "512m", main)
        arguments = ["-c", str(home / "broker.conf"), *(["-n", namesrv] if namesrv else [])]
        super().__init__([*command, *arguments], home, "boot success")

    def start(self) -> None:
        super().start()
        socket.create_connection(("127.0.0.1", self.port), 5).close()
        # "boot success" is printed before a 5.x name server has worked off the registration.
        begin = time.monotonic()
        urged = False
        for namesrv in filter(None, self.namesrv.split(";")):
            while self.name.encode() not in _ask(namesrv, _GET_BROKER_CLUSTER_INFO):
                waited = time.monotonic() - begin
                if waited > _START_SECONDS:
                    raise TimeoutError(f"{self.name} did not register with {namesrv}")
                if waited > 0.5 and not urged:
                    # One of 5.x that has not looked yet which name servers there are registers
                    # with none, and again ten seconds later. After this change it does at once
                    # (AdminBrokerProcessor.updateBrokerConfig).
                    urged = True
                    _ask(self.address, _UPDATE_BROKER_CONFIG, b"brokerPermission=6\n")
                time.sleep(0.05)


_UPDATE_BROKER_CONFIG = 25
_GET_BROKER_CLUSTER_INFO = 106


def _ask(address: str, code: int, body: bytes = b"") -> bytes:
    """The answer to a request, raw: this module shares nothing with what it tests."""
    header = b'{"code":%d,"flag":0,"language":"JAVA","opaque":1,"version":409}' % code
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 5) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)))
        connection.sendall(header + body)
        with connection.makefile("rb") as answer:
            (length,) = struct.unpack(">i", answer.read(4))
            return answer.read(length)


def mqadmin(
    release: str, *args: str, tmp: Path | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run the Java mqadmin of `release` ("4.9.7", "5.5.0") and return what it printed."""
    home = tmp or CACHE / "mqadmin-home"
    with _locked(CACHE / "mqadmin-home.lock"):
        write_home(home)
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    command = _java(jars(f"server-{release}"), home, "256m", main)
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
    classes = _compiled(f"server-{release}", folder, HERE / "java" / driver)
    command = _java(folder, home, "256m", Path(driver).stem, classes)
    return _run([*command, *args], home, timeout)


class JavaProgram(Process):
    """A driver of `tests/interop/java` that keeps running; it is ready when it prints READY.

    It ends by itself when its standard input closes or on `stop`.
    """

    def __init__(self, release: str, driver: str, *args: str, tmp: Path) -> None:
        home = tmp / f"{Path(driver).stem}-{release}-{random.randrange(1 << 32):08x}"
        super().__init__([*_client_command(release, driver, home), *args], home, "READY")


def _client_command(release: str, driver: str, home: Path) -> list[str]:
    folder = jars(f"client-{release}")
    classes = _compiled(release, folder, HERE / "java" / driver)
    return _java(folder, home, "128m", Path(driver).stem, classes)


def _compiled(release: str, folder: Path, source: Path) -> Path:
    """Compile `source` once per content; the name of the folder tells the content."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    target = CACHE / f"classes-{release}" / f"{source.stem}-{digest}"
    with _locked(CACHE / f"classes-{release}.lock"):
        if not target.is_dir():
            partial = target.with_suffix(".partial")
            command = ["javac", "-nowarn", "-cp", f"{folder}/*", "-d", str(partial), str(source)]
            subprocess.run(command, check=True)
            partial.rename(target)
    return target


def _run(command: list[str], home: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_die_with_parent(), *command],
        cwd=home,
        env={**os.environ, "HOME": str(home), "ROCKETMQ_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class JavaController(Process):
    """A controller of `release` ("5.5.0") that is alone in its group, its files below `tmp`."""

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
        command = _java(jars(f"server-{release}"), home, "256m", main)
        super().__init__([*command, "-c", str(home / "controller.conf")], home, "boot success")

    def start(self) -> None:
        super().start()
        socket.create_connection(("127.0.0.1", self.port), 5).close()


class JavaContainer(Process):
    """A broker container of `release` ("5.5.0") without a broker, its files below `tmp`."""

    def __init__(self, release: str, tmp: Path, namesrv: str) -> None:
        home = tmp / f"container-{release}"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        write_home(home)
        address = {"brokerContainerIP": "127.0.0.1", "listenPort": self.port}
        settings = {**address, "namesrvAddr": namesrv}
        write_properties(home / "container.conf", settings)
        main = "org.apache.rocketmq.container.BrokerContainerStartup"
        command = _java(jars(f"container-{release}"), home, "512m", main)
        super().__init__([*command, "-c", str(home / "container.conf")], home, "boot success")

    def start(self) -> None:
        super().start()
        socket.create_connection(("127.0.0.1", self.port), 5).close()
