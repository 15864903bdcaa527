"""Runs Driver.java, the load that every broker gets."""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.brokers import Daemon
from tests.interop.jvm import CACHE

SOURCE = Path(__file__).with_name("Driver.java")


@dataclass(frozen=True)
class Load:
    """What the driver does. ``window`` is what each connection keeps in flight, ``options`` are
    further ones of the driver's."""

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
    """What one run measured; latencies in milliseconds. ``total`` counts the warm-up too."""

    total: int
    per_second: float
    p50: float
    p99: float
    p999: float
    cpu_per_million: float
    errors: dict[str, int]


def run(broker: Daemon, load: Load, seconds: int, warm: int) -> Figures:
    """Drive a broker and watch what it costs."""
    before = broker.cpu_seconds()
    command = [*_command(), load.mode, broker.address, *load.arguments(seconds, warm)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    result: dict[str, Any] = json.loads(output)
    cpu = broker.cpu_seconds() - before
    return Figures(
        result["total"],
        result["per_second"],
        result["p50_ms"],
        result["p99_ms"],
        result["p999_ms"],
        1e6 * cpu / max(1, result["total"]),
        result["errors"],
    )


def memory_with_connections(broker: Daemon, connections: int) -> float:
    """Private megabytes of a broker that holds so many producers which do nothing."""
    command = [*_command(), "idle", broker.address, f"connections={connections}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        if not process.stdout.readline():
            raise SystemExit(f"{broker.name} did not take {connections} connections")
        megabytes = broker.private_megabytes()
        process.stdin.close()
    return megabytes


def _command() -> list[str]:
    # The driver lives for seconds: the quick compiler and the small collector suit it.
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
