"""The cost of commands: wall time of each, compared with the Java mqadmin, and the rates of long
ones.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import brokers
from bench.brokers import Daemon
from tests.interop.peers import mqadmin

RUNS = 15  # of each command; the median counts
JAVA_RUNS = 3
BROKERS = 20
EXPORTED_MESSAGES = 500_000
SETTLE_SECONDS = 3.0
TOPIC = "BenchCommands"

# Commands that query the name server or one broker, in words of both tools.
READS = (
    ("topicList",),
    ("topicRoute", "-t", TOPIC),
    ("topicStatus", "-t", TOPIC),
    ("clusterList",),
    ("brokerStatus", "-b", "{broker}"),
    ("getBrokerConfig", "-b", "{broker}"),
    ("consumerProgress",),
)
LOCAL = (("--version",), ("--help",))


def rows() -> list[list[str]]:
    """Return the milliseconds of each command, then the times for many brokers and many
    messages.
    """
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd() / ".cache"))
    try:
        with _cluster(folder, 1) as (name_server, daemons):
            time.sleep(SETTLE_SECONDS)
            _mq(name_server, "updateTopic", "-b", daemons[0].address, "-t", TOPIC)
            found = [_local_row(words) for words in LOCAL]
            found += [_row(name_server, daemons[0].address, words) for words in READS]
            found += _rates(folder, name_server)
        with _cluster(folder / "many", BROKERS) as (name_server, _):
            time.sleep(SETTLE_SECONDS)
            seconds = _median(name_server, ["clusterList"], RUNS)
            found.append(
                [f"clusterList over {BROKERS} brokers, ms", "", f"{seconds * 1e3:.0f}", ""]
            )
        return found
    finally:
        shutil.rmtree(folder)


@contextmanager
def _cluster(folder: Path, count: int) -> Iterator[tuple[str, list[Daemon]]]:
    """Run our name server with this number of our brokers."""
    with ExitStack() as running:
        name_server = running.enter_context(brokers.our_name_server(folder))
        daemons = []
        for number in range(count):
            settings: dict[str, object] = {"namesrvAddr": name_server.address}
            settings["brokerName"] = f"broker-{number:02d}"
            broker = brokers.our_broker(folder / f"{number}", settings)
            daemons.append(running.enter_context(broker))
        yield name_server.address, daemons


def _local_row(words: tuple[str, ...]) -> list[str]:
    return [f"mq {' '.join(words)}, ms", "", f"{_median('', list(words), RUNS) * 1e3:.0f}", ""]


def _row(name_server: str, broker: str, words: tuple[str, ...]) -> list[str]:
    """Measure a command that mqadmin has, too."""
    arguments = [word.format(broker=broker) for word in words]
    ours = _median(name_server, arguments, RUNS) * 1e3
    times = []
    for _ in range(JAVA_RUNS):
        began = time.perf_counter()
        mqadmin(brokers.RELEASE, *arguments, "-n", name_server)
        times.append(time.perf_counter() - began)
    theirs = statistics.median(times) * 1e3
    return [f"{words[0]}, ms", f"{theirs:.0f}", f"{ours:.0f}", f"{theirs / ours:.0f}"]


def _median(name_server: str, arguments: list[str], runs: int) -> float:
    times = []
    for _ in range(runs + 1):
        began = time.perf_counter()
        _mq(name_server, *arguments)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])  # the first may have compiled modules


def _rates(folder: Path, name_server: str) -> list[list[str]]:
    """Return the messages per second of `mq bench` sends and of `mq message export`."""
    shown = _mq(name_server, *("bench", "produce", "-t", TOPIC, "-d", "5", "-o", "json"))
    sent = json.loads(shown)["data"][0]["messagesPerSecond"]
    target = folder / "exported.jsonl"
    limit = str(EXPORTED_MESSAGES)
    began = time.perf_counter()
    _mq(name_server, "message", "export", str(target), "-t", TOPIC, "--limit", limit)
    seconds = time.perf_counter() - began
    with open(target, "rb") as file:
        count = sum(1 for _ in file)
    return [
        ["mq bench produce, 1 KB messages/s", "", f"{sent:,}", ""],
        ["mq message export, 1 KB messages/s", "", f"{count / seconds:,.0f}", ""],
    ]


def _mq(name_server: str, *arguments: str) -> str:
    """Run a command as a shell would; returns its output. Compiled modules are kept."""
    environment = {**os.environ, "NAMESRV_ADDR": name_server, "MQ_CONFIG_DIR": "/nonexistent"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [str(Path(sys.executable).with_name("mq")), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout
