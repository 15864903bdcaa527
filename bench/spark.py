"""The Spark source and sink compared with Spark's own for Kafka: the same loads in turn, in one
run.

    make bench-spark [ARGS='--rows 50000 --rounds 1']

One Spark, local[2], reads one of our brokers and one of Kafka's that run at the same time, and the
files of our broker's store; for comparison the cost of the interface for Python sources alone is
measured, too. Progress goes to standard error, the tables (Markdown) to standard output.
bench/README.md explains how to read them.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bench import brokers, driver, spark_peers
from bench.brokers import Daemon
from bench.compare import say

TOPIC = "bench"  # Driver.java's
SIDES = ("Kafka", "mq", "mq files", "ceiling")
LOADS = {  # with the sides that take part
    "sum": SIDES,
    "parquet": SIDES,
    "parquet all": ("mq", "mq files"),
    "stream": ("Kafka", "mq", "ceiling"),
    "write": ("Kafka", "mq", "ceiling"),
    "write once": ("mq",),
}
TITLES = {
    "sum": "batch read to sum(length(body))",
    "parquet": "batch read to Parquet, six columns",
    "parquet all": "batch read to Parquet, all columns",
    "stream": "stream, availableNow, to sum(length(body))",
    "write": "batch write",
    "write once": "batch write, exactlyOnce",
}


@dataclass(frozen=True)
class Options:
    """The size of a measurement: rows, bytes per row, and rounds."""

    rows: int
    small_rows: int
    written: int
    rounds: int
    loads: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    """Medians of the rounds of one load."""

    per_second: float
    cpu_per_million: float  # of the broker that was read or written, in seconds
    megabytes: float


def measure(rows: int, size: int, loads: list[str], options: Options) -> dict[Any, Figures]:
    """Fill both brokers with bodies of `size` bytes and run the loads."""
    folder = Path(tempfile.mkdtemp(prefix="bench-spark-", dir=Path.cwd() / ".cache"))
    try:
        with ExitStack() as daemons:
            name_server = daemons.enter_context(brokers.our_name_server(folder))
            settings = {"namesrvAddr": name_server.address, "fileReservedTime": 720}
            ours = daemons.enter_context(brokers.our_broker(folder, settings))
            kafka = daemons.enter_context(spark_peers.kafka(folder))
            say(f"filling two brokers with {rows:,} x {size} B")
            stored = _fill(ours, rows, size)
            peers = {
                "mq": name_server.address,
                "kafka": kafka.address,
                "store": str(brokers.store_of(folder, ours)),
                "topic": TOPIC,
                "rows": stored,
                "size": size,
            }
            warm_up = _warm_up(loads, stored, options)
            given = {
                "folder": str(folder),
                "jars": [str(jar) for jar in _connector().glob("*.jar")],
                "processes": {"mq": ours.process, "Kafka": kafka.process},
                "peers": peers,
                "fill": stored,
                "loads": warm_up + _plan(loads, stored, options),
            }
            return _medians(_run(folder, given, len(warm_up)))
    finally:
        shutil.rmtree(folder)


def _connector() -> Path:
    return spark_peers.jars(f"spark-kafka-{spark_peers.SPARK}")


def _fill(broker: Daemon, rows: int, size: int) -> int:
    """Fill by single sends, to the eight queues in turn, with properties as from Java's clients."""
    load = driver.Load("fill", "send", 8, 128, ("properties=1", f"size={size}"))
    stored = 0
    while stored < rows:
        stored += driver.run(broker, load, 1, 0).total
    return stored


def _warm_up(loads: list[str], rows: int, options: Options) -> list[tuple[str, str, int]]:
    """Return the runs that are not counted. Kafka's topic was filled by a write of Spark's, ours
    was not.
    """
    plan = [(side, "sum", rows) for side in SIDES]
    if any(load.startswith("write") for load in loads):
        plan += [(side, "write", options.written) for side in LOADS["write"] if side != "Kafka"]
    return plan


