"""Runs the loads for all brokers: Driver.java, and RealClient.java with the Java client."""

import hashlib
import json
import os
import resource
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import Daemon
from tests.interop.jvm import CACHE, JDK_FLAGS, compiled, jars

SOURCE = Path(__file__).with_name("Driver.java")
CLIENT = Path(__file__).with_name("RealClient.java")
CLIENT_RELEASE = "4.9.8"


@dataclass(frozen=True)
class Load:
    """A load of the driver. ``window`` is the number of requests that each connection keeps in
    flight, ``options`` are further options of the driver.
    """

    name: str
    mode: str
    connections: int
    window: int = 1
    options: tuple[str, ...] = ()

    def arguments(self, seconds: int, warm: int) -> list[str]:
        return [
            f"connections={self.connections}",
            f"window={self.window}",
            f"seconds={seconds}",
            f"warm={warm}",
            *self.options,
        ]


@dataclass(frozen=True)
class Figures:
    """The result of one run; latencies in milliseconds. ``total`` includes the warm-up."""

    total: int
    per_second: float
    p50: float
    p99: float
    p999: float
    cpu_per_million: float
    errors: dict[str, int]
    client_cores: float  # processors that the driver, or the client, used, including its start
    sent_per_second: float = 0.0  # in addition to the counted messages, while others are pulled


def run(broker: Daemon, load: Load, seconds: int, warm: int) -> Figures:
    """Run a load on a broker and measure its cost."""
    command = [*_command(), load.mode, broker.address, *load.arguments(seconds, warm)]
    return _watched(broker, command, seconds + warm)


def run_client(
    broker: Daemon, name_server: Daemon, options: tuple[str, ...], seconds: int, warm: int
) -> Figures:
    """Run a load by the Java client, which finds the broker by its name server."""
    folder = jars(f"client-{CLIENT_RELEASE}")
    path = os.pathsep.join((str(compiled(CLIENT_RELEASE, folder, CLIENT)), f"{folder}/*"))
    with tempfile.TemporaryDirectory() as home:
        command = ["java", *JDK_FLAGS, "-Xmx1g", f"-Duser.home={home}", "-cp", path, "RealClient"]
        command += [name_server.address, *options, f"seconds={seconds}", f"warm={warm}"]
        return _watched(broker, command, seconds + warm)


def _watched(broker: Daemon, command: list[str], seconds: int) -> Figures:
    own, broker_seconds = _children_seconds(), broker.cpu_seconds()
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    broker_seconds = broker.cpu_seconds() - broker_seconds
    result = json.loads(output)
    return Figures(
        result["total"],
        result["per_second"],
        result["p50_ms"],
        result["p99_ms"],
        result["p999_ms"],
        1e6 * broker_seconds / max(1, result["total"]),
        result["errors"],
        (_children_seconds() - own) / seconds,
        result.get("sent_per_second", 0.0),
    )


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory_with_connections(broker: Daemon, connections: int) -> float:
    """Return the private megabytes of a broker with this number of idle producers."""
    command = [*_command(), "idle", broker.address, f"connections={connections}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        if not process.stdout.readline():
            raise SystemExit(f"{broker.name} did not take {connections} connections")
        megabytes = broker.private_megabytes()
        process.stdin.close()
    return megabytes


def _command() -> list[str]:
    # The driver runs for seconds: the quick compiler and the small collector suit it.
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
    return ["java", *flags, "-cp", str(_compiled()), "Driver"]


def _compiled() -> Path:
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    folder = CACHE / f"driver-{digest}"
    if not folder.is_dir():
        partial = folder.with_suffix(".partial")
        subprocess.run(["javac", "-d", str(partial), str(SOURCE)], check=True)
        partial.rename(folder)
    return folder
