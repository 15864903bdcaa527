"""This broker compared with the Java one: the same loads in turn, on the same machine, in one run.

    make bench [ARGS='--rounds 5 --only send,pull']

Both brokers run at the same time, and one is idle while the other is measured, so that each load
reaches both within seconds: the machine is noisy and only ratios are meaningful. Progress goes to
standard error, the tables (Markdown) to standard output. bench/README.md explains how to read them.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from bench import brokers, commands, driver, latency, overload, replication, scale, slave
from bench.brokers import Daemon
from bench.driver import Figures, Load

REAL = ("properties=2",)  # as in a Java producer's messages
SEND = [
    Load("send 8 x 128", "send", 8, 128, REAL),
    Load("send 64 x 1", "send", 64, 1, REAL),
    Load("send 16 x 1", "send", 16, 1, REAL),
    Load("send 1 x 1", "send", 1, 1, REAL),
    Load("send 100 B, 8 x 128", "send", 8, 128, (*REAL, "size=100")),
    Load("send 4 KB, 8 x 128", "send", 8, 128, (*REAL, "size=4096")),
    Load("send batches of 32, 8 x 4", "send", 8, 4, (*REAL, "messages=32")),
]
PULL = [Load("pull 32, 4 x 1", "pull", 4)]
# A pull waits at the end of each queue while messages are sent at this rate, or at full speed.
FOLLOW = [
    Load("pull behind 20,000/s", "follow", 8, 2048, (*REAL, "rate=20000")),
    Load("pull behind sends 8 x 128", "follow", 8, 128, REAL),
]
SYNC = [
    Load("sync flush 8 x 128", "send", 8, 128, REAL),
    Load("sync flush 64 x 1", "send", 64, 1, REAL),
    Load("sync flush 1 x 1", "send", 1, 1, REAL),
]
FILTER = Load("pull 32, SQL92, 4 of 10 match", "pull", 4, options=("sql=1",))
FILTERED_MESSAGES = 1_000_000
CLIENT = {
    "Java client, 64 threads": ("threads=64",),
    "Java client, 64 threads, until a group has it": ("threads=64", "push=1"),
}
PARTS = (
    "start",
    "send",
    "pull",
    "follow",
    "idle",
    "sync",
    "replication",
    "slave",
    "latency",
    "overload",
    "client",
    "filter",
    "restart",
    "scale",
    "commands",
)
IDLE_CONNECTIONS = 1000
RESTART_GIGABYTES = 3
SETTLE_SECONDS = 5.0
# Time after which Java's compilers have optimized a code path.
WARM_UP_SECONDS = 15


@dataclass(frozen=True)
class Options:
    rounds: int
    seconds: int
    warm: int
    parts: tuple[str, ...]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def both_brokers(**settings: object) -> Iterator[tuple[Path, Daemon, Daemon]]:
    """Run Java's broker and ours, on stores of their own that are deleted after the measurement."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd() / ".cache"))
    java = brokers.java_broker(folder, settings)
    ours = brokers.our_broker(folder, settings)
    try:
        with java, ours:
            yield folder, java, ours
    finally:
        shutil.rmtree(folder)


