"""The end of a log is truncated while the store is open, as by a slave of another master; then its
epochs are.

Truncated records stay until the truncation is done, and are then gone for good. Until then the
epochs stay too, so that the next comparison finds the point of truncation. Truncated bytes are in
damaged/.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from mq.client.machine import files
from mq.daemons.broker.replication.epochs import Epoch, Epochs
from mq.daemons.broker.store.recovery.truncation import cut_end
from mq.daemons.broker.store_config import MessageStoreConfig
from tests.simulation.crash_points import model
from tests.simulation.crash_points.machine import ROOT
from tests.simulation.crash_points.store import Ledger, StoreRun, opened, read, settings
from tests.simulation.crash_points.workloads import ALL, Crash, Workload

_KEPT, _LOST = 9, 8  # messages; the truncated ones start within a file and reach into another
_COMMON = Epoch(1, 0)


async def _fill(life: StoreRun, count: int) -> None:
    for number in range(count):
        await life.put("orders", number % 2)


async def _cut(ledger: Ledger, config: MessageStoreConfig) -> None:
    epochs = Epochs(config.epoch_path)
    async with opened(ledger, config) as life:
        store = life.store
        epochs.load(0)
        epochs.begin(1, 0, 0, is_whole=True)
        await _fill(life, _KEPT)
        await store.checkpointer.checkpoint()
        fork = store.log.written
        epochs.begin(2, 0, fork, is_whole=True)
        await _fill(life, _LOST // 2)
        await store.checkpointer.checkpoint()
        await _fill(life, _LOST - _LOST // 2)
        await asyncio.sleep(0.1)
        ledger.note(model.Cutting(fork))
        await cut_end(store, fork, "the master does not have it")
        epochs.adopt([_COMMON, Epoch(3, fork)], fork)
        ledger.note(model.Cut(fork))


def _judge(
    ledger: Ledger, problems: list[str], crash: Crash
) -> tuple[object, Callable[[], Awaitable[None]]]:
    events = list(ledger.events)
    stored = sum(isinstance(event, model.Stored) for event in events)
    cutting = next((event.point for event in events if isinstance(event, model.Cutting)), None)
    is_cut = any(isinstance(event, model.Cut) for event in events)
    appended = sum(isinstance(event, model.Appended) for event in events)

    async def look() -> None:
        config = settings()
        async with opened(Ledger(), config) as life:
            found, wrong = read(life.store)
            problems.extend(wrong)
            if is_cut:
                allowed = {_KEPT}
            elif cutting is not None:
                allowed = set(range(_KEPT, appended + 1))  # file by file, the last one first
            else:
                allowed = set(range(stored, appended + 1))
            if len(found) not in allowed:
                problems.append(f"{len(found)} messages are there, not one of {sorted(allowed)}")
            end = life.store.log.written
            epochs = Epochs(config.epoch_path)
            epochs.load(end)
            if cutting is not None:
                if end > cutting and list(epochs.all) != [_COMMON, Epoch(2, cutting)]:
                    problems.append(f"the log goes on to {end}, with epochs {list(epochs.all)}")
                if end <= cutting and not _is_kept(cutting):
                    problems.append("the truncated bytes are not in damaged/")
                point = epochs.common_point([_COMMON, Epoch(3, cutting)], cutting + 1000, end)
                if point != cutting:
                    problems.append(f"the next comparison finds {point}, not {cutting}")

    return (stored, appended, cutting, is_cut), look


def _is_kept(fork: int) -> bool:
    folder = Path(ROOT) / "damaged"
    return files.exists(folder / f"{fork:020d}")


ALL["cut-of-the-end"] = Workload("cut-of-the-end", _cut, judge=_judge)
