"""Closes a client exactly once and completely, even if the caller is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


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
