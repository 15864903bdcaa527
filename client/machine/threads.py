"""Threads that work for an event loop, and locks between threads.

Work that blocks briefly goes to the loop's executor (`asyncio.to_thread`). Disk operations that
must run in order have a `DiskThread` of their own.
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
    """A thread that runs blocking work in order and passes the results to the loop."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work, done: Done) -> None:
        """Run work in the thread; done(result, error) is called on the loop."""
        self._work.put((work, done))

    async def run(self, work: Work) -> Any:
        """Run work in the thread, and return or raise its result."""
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
        """End the thread after all submitted work. Idempotent."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            result, error = None, None
            try:
                result = work()
            except Exception as raised:  # any error must reach the caller
                error = raised
            try:
                self._loop.call_soon_threadsafe(done, result, error)
            except RuntimeError:  # the loop was closed while the work ran
                return


class LoopThread:
    """A thread with an event loop, for callers without one that wait for its results."""

    def __init__(self, name: str) -> None:
        self._stopping = asyncio.Event()
        # Coroutines accepted before the end are cancelled by it; later ones would never start.
        self._takes = True
        self._lock = ReentrantLock()  # reentrant: a signal handler may interrupt its holder
        ready: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name=name, daemon=True)
        self._thread.start()
        self._loop = ready.result()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Start a coroutine in the loop. Raises RuntimeError if the thread has ended."""
        try:
            with self._lock:
                if not self._takes:
                    raise RuntimeError("the thread of the loop ends")
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise

    def is_current(self) -> bool:
        """Whether the caller runs in the loop's own thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the thread; coroutines still running in its loop are cancelled. Idempotent."""
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
            except asyncio.CancelledError:  # a task ended the loop with SystemExit
                await self._end_early()
                raise

        asyncio.run(until_stopped())

    async def _end_early(self) -> None:
        """Stop accepting coroutines, and cancel those accepted while the others were being
        cancelled.
        """
        with self._lock:
            self._takes = False
        await asyncio.sleep(0)
        late = [task for task in asyncio.all_tasks() if not task.cancelling()]
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