def measure(pair: tuple[Daemon, Daemon], load: Load, options: Options) -> list[Figures]:
    """Return the median round of each broker, by messages per second."""
    runs: list[list[Figures]] = [[], []]
    for number in range(options.rounds):
        for broker, figures in zip(pair, runs, strict=True):
            one = driver.run(broker, load, options.seconds, options.warm)
            figures.append(one)
            say(
                f"{load.name}, round {number + 1}: {broker.name} {one.per_second:,.0f}/s"
                f"{f' of {one.sent_per_second:,.0f}/s sent' if one.sent_per_second else ''},"
                f" p99 {one.p99:.2f} ms{', errors ' + str(one.errors) if one.errors else ''}"
            )
    ordered = [sorted(figures, key=lambda one: one.per_second) for figures in runs]
    return [figures[len(figures) // 2] for figures in ordered]


def load_row(name: str, theirs: Figures, ours: Figures) -> list[str]:
    return [
        name,
        f"{theirs.per_second:,.0f}",
        f"{ours.per_second:,.0f}",
        f"{ours.per_second / max(1, theirs.per_second):.2f}",
        *(
            f"{getattr(theirs, percentile):.2f} / {getattr(ours, percentile):.2f}"
            for percentile in ("p50", "p99", "p999")
        ),
        f"{theirs.cpu_per_million:.1f} / {ours.cpu_per_million:.1f}",
        f"{theirs.client_cores:.1f} / {ours.client_cores:.1f}",
        f"{sum(theirs.errors.values())} / {sum(ours.errors.values())}",
    ]


def load_rows(
    loads: list[Load], pair: tuple[Daemon, Daemon], options: Options
) -> Iterator[list[str]]:
    for load in loads:
        theirs, ours = measure(pair, load, options)
        yield load_row(load.name, theirs, ours)


def warm_up(pair: tuple[Daemon, Daemon], load: Load) -> None:
    """Let Java's compilers optimize the code: a fresh broker is not representative."""
    for broker in pair:
        figures = driver.run(broker, load, WARM_UP_SECONDS, 0)
        say(f"{load.name}, not warm yet: {broker.name} {figures.per_second:,.0f}/s")


def start_rows(options: Options) -> list[list[str]]:
    """Return the seconds from exec to the first answer, and private memory a few seconds later."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd() / ".cache"))
    rows = []
    try:
        for what, makers in (
            ("name server", (brokers.java_name_server, brokers.our_name_server)),
            ("broker", (lambda f: brokers.java_broker(f, {}), lambda f: brokers.our_broker(f, {}))),
        ):
            seconds, megabytes = [], []
            for make in makers:
                daemon: Daemon = make(folder)
                starts = [_time_start(daemon) for _ in range(max(3, options.rounds))]
                seconds.append(statistics.median(starts))
                with daemon:
                    time.sleep(SETTLE_SECONDS)
                    megabytes.append(daemon.private_megabytes())
                say(f"{daemon.name}: {seconds[-1]:.2f} s, {megabytes[-1]:.0f} MB")
            rows.append(_row(f"{what}: start, s", seconds, "{:.2f}"))
            rows.append(_row(f"{what}: private memory idle, MB", megabytes, "{:.0f}"))
    finally:
        shutil.rmtree(folder)
    return rows


def _time_start(daemon: Daemon) -> float:
    seconds = daemon.start()
    daemon.kill()
    return seconds


def idle_row(pair: tuple[Daemon, Daemon]) -> list[str]:
    megabytes = [driver.memory_with_connections(broker, IDLE_CONNECTIONS) for broker in pair]
    say(f"{IDLE_CONNECTIONS} idle connections: {megabytes[0]:.0f} and {megabytes[1]:.0f} MB")
    name = f"private memory with {IDLE_CONNECTIONS:,} idle connections after the loads, MB"
    return _row(name, megabytes, "{:.0f}")


def client_rows(options: Options) -> Iterator[list[str]]:
    """Measure each broker with the Java client, which finds it by one of our name servers."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd() / ".cache"))
    try:
        with ExitStack() as daemons:
            pairs = []
            for make in (brokers.java_broker, brokers.our_broker):
                server = brokers.our_name_server(folder / make.__name__)
                daemons.enter_context(server)
                broker = make(folder, {"namesrvAddr": server.address})
                daemons.enter_context(broker)
                pairs.append((broker, server))
            for name, given in CLIENT.items():
                found = []
                for broker, server in pairs:
                    one = driver.run_client(broker, server, given, options.seconds, WARM_UP_SECONDS)
                    say(f"{name}: {broker.name} {one.per_second:,.0f}/s")
                    found.append(one)
                yield load_row(name, *found)
    finally:
        shutil.rmtree(folder)


def filter_rows(options: Options) -> list[list[str]]:
    """Measure pulls whose filter the broker evaluates on the properties of a million messages."""
    fill = Load("fill", "send", 8, 128, ("properties=1", "size=100"))
    with both_brokers(enablePropertyFilter="true") as (_, java, ours):
        for broker in (java, ours):
            stored = 0
            while stored < FILTERED_MESSAGES:
                stored += driver.run(broker, fill, 2, 0).total
        return list(load_rows([FILTER], (java, ours), options))


def restart_row(options: Options) -> list[str]:
    """Measure the seconds to the first answer after SIGKILL with this number of gigabytes in the
    log.
    """
    with both_brokers() as (folder, *pair):
        seconds = []
        for broker in pair:
            log = brokers.store_of(folder, broker)
            while sum(file.stat().st_blocks * 512 for file in log.iterdir()) < (
                RESTART_GIGABYTES << 30
            ):
                driver.run(broker, SEND[0], 2, 0)
            broker.kill()
            seconds.append(broker.start())
            say(f"restart of {broker.name} after SIGKILL: {seconds[-1]:.2f} s")
            broker.kill()
    return _row(
        f"restart after SIGKILL with {RESTART_GIGABYTES} GB in the log, s", seconds, "{:.2f}"
    )


def _row(name: str, values: list[float], form: str) -> list[str]:
    theirs, ours = values
    return [name, form.format(theirs), form.format(ours), f"{theirs / ours:.1f}"]


def main() -> None:
    brokers.stop_on_sigterm()
    options = _options()
    Path(".cache").mkdir(exist_ok=True)
    loads: list[list[str]] = []
    single: list[list[str]] = []
    measured: Callable[[str], bool] = options.parts.__contains__
    if measured("start"):
        single += start_rows(options)
    if any(map(measured, ("send", "pull", "follow", "idle"))):
        with both_brokers() as (_, *pair):
            java, ours = pair
            warm_up((java, ours), SEND[0])
            chosen = {"send": SEND, "pull": PULL, "follow": FOLLOW}
            for part, its_loads in chosen.items():
                if measured(part):
                    loads += load_rows(its_loads, (java, ours), options)
            if measured("idle"):
                single.append(idle_row((java, ours)))
    if measured("sync"):
        with both_brokers(flushDiskType="SYNC_FLUSH") as (_, java, ours):
            warm_up((java, ours), SYNC[0])
            loads += load_rows(SYNC, (java, ours), options)
    if measured("replication"):
        for role, its_loads in (
            ("SYNC_MASTER", replication.SYNC_LOADS),
            ("ASYNC_MASTER", replication.ASYNC_LOADS),
        ):
            with replication.both_pairs(role) as both:
                warm_up(both, its_loads[0])
                loads += load_rows(its_loads, both, options)
    if measured("slave"):
        single += slave.rows(options.seconds, say)
    if measured("latency"):
        with both_brokers() as (_, java, ours):
            warm_up((java, ours), SEND[0])
            for name, *found in latency.runs((java, ours), SEND[0], options.seconds, say):
                loads.append(load_row(name, *found))
    if measured("overload"):
        with both_brokers() as (_, java, ours):
            warm_up((java, ours), SEND[0])
            for name, (theirs, mine) in overload.runs((java, ours), SEND[0], options.seconds, say):
                loads.append(load_row(name, theirs, mine))
    if measured("client"):
        loads += client_rows(options)
    if measured("filter"):
        loads += filter_rows(options)
    if measured("restart"):
        single.append(restart_row(options))
    if measured("scale"):
        single += scale.rows()
    if measured("commands"):
        single += commands.rows()
    _print(loads, single, options)


def _print(loads: list[list[str]], single: list[list[str]], options: Options) -> None:
    if loads:
        print(
            f"1 KB bodies; medians of {options.rounds} rounds of {options.seconds} s; Java / mq\n"
        )
        names = ["load", f"Java {brokers.RELEASE}/s", "mq/s", "ratio"]
        names += ["p50 ms", "p99 ms", "p99.9 ms", "CPU s per million", "client cores", "errors"]
        print(tabulate(loads, names, tablefmt="github", disable_numparse=True), end="\n\n")
    if single:
        names = ["", f"Java {brokers.RELEASE}", "mq", "times less"]
        print(tabulate(single, names, tablefmt="github", disable_numparse=True))


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each load (3)")
    parser.add_argument("--seconds", type=int, default=5, help="measured in a round (5)")
    parser.add_argument("--warm", type=int, default=2, help="seconds before, not measured (2)")
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {','.join(PARTS)}")
    given = parser.parse_args()
    parts = tuple(given.only.split(","))
    unknown = set(parts) - set(PARTS)
    if unknown:
        parser.error(f"--only: there is no part {', '.join(sorted(unknown))}")
    return Options(given.rounds, given.seconds, given.warm, parts)


if __name__ == "__main__":
    main()
