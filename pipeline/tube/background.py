"""An event loop in a thread of its own, for clients that send heartbeats while Spark is busy."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable
from contextlib import aclosing
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Starts when it is created; a context manager, or closed by `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tubemq", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. An interruption of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, source: AsyncGenerator[T, None], ahead: int) -> Generator[T, None, None]:
        """Yield the items of a source, of which up to `ahead` are fetched in advance. The source is
        closed if the caller stops early.
        """
        taken: asyncio.Queue[tuple[T | None, BaseException | None]] = asyncio.Queue(ahead)

        async def take() -> None:
            error: BaseException | None = None
            try:
                async with aclosing(source):
                    async for item in source:
                        await taken.put((item, None))
            except Exception as raised:
                error = raised
            await taken.put((None, error))

        async def begin() -> asyncio.Task[None]:
            return asyncio.get_running_loop().create_task(take())

        taking = self.run(begin())
        try:
            while True:
                item, error = self.run(taken.get())
                if error is not None:
                    raise error
                if item is None:
                    return
                yield item
        finally:
            self.run(_end([taking]))

    def close(self) -> None:
        """Cancel the running tasks, and end the thread. Safe to call again."""
        if self._loop.is_closed():
            return
        self.run(_end_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    await _end(asyncio.all_tasks() - {asyncio.current_task()})
    await asyncio.get_running_loop().shutdown_asyncgens()


async def _end(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    """Cancel tasks, and wait until they have ended."""
    ended = [task for task in tasks if task is not None]
    for task in ended:
        task.cancel()
    if ended:
        await asyncio.wait(ended)
