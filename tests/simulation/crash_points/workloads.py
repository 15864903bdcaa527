"""Short workloads, each with the settings of its store."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mq.daemons.broker.store_config import FlushDiskType, MessageStoreConfig
from tests.simulation.crash_points.store import Ledger, StoreRun, opened, settings

Main = Callable[[Ledger, MessageStoreConfig], Awaitable[None]]


@dataclass(frozen=True)
class Crash:
    """Behind what a start is made."""

    has_lost_power: bool
    now: float  # when the work was cut, also where the start behind that was cut once more


#: What is expected behind a crash, to be compared with others, and the start that looks for it and
#: tells what is wrong.
Judge = Callable[[Ledger, list[str], Crash], tuple[object, Callable[[], Awaitable[None]]]]


@dataclass(frozen=True)
class Workload:
    """Something that is done with a store: one that is not there yet, or that of an archive."""

    name: str
    main: Main
    changes: dict[str, Any] = field(default_factory=dict)
    archive: Path | None = None
    judge: Judge | None = None  # of a whole broker, and no store alone

    @property
    def config(self) -> MessageStoreConfig:
        return settings(**self.changes)

    @property
    def is_synced(self) -> bool:
        return self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH


ALL: dict[str, Workload] = {}


def workload(**changes: Any) -> Callable[[Main], Main]:
    def add(main: Main) -> Main:
        name = getattr(main, "__name__").replace("_", "-")  # noqa: B009
        ALL[name] = Workload(name, main, changes)
        return main

    return add


async def _fill(life: StoreRun, count: int, queues: int = 2) -> None:
    for number in range(count):
        await life.put("orders", number % queues)


@workload()
async def append_synced(ledger: Ledger, config: MessageStoreConfig) -> None:
    """Log, queue and index files are begun; two checkpoints; a clean stop."""
    async with opened(ledger, config) as life:
        await _fill(life, 9)
        await life.store.checkpointer.checkpoint()
        await _fill(life, 16)
        await life.store.checkpointer.checkpoint()
        await _fill(life, 3)


@workload(flush_disk_type=FlushDiskType.ASYNC_FLUSH)
async def append_unsynced(ledger: Ledger, config: MessageStoreConfig) -> None:
    """The same, flushed now and then."""
    async with opened(ledger, config) as life:
        await _fill(life, 6)
        await life.store.flusher.drain()
        await _fill(life, 6)
        await life.store.checkpointer.checkpoint()
        await _fill(life, 12)
        await life.store.flusher.drain()
        await _fill(life, 2)


@workload(mapped_file_size_commit_log=8192)
async def at_once(ledger: Ledger, config: MessageStoreConfig) -> None:
    """Batches of several sectors, put while a checkpoint is made."""
    async with opened(ledger, config) as life:
        await life.put("orders", 0)
        for _ in range(4):
            waiting = [life.append("orders", number % 3, size=400) for number in range(5)]
            checkpoint = asyncio.create_task(life.store.checkpointer.checkpoint())
            await asyncio.sleep(0.001)
            waiting.append(life.append("orders", 0, size=900))
            await asyncio.gather(checkpoint, *waiting)


@workload(file_reserved_time=0)
async def retention(ledger: Ledger, config: MessageStoreConfig) -> None:
    """Old files go, and messages come meanwhile."""
    async with opened(ledger, config) as life:
        await _fill(life, 32)
        await life.store.checkpointer.checkpoint()
        await asyncio.sleep(1)
        cleaning = asyncio.create_task(life.expire())
        await _fill(life, 3)
        await cleaning
        await life.store.checkpointer.checkpoint()
        await _fill(life, 6)


@workload()
async def topic_deletion(ledger: Ledger, config: MessageStoreConfig) -> None:
    """A topic is deleted, and made again under its name."""
    async with opened(ledger, config) as life:
        await _fill(life, 7)
        await life.put("others", 0, 4)
        await life.store.checkpointer.checkpoint()
        await life.put("others", 0, 2)
        await life.delete_topic("others")
        await life.put("others", 0, 3)
        await life.put("orders", 0, 2)
        await life.store.checkpointer.checkpoint()
        await life.put("others", 0, 2)
        await life.delete_topic("others")


@workload()
async def stop_and_start(ledger: Ledger, config: MessageStoreConfig) -> None:
    """Clean stops, and starts behind them."""
    for _ in range(3):
        async with opened(ledger, config) as life:
            await _fill(life, 6)


@workload()
async def the_works(ledger: Ledger, config: MessageStoreConfig) -> None:
    """The store does what it does by itself, for a minute."""
    async with opened(ledger, config) as life:
        tasks = [asyncio.create_task(work()) for work, _ in life.store.works()]
        for _ in range(5):
            await _fill(life, 3)
            await asyncio.sleep(6)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
