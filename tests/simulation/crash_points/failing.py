"""Workloads on a failing disk, and with cancelled operations."""

import asyncio
import contextlib
import errno
from collections.abc import Iterator
from dataclasses import replace

from mq.daemons.broker.store_config import MessageStoreConfig
from tests.simulation import seams
from tests.simulation.crash_points.machine import NAME
from tests.simulation.crash_points.store import Ledger, StoreRun, opened
from tests.simulation.crash_points.workloads import workload

_WRITES = ("open", "pwrite", "posix_fallocate", "ftruncate", "rename", "link")
_SYNCS = ("fsync", "fdatasync")


@contextlib.contextmanager
def failing(operations: tuple[str, ...], part: str, times: int = 1 << 30) -> Iterator[None]:
    """Make operations on files with a part in their paths fail this often."""
    disk = seams.disks[NAME]
    before, left = disk.faults, times

    def fails(name: str, path: str) -> int:
        nonlocal left
        if name not in operations or part not in path or not left:
            return 0
        left -= 1
        return errno.EIO

    disk.faults = replace(before, fails=fails)
    try:
        yield
    finally:
        disk.faults = before


async def _fill(life: StoreRun, count: int, queues: int = 4) -> None:
    for number in range(count):
        await life.put("orders", number % queues)


@workload()
async def queues_cannot_be_synced(ledger: Ledger, config: MessageStoreConfig) -> None:
    """An fsync of each queue's file fails once, and then works."""
    async with opened(ledger, config) as life:
        await _fill(life, 8)
        for queue_id in range(4):  # the lost data is random
            part = f"consumequeue/orders/{queue_id}/"
            with failing(_SYNCS, part, 1), contextlib.suppress(OSError):
                await life.store.checkpointer.checkpoint()
        with contextlib.suppress(OSError):
            await life.store.checkpointer.checkpoint()
        await _fill(life, 2)


@workload()
async def log_cannot_be_synced(ledger: Ledger, config: MessageStoreConfig) -> None:
    """An fsync of the log fails sometimes."""
    async with opened(ledger, config) as life:
        await _fill(life, 4)
        for _ in range(8):
            with failing(_SYNCS, "commitlog", 1), contextlib.suppress(Exception):  # refused
                await _fill(life, 1)


@workload()
async def queue_cannot_be_written(ledger: Ledger, config: MessageStoreConfig) -> None:
    """A queue's file cannot be written until the store has stopped."""
    with failing(_WRITES, "consumequeue/orders/0"):
        async with opened(ledger, config) as life:
            await _fill(life, 8)


@workload()
async def index_cannot_be_written(ledger: Ledger, config: MessageStoreConfig) -> None:
    """The index lags for a moment while a checkpoint is requested."""
    async with opened(ledger, config) as life:
        await _fill(life, 11)
        with failing(_WRITES, "index/"):
            with contextlib.suppress(Exception):  # refused if there is no space for its key
                await _fill(life, 4)
            with contextlib.suppress(OSError):
                await life.store.checkpointer.checkpoint()


@workload()
async def deletion_cannot_be_noted(ledger: Ledger, config: MessageStoreConfig) -> None:
    """A topic is to be deleted, but the deletion cannot be recorded."""
    async with opened(ledger, config) as life:
        await life.put("others", 0, 3)
        await _fill(life, 2)
        with failing((*_WRITES, *_SYNCS), "deletions"), contextlib.suppress(OSError):
            await life.delete_topic("others")
        await _fill(life, 2)


@workload()
async def cancelled_rounds(ledger: Ledger, config: MessageStoreConfig) -> None:
    """Stops during a round of writing queues."""
    for turns in range(1, 5):
        async with opened(ledger, config) as life:
            await _fill(life, 6, queues=6)
            round_ = asyncio.create_task(life.store.checkpointer.checkpoint())
            for _ in range(turns):
                await asyncio.sleep(0)
            round_.cancel()
            await asyncio.gather(round_, return_exceptions=True)
