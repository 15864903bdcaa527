"""Cancellation: tells the cancellation of a client's own task from one inside user code."""

import asyncio
from collections.abc import Awaitable, Coroutine
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
