"""Runs the coroutine of a command and prints what it returns or yields.

Most commands ask one question and wait for the answer. They run on plain blocking sockets
(`mq.client.blocking`), without an event loop: importing asyncio costs 30 ms, a third of such a
command.
Commands that do several things at once say so with `concurrently` and run under asyncio.
"""

import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from mq.cli.call import Call
from mq.cli.output import Printer
from mq.cli.result import Result

Drive = Callable[[Coroutine[Any, Any, Any]], Any]


F = TypeVar("F", bound=Callable[..., Any])


def concurrently(function: F) -> F:
    """Mark a command that needs an event loop."""
    function.__dict__["concurrent"] = True
    return function


def run_command(function: Callable[..., Any], call: Call, own: dict[str, Any]) -> int:
    """Call the command with its options, print its results, return its exit status."""
    call.concurrent = function.__dict__.get("concurrent", False)
    outcome = function(call, **own)
    if isinstance(outcome, Result):
        return _show(outcome, call)
    with _driver(call.concurrent) as drive:
        if inspect.isasyncgen(outcome):
            return _show_all(outcome, drive, call)
        return _show(drive(outcome), call)


def _show(result: Result, call: Call) -> int:
    Printer(call.environment, call.name, call.output, view=call.view).show(result)
    return int(result.final_status)


def _show_all(results: Any, drive: Drive, call: Call) -> int:
    printer = Printer(call.environment, call.name, call.output, view=call.view, ongoing=True)
    status = 0
    try:
        while True:
            result: Result = drive(anext(results))
            printer.show(result)
            status = max(status, int(result.final_status))
    except StopAsyncIteration:
        return status
    finally:
        drive(results.aclose())


def _driver(concurrent: bool) -> AbstractContextManager[Drive]:
    if not concurrent:
        from mq.client.blocking import run

        return nullcontext(run)
    return _EventLoop()


class _EventLoop(AbstractContextManager[Drive]):
    def __enter__(self) -> Drive:
        import asyncio

        self._runner = asyncio.Runner()

        async def finish(awaitable: Any) -> Any:
            return await awaitable

        return lambda awaitable: self._runner.run(finish(awaitable))

    def __exit__(self, *exc: object) -> None:
        self._runner.close()
