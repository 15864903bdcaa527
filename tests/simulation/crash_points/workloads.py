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
    """The crash before a start."""

    has_lost_power: bool
    now: float  # time of the workload's crash, also if the start was crashed again


# The expectation after a crash, for comparison, and the start that checks it and returns the
# problems.
Judge = Callable[[Ledger, list[str], Crash], tuple[object, Callable[[], Awaitable[None]]]]


@dataclass(frozen=True)
class Workload:
    """A workload of a new store, or of one from an archive."""

    name: str
    main: Main
    changes: dict[str, Any] = field(default_factory=dict)
    archive: Path | None = None
    judge: Judge | None = None  # of a whole broker; None for a store

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
    """Log, queue and index files are created; two checkpoints; an orderly stop."""
    async with opened(ledger, config) as life:
        await _fill(life, 9)
        await life.store.checkpointer.checkpoint()
        await _fill(life, 16)
        await life.store.checkpointer.checkpoint()
        await _fill(life, 3)


@workload(flush_disk_type=FlushDiskType.ASYNC_FLUSH)
async def append_unsynced(ledger: Ledger, config: MessageStoreConfig) -> None:
    """The same with occasional flushes."""
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
    """Batches of several sectors during a checkpoint."""
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
    """Old files expire while messages arrive."""
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
    """A topic is deleted and created again."""
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
    """Orderly stops, each followed by a start."""
    for _ in range(3):
        async with opened(ledger, config) as life:
            await _fill(life, 6)


@workload()
async def the_works(ledger: Ledger, config: MessageStoreConfig) -> None:
    """The store runs its periodic tasks for a minute."""
    async with opened(ledger, config) as life:
        tasks = [asyncio.create_task(work()) for work, _ in life.store.works()]
        for _ in range(5):
            await _fill(life, 3)
            await asyncio.sleep(6)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
