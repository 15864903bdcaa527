"""Threads that do work for an event loop, and locks between them.

Work that blocks for a moment goes to the loop's executor (`asyncio.to_thread`). Work on a disk that
has to be done in order has a `DiskThread` of its own.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

Work = Callable[[], Any]
Done = Callable[[Any, Exception | None], None]

Lock = threading.Lock


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