def _plan(loads: list[str], rows: int, options: Options) -> list[tuple[str, str, int]]:
    """Return each load of each side in turn, round by round."""
    plan = []
    for load in loads:
        count = options.written if load.startswith("write") else rows
        plan += [(side, load, count) for _ in range(options.rounds) for side in LOADS[load]]
    return plan


def _run(folder: Path, given: dict[str, Any], uncounted: int) -> Iterator[dict[str, Any]]:
    file = folder / "loads.json"
    file.write_text(json.dumps(given))
    command = [str(spark_peers.python()), "-m", "bench.spark_loads", str(file)]
    environment = spark_peers.environment()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            result = json.loads(line)
            rate = result["rows"] / result["seconds"]
            say(f"{result['load']}, {result['whose']}: {rate:,.0f} rows/s")
            if number >= uncounted:
                yield result
    if process.returncode:
        raise SystemExit(f"Spark ended with status {process.returncode}")


def _medians(results: Iterator[dict[str, Any]]) -> dict[Any, Figures]:
    by_load: dict[Any, list[Figures]] = {}
    for each in results:
        figures = Figures(
            each["rows"] / each["seconds"], 1e6 * each["cpu"] / each["rows"], each["megabytes"]
        )
        by_load.setdefault((each["load"], each["whose"]), []).append(figures)
    return {
        key: Figures(
            statistics.median(each.per_second for each in some),
            statistics.median(each.cpu_per_million for each in some),
            max(each.megabytes for each in some),
        )
        for key, some in by_load.items()
    }


def rows_of(figures: dict[Any, Figures], what: str) -> list[list[str]]:
    """Return the lines of the table, one for each load."""
    lines = []
    for load in LOADS:
        found = {side: figures[load, side] for side in SIDES if (load, side) in figures}
        if not found:
            continue
        kafka, ours = found.get("Kafka"), found["mq"]
        rates = [f"{found[side].per_second:,.0f}" if side in found else "" for side in SIDES]
        ratio = f"{ours.per_second / kafka.per_second:.2f}" if kafka else ""
        cpu = " / ".join(f"{each.cpu_per_million:.2f}" for each in (kafka, ours) if each)
        sides = [found[side] for side in ("mq", "mq files") if side in found]
        memory = " / ".join(f"{each.megabytes:.0f}" for each in sides)
        lines.append([f"{TITLES[load]}, {what}", *rates, ratio, cpu, memory])
    return lines


def main() -> None:
    brokers.stop_on_sigterm()
    options = _options()
    Path(".cache").mkdir(exist_ok=True)
    lines = rows_of(measure(options.rows, 1024, list(options.loads), options), "1 KB")
    if options.small_rows:
        loads = [load for load in ("sum",) if load in options.loads]
        lines += rows_of(measure(options.small_rows, 100, loads, options), "100 B")
    versions = f"Spark {spark_peers.SPARK}, local[2]; Kafka {spark_peers.KAFKA}"
    print(f"{versions}; medians of {options.rounds} rounds, rows a second\n")
    names = ["load", *SIDES, "mq / Kafka", "broker CPU s per million: Kafka / mq"]
    print(tabulate(lines, [*names, "worker MB"], tablefmt="github", disable_numparse=True))


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 1 KB (2 million)")
    parser.add_argument("--small-rows", type=int, help="of 100 B (2.5 times --rows)")
    parser.add_argument("--written", type=int, help="rows of a write (half of --rows)")
    parser.add_argument("--rounds", type=int, default=3, help="of each load (3)")
    parser.add_argument("--only", default=",".join(LOADS), help=f"of {','.join(LOADS)}")
    given = parser.parse_args()
    loads = tuple(given.only.split(","))
    unknown = set(loads) - set(LOADS)
    if unknown:
        parser.error(f"--only: there is no load {', '.join(sorted(unknown))}")
    small = given.rows * 5 // 2 if given.small_rows is None else given.small_rows
    return Options(given.rows, small, given.written or given.rows // 2, given.rounds, loads)


if __name__ == "__main__":
    main()
