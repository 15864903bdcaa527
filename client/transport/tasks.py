"""Tasks of a client: cancellation, opening, and closing exactly once and completely."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


def is_meant(error: BaseException) -> bool:
    """Whether an error raised by user code must end the task that called it.

    This is true of KeyboardInterrupt, SystemExit, and the CancelledError of a task that is being
    cancelled. It is false for the CancelledError of something that the user code awaited or
    inspected: it would end the task without a message.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return not isinstance(error, Exception)


def end_with(task: "asyncio.Task[Any]", work: Awaitable[object]) -> None:
    """Close the coroutine that a task is to await when the task ends.

    A task that is cancelled before its first step never starts, and Python then warns that the
    coroutine was never awaited.
    """
    if isinstance(work, Coroutine):
        task.add_done_callback(lambda _: work.close())


class Closing:
    """Runs a client's close in a task of its own, which outlives a cancelled caller."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def begin(self, close: Callable[[], Coroutine[Any, Any, None]]) -> "asyncio.Task[None]":
        """Start to close, unless a close is running. The reference prevents the task from being
        garbage collected.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(close())
        return self._task

    async def settle(self) -> None:
        """Wait for a running close, whatever its result. Called before the client is opened
        again.
        """
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def run(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close, or wait for the close that is running. Raises what closing raises."""
        task = self.begin(close)
        await asyncio.wait([task])
        if not task.cancelled():  # otherwise the event loop itself is stopping
            task.result()


class Opening:
    """Opens a client that is not open, and closes it, although both may be called concurrently."""

    def __init__(self) -> None:
        self.closing = Closing()
        self._changing = asyncio.Lock()  # serializes open and close
        self._is_open = False

    async def open(self, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `begin` unless the client is open.

        It waits for a close that is running, and a later close waits for it: otherwise the client
        could stay open with no way to end it.
        """
        await self.closing.settle()
        async with self._changing:
            if not self._is_open:
                await begin()
                self._is_open = True

    async def close(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `end`, within `closing`. The client can be opened again."""
        async with self._changing:
            self._is_open = False
            await end()
