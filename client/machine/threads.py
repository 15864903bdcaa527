"""Threads that do work for an event loop, and locks between them.

Work that blocks for a moment goes to the loop's executor (`asyncio.to_thread`). Work on a disk that
has to be done in order has a `DiskThread` of its own.
"""

import asyncio
import concurrent.futures
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

Work = Callable[[], Any]
Done = Callable[[Any, Exception | None], None]

Lock = threading.Lock
ReentrantLock = threading.RLock


class DiskThread:
    """A thread that runs blocking work in order and gives the outcome back to the loop."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work, done: Done) -> None:
        """Run work in the thread; done(result, error) is called on the loop."""
        self._work.put((work, done))

    async def run(self, work: Work) -> Any:
        """Run work in the thread and wait for what it returns or raises."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(work, done)
        return await future

    def stop(self) -> None:
        """End the thread once what was submitted has been done. Idempotent."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            result, error = None, None
            try:
                result = work()
            except Exception as raised:  # whatever it is, the one who asked must hear of it
                error = raised
            try:
                self._loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:  # the loop was closed while the disk was busy
                return


class LoopThread:
    """A thread with an event loop, for those that have none and wait for what it does."""

    def __init__(self, name: str) -> None:
        self._stopping = asyncio.Event()
        # What is taken before the end is cancelled by it; behind that nobody would begin it.
        self._takes = True
        self._lock = ReentrantLock()  # a handler of signals may come in between
        ready: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name=name, daemon=True)
        self._thread.start()
        self._loop = ready.result()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Begin a coroutine in the loop. Raises RuntimeError when the thread has ended."""
        try:
            with self._lock:
                if not self._takes:
                    raise RuntimeError("the thread of the loop ends")
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise

    def is_current(self) -> bool:
        """Whether this is the thread of the loop itself."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the thread; what still runs in its loop is cancelled. Idempotent."""
        try:
            with self._lock:
                self._takes = False
                self._loop.call_soon_threadsafe(self._stopping.set)
        except RuntimeError:  # it has ended
            return
        if not self.is_current():
            self._thread.join()

    def _run(self, ready: "concurrent.futures.Future[asyncio.AbstractEventLoop]") -> None:
        async def until_stopped() -> None:
            ready.set_result(asyncio.get_running_loop())
            try:
                await self._stopping.wait()
            except asyncio.CancelledError:  # a task has ended the loop, by SystemExit
                await self._end_early()
                raise

        asyncio.run(until_stopped())

    async def _end_early(self) -> None:
        """Take nothing any more, and cancel what was taken while all else was being cancelled."""
        with self._lock:
            self._takes = False
        await asyncio.sleep(0)
        late = [task for task in asyncio.all_tasks() if not task.cancelling()]
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
