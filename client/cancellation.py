"""Cancellation: one of our own task, apart from one that a user's code has run into."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any


def is_meant(error: BaseException) -> bool:
    """Whether an error that a user's code has raised is to end the task that called it.

    KeyboardInterrupt and SystemExit are, and so is the CancelledError of somebody who cancels this
    task. Not so the CancelledError of something that the code itself has awaited or looked into: a
    task that ended of that would end without a word.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return not isinstance(error, Exception)


def end_with(task: "asyncio.Task[Any]", work: Awaitable[object]) -> None:
    """Have what a task is to await end with it.

    A task that is cancelled before its first step never begins: of a coroutine that was made for it
    Python then says that nobody has awaited it.
    """
    if isinstance(work, Coroutine):
        task.add_done_callback(lambda _: work.close())
