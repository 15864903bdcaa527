"""Commands that mqadmin repeats with `-i SECONDS`."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Annotated, Any

import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.errors import UsageError
from mq.cli.show.result import Result
from mq.cli.time_expressions import seconds

Interval = Annotated[
    float | None,
    typer.Option(
        "-i",
        "--interval",
        metavar="SECONDS",
        parser=seconds,
        help="Repeat every N seconds, or such as 1m.",
    ),
]
ResultSource = Coroutine[Any, Any, Result] | AsyncIterator[Result]


def repeatedly(
    call: Call, interval: float | None, once: Callable[[], Coroutine[Any, Any, Result]]
) -> ResultSource:
    """Return `once`, or with an interval its results repeatedly. Raises UsageError."""
    if interval is None:
        return once()
    if interval < 0:
        raise UsageError(f"-i/--interval: {interval:g} s")
    call.until_stopped = True
    return _again(interval, once)


async def _again(interval: float, once: Callable[[], Awaitable[Result]]) -> AsyncIterator[Result]:
    while True:
        yield await once()
        # Nothing else runs in this process, so blocking is harmless.
        time.sleep(interval)  # noqa: ASYNC251
