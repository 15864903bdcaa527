"""The thread that fsyncs for all stores of a broker.

One fsync covers all earlier sends: those that arrive during it wait for the next one. Each changed
store gets a checkpoint at intervals, in the same thread: with two simultaneous fsyncs of a file
only one gets the error of a failed write, and the other would report success.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from mq.client.machine import threads
from mq.daemons.tube.broker.store import checkpoint as checkpoints
from mq.daemons.tube.broker.store.layout import CHECKPOINT
from mq.daemons.tube.broker.store.segments import Segment
from mq.daemons.tube.broker.store.topic_store import TopicStore

log = logging.getLogger(__name__)

CHECKPOINT_SECONDS = 10.0


class Flusher:
    """Flushes the stores that request it, and checkpoints changed stores at intervals."""

    def __init__(self) -> None:
        self._thread = threads.DiskThread("tube-flush")
        self._due: dict[TopicStore, None] = {}
        self._busy = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.flushes = 0
        self.last_seconds = 0.0
        self.total_seconds = 0.0

    def request(self, store: TopicStore) -> None:
        """Flush a store soon."""
        self._due[store] = None
        if not self._busy:
            self._start()

    def _start(self) -> None:
        due, self._due = self._due, {}
        work = [(one, *one.flushing()) for one in due if not (one.closed or one.is_broken)]
        if not work:
            return
        self._busy = True
        self._idle.clear()
        for _, _, segments in work:
            _hold(segments, 1)
        loop = asyncio.get_running_loop()
        began = loop.time()

        def sync() -> list[OSError | None]:
            return [_sync(store, segments) for store, _, segments in work]

        def done(errors: Any, failure: Exception | None) -> None:
            self.last_seconds = loop.time() - began
            self.total_seconds += self.last_seconds
            self.flushes += 1
            self._busy = False
            self._idle.set()
            for number, (store, upto, segments) in enumerate(work):
                _hold(segments, -1)
                store.flushed(upto, segments, errors[number] if failure is None else failure)
            if self._due and not self._busy:
                self._start()

        self._thread.submit(sync, done)

    async def settle(self) -> None:
        """Wait until no flush runs and none is due."""
        while self._busy:
            await self._idle.wait()
            await asyncio.sleep(0)

    async def run_checkpoints(self, stores: Iterable[TopicStore]) -> None:
        """Write checkpoints until cancelled; ``stores`` is iterated each time."""
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            for store in list(stores):
                await self.checkpoint(store)

    async def checkpoint(self, store: TopicStore) -> None:
        """Put all of a store on the disk, and write its checkpoint, if it has changed."""
        begun = store.checkpointing()
        if begun is None:
            return
        reached, segments = begun

        def work() -> OSError | None:
            if store.is_broken:
                return None
            error = _sync(store, segments)
            if error is None:
                checkpoints.write(store.folder / CHECKPOINT, reached)
            return error

        task = asyncio.ensure_future(self._thread.run(work))
        _hold(segments, 1)
        try:
            error = await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.gather(task, return_exceptions=True)
            raise
        except OSError as unwritten:  # the checkpoint would still be true
            log.error("%s: no checkpoint: %s", store.key, unwritten,
                      extra={"failure": f"checkpoints of {store.key}"})  # fmt: skip
            return
        finally:
            _hold(segments, -1)
        store.checkpointed(reached, segments, error)

    async def run(self, work: Callable[[], None]) -> None:
        """Do work on files while no fsync and no checkpoint runs. Raises OSError."""
        task = asyncio.ensure_future(self._thread.run(work))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.gather(task, return_exceptions=True)
            raise

    async def close(self) -> None:
        """Wait for running work and end the thread."""
        await self.settle()
        self._thread.stop()


def _hold(segments: list[tuple[Segment, int]], count: int) -> None:
    """Prevent the deletion of files during an fsync: it would count as a disk failure."""
    for segment, _ in segments:
        segment.readers += count


def _sync(store: TopicStore, segments: list[tuple[Segment, int]]) -> OSError | None:
    try:
        for segment, _ in segments:
            segment.sync()
    except OSError as error:
        store.is_broken = True  # at once: the next work of this thread must not trust the file
        return error
    return None
