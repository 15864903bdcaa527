"""The Java mqadmin and ours on one cluster, for tests that compare their output."""

import atexit
import base64
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from tests.cli.support import Finished, Mq, without_starts
from tests.interop import peers
from tests.interop.jvm import compiled, jars, require_java, write_home
from tests.interop.ports import free_port
from tests.interop.process import Process

BROKER = "broker-a"
TOPIC = "CommandTopic"
GROUP = "CommandGroup"
IDLE_GROUP = "IdleCommandGroup"
MESSAGES = 9

# Parts that differ between two calls for the same state: durations and current rates.
MOVING = (
    re.compile(r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]"),  # brokerStatus: runtime
    re.compile(r"\d+\.\d\d(?= \d\.\d{4}$)", re.M),  # clusterList: hours
    re.compile(r"(?<=spentTimeMills=)\d+"),
    # Messages in a time span that ends at the call: they change with each call.
    re.compile(r"\d+\.\d\d(?=\(\d+,\d+ms\))"),  # clusterList: messages in and out per second
    re.compile(r"(?<=Consume TPS: )\d+\.\d+"),  # consumerProgress
    re.compile(r"(?<=Tps)( +: )[\d.E-]+ [\d.E-]+ [\d.E-]+$", re.M),
)


T = TypeVar("T")


def once(found: Callable[[], T], seconds: float = 60) -> T:
    """Return the result of `found` once it is true, or its last result.

    For work of Java's brokers after their responses, which has no event.
    """
    deadline = time.monotonic() + seconds
    while not (result := found()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return result


def masked(text: str) -> str:
    for pattern in MOVING:
        text = pattern.sub("<moving>", text)
    return text


class JavaTool(Process):
    """The Java mqadmin of `version`, ready to run commands."""

    def __init__(self, tmp: Path, version: str = "4.9.7") -> None:
        release = f"server-{version}"
        folder = jars(release)
        home = tmp / f"mqadmin-{version}"
        write_home(home)
        source = Path(__file__).parent / "java" / "Mqadmin.java"
        classes = compiled(release, folder, source)
        command = peers.java_command(folder, home, "256m", "Mqadmin", classes)
        super().__init__(command, home, "READY")
        self._done = 0
        self._turn = threading.Lock()

    def __call__(self, *arguments: str) -> str:
        with self._turn:
            self._done += 1
            self.write_line("\t".join(arguments))
            results = self.wait_for_line("RESULT ", 60, self._done)
        return base64.b64decode(results[self._done - 1].removeprefix("RESULT ")).decode()


_warm: dict[str, JavaTool] = {}


def warm_tool(version: str = "4.9.7") -> JavaTool:
    """The Java mqadmin of `version` shared by all tests of this process: it starts once."""
    if version not in _warm:
        folder = tempfile.TemporaryDirectory(prefix="mq-mqadmin-")
        tool = JavaTool(Path(folder.name), version)
        tool.start()
        atexit.register(folder.cleanup)
        atexit.register(tool.kill)
        _warm[version] = tool
    return _warm[version]


class Cluster:
    """A cluster with a topic, messages and groups, and the tools that query it.

    The Java tool is that of 4.9.7; that of 5.5.0 is started on demand.
    """

    def __init__(
        self,
        mq: Mq,
        namesrv: str,
        broker: str,
        release: str,
        home: Path,
    ) -> None:
        self.java = warm_tool()
        self.home = home
        self.mq = mq
        self.namesrv = namesrv
        self.broker = broker
        self.release = release

    @property
    def java_5(self) -> JavaTool:
        return warm_tool("5.5.0")

    def ours(self, *arguments: str) -> Finished:
        return self.mq(*arguments, "-n", self.namesrv)

    def theirs(self, *arguments: str) -> str:
        return self.java(*arguments, "-n", self.namesrv)

    def assert_same(
        self, *arguments: str, nonempty: bool = True, tool: JavaTool | None = None
    ) -> str:
        """Both tools print the same; `tool` is the Java one if it is not that of 4.9.7.

        Rates and counters of the broker may change between two calls: then both calls are repeated.
        """
        for _ in range(20):
            java = (tool or self.java)(*arguments, "-n", self.namesrv)
            ours = self.ours(*arguments)
            if masked(ours.out) == masked(java):
                break
        assert masked(ours.out) == masked(java)
        assert without_starts(ours.err) == []
        assert ours.status == 0
        assert bool(java) or not nonempty
        return ours.out


@contextmanager
def java_daemons(tmp: Path, release: str) -> Iterator[tuple[str, str]]:
    """A Java name server and broker; yields their addresses."""
    with (
        peers.JavaNameServer(release, tmp) as namesrv,
        peers.JavaBroker(release, tmp, namesrv.address, {"brokerName": BROKER}) as broker,
    ):
        yield namesrv.address, broker.address


@contextmanager
def our_daemons(tmp: Path, config: Mapping[str, str] = {}) -> Iterator[tuple[str, str]]:
    """Our name server and broker, in their own process; yields their addresses."""
    settings = [word for key, value in config.items() for word in ("--set", f"{key}={value}")]
    port, broker_port = free_port(), free_port()
    command = [sys.executable, "-m", "mq", "standalone", "--store", str(tmp / "store")]
    ports = ["--namesrv-port", str(port), "--broker-port", str(broker_port)]
    with Process([*command, *ports, *settings], tmp / "home", "registered with name server"):
        yield f"127.0.0.1:{port}", f"127.0.0.1:{broker_port}"


def fill(cluster: Cluster) -> None:
    """Create topics, messages with keys and tags, an active group and an idle one."""
    assert cluster.ours("updateTopic", "-c", "DefaultCluster", "-t", TOPIC).status == 0
    for group in (GROUP, IDLE_GROUP):
        made = cluster.ours("updateSubGroup", "-b", cluster.broker, "-g", group)
        assert made.status == 0
    for number in range(MESSAGES):
        sent = cluster.ours(
            "sendMessage", "-t", TOPIC, "-p", f"Grüße {number}", "-k", f"key{number} every",
            "-c", "TagA" if number % 2 else "TagB", "-b", BROKER, "-i", str(number % 3),
        )  # fmt: skip
        assert sent.status == 0, sent.err


def commit(cluster: Cluster) -> None:
    """Commit the consumer's position; the consumer itself commits only every five seconds."""
    with BlockingSession(cluster.namesrv) as session:
        admin = Admin(session)
        for queue in range(8):
            offset = run(admin.max_offset(cluster.broker, TOPIC, queue))
            run(admin.update_consumer_offset(cluster.broker, GROUP, TOPIC, queue, offset))


@contextmanager
def cluster_with_both_tools(release: str, tmp: Path) -> Iterator[Cluster]:
    """A cluster of `release` ("4.9.7", "5.5.0" or "ours") with messages, some of them consumed."""
    require_java()
    daemons = our_daemons(tmp) if release == "ours" else java_daemons(tmp, release)
    with ExitStack() as parts:
        namesrv, broker = parts.enter_context(daemons)
        cluster = Cluster(Mq(tmp / "config"), namesrv, broker, release, tmp)
        fill(cluster)
        consume = peers.JavaProgram("4.9.8", "Consume.java", namesrv, GROUP, TOPIC, tmp=tmp)
        parts.enter_context(consume).wait_for_line("GOT ", count=MESSAGES)
        commit(cluster)
        yield cluster
