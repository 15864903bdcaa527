"""Cancellation: one of our own task, apart from one that a user's code has run into."""

import asyncio


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
