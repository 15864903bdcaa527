"""Closing a client once, to its end, whoever asks for it and gives up waiting."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Closing:
    """Runs what closes a client in a task of its own, which a cancelled caller does not end."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def begin(self, close: Callable[[], Coroutine[Any, Any, None]]) -> "asyncio.Task[None]":
        """Begin to close, unless that is under way; kept here, or the task could be collected."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(close())
        return self._task

    async def settle(self) -> None:
        """Wait for a closing that is under way, however it ends: for who opens again."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def run(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close, or wait until somebody's closing is done. Raises what closing raises."""
        task = self.begin(close)
        await asyncio.wait([task])
        if not task.cancelled():  # else the loop itself ends
            task.result()
