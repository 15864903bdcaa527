"""Waiting for conditions that have no event."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

SECONDS = 60.0  # a busy machine takes long
_PAUSE = 0.005
_PAUSE_OF_QUESTIONS = 0.05  # for conditions that other processes answer


async def until(
    holds: Callable[[], object | Awaitable[object]], seconds: float = SECONDS, *, what: str = ""
) -> None:
    """Return once a function, or the coroutine that it returns, is true; fails if that takes longer
    than so many seconds.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        said = holds()
        pause = _PAUSE
        if inspect.isawaitable(said):
            async with asyncio.timeout_at(end):
                said = await said
            pause = _PAUSE_OF_QUESTIONS
        if said:
            return
        assert loop.time() < end, _not_so(what, seconds)
        await asyncio.sleep(pause)


def wait_until(holds: Callable[[], object], seconds: float = SECONDS, *, what: str = "") -> None:
    """`until` without an event loop."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, _not_so(what, seconds)
        time.sleep(_PAUSE_OF_QUESTIONS)


def _not_so(what: str, seconds: float) -> str:
    return f"not within {seconds:.0f} s{what and ': '}{what}"
