"""A slave of a master at full speed, and an empty one that catches up."""

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import brokers, driver
from bench.brokers import Daemon
from bench.driver import Load
from mq.client.admin import Admin
from mq.client.errors import RemoteSystemError
from mq.client.transport.session import Session

GIGABYTES = 10  # the log with which an empty slave catches up
FULL_SPEED = Load("send 8 x 128", "send", 8, 128, ("properties=2",))
FILLING = Load("send batches of 32, 8 x 4", "send", 8, 4, ("properties=2", "messages=32"))
_FILLED_AT_ONCE = 5  # seconds
_POLL_SECONDS = 0.05
_CATCH_UP_SECONDS = 600.0

Make = Callable[[Path, dict[str, object]], Daemon]


@dataclass
class Found:
    """The measurements of one master and its slave."""

    alone: float  # CPU seconds of the master per million messages
    with_slave: float
    rate: float  # messages per second with the slave
    lags: list[float]  # ms
    caught_up: float  # MB/s


def rows(seconds: int, say: Callable[[str], None]) -> list[list[str]]:
    """Return rows of single figures: the lag, the cost of the slave for the master, the catch-up
    rate.
    """
    both = []
    for make in (brokers.java_broker, brokers.our_broker):
        found = measure(make, seconds)
        both.append(found)
        say(f"{make.__name__}: {found.rate:,.0f}/s with a slave, catches up {found.caught_up:.0f}")
    return [
        _row("lag of a slave at full speed, ms, median", both, lambda one: _median(one.lags)),
        _row("lag of a slave at full speed, ms, most", both, lambda one: max(one.lags)),
        _row("CPU s per million of a master alone", both, lambda one: one.alone),
        _row("CPU s per million of a master with a slave", both, lambda one: one.with_slave),
        _row(f"an empty slave catches up {GIGABYTES} GB, MB/s", both, lambda one: one.caught_up),
    ]


def _row(name: str, both: list[Found], value: Callable[[Found], float]) -> list[str]:
    theirs, ours = map(value, both)
    return [name, f"{theirs:.1f}", f"{ours:.1f}", f"{theirs / ours:.2f}"]


def _median(values: list[float]) -> float:
    return statistics.median(values)


def measure(make: Make, seconds: int) -> Found:
    """Fill a master, which also warms it up; one slave catches up, and then follows it."""
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path.cwd() / ".cache"))
    try:
        with ExitStack() as running:
            master = running.enter_context(make(folder / "master", {"brokerRole": "ASYNC_MASTER"}))
            while asyncio.run(_end_of_log(master)) < GIGABYTES << 30:
                driver.run(master, FILLING, _FILLED_AT_ONCE, 0)
            alone = driver.run(master, FULL_SPEED, seconds, 1)
            slave = make(
                folder / "slave",
                {
                    "brokerRole": "SLAVE",
                    "brokerId": 1,
                    "haMasterAddress": f"127.0.0.1:{master.port + 1}",
                },
            )
            running.enter_context(slave)
            caught_up = asyncio.run(_catch_up(master, slave))
            lags, figures = asyncio.run(_load_and_watch(master, slave, seconds))
        return Found(
            alone.cpu_per_million, figures.cpu_per_million, figures.per_second, lags, caught_up
        )
    finally:
        shutil.rmtree(folder)


async def _catch_up(master: Daemon, slave: Daemon) -> float:
    """Return the MB/s from the first bytes of a slave to the end of its master's log."""
    end = await _end_of_log(master)
    async with asyncio.timeout(_CATCH_UP_SECONDS):
        first = await _reached(slave, 1)
        began = time.perf_counter()
        await _reached(slave, end)
    return (end - first) / 1e6 / (time.perf_counter() - began)


async def _reached(broker: Daemon, offset: int) -> int:
    """Wait until the log reaches an offset; returns its end."""
    while True:
        end = await _end_of_log(broker)
        if end >= offset:
            return end
        await asyncio.sleep(_POLL_SECONDS)


async def _load_and_watch(
    master: Daemon, slave: Daemon, seconds: int
) -> tuple[list[float], driver.Figures]:
    """Return the lags of a slave while its master is under load, and the figures of the load."""
    load = asyncio.create_task(asyncio.to_thread(driver.run, master, FULL_SPEED, seconds, 1))
    lags = []
    before, at = await _end_of_log(master), time.perf_counter()
    while not load.done():
        await asyncio.sleep(_POLL_SECONDS)
        # Query the slave first: messages that arrive meanwhile count as lag.
        replicated = await _end_of_log(slave)
        end, now = await _end_of_log(master), time.perf_counter()
        if end > before:  # the driver has started to send
            rate = (end - before) / (now - at)
            lags.append(1000 * max(0, end - replicated) / rate)
        before, at = end, now
    return lags, await load


async def _end_of_log(broker: Daemon) -> int:
    async with Session("127.0.0.1:1") as session:
        try:
            figures = await Admin(session).broker_runtime_info(broker.address)
        except RemoteSystemError:  # a broker of Java's with an empty store fails at it
            return 0
    return int(figures["commitLogMaxOffset"])
