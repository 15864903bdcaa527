"""What a call of a command gives, driven to its end and printed as it comes.

Most commands ask one question and wait for the answer. They run on plain blocking sockets
(`mq.client.blocking`), without an event loop: importing asyncio costs 30 ms, a third of such a
command.
Commands that do several things at once say so with `concurrently` and run under asyncio.
"""

import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from typing import Any

from mq.cli.runtime.call import Call
from mq.cli.show.output import Printer
from mq.cli.show.result import Result

Drive = Callable[[Coroutine[Any, Any, Any]], Any]
Take = Callable[[Result], bool]  # says whether to go on


def show_all(outcome: "Outcome", printer: Printer, shown: Callable[[], None] = lambda: None) -> int:
    """Print every result as it comes, call `shown` after each; the status is the worst of them."""
    status = 0

    def show(result: Result) -> bool:
        nonlocal status
        printer.show(result)
        shown()
        status = max(status, int(result.final_status))
        return True

    outcome.give(show)
    return status


class Outcome:
    """What calling a command gave: a result, or something that gives results when it is driven."""

    def __init__(self, function: Callable[..., Any], call: Call, own: dict[str, Any]) -> None:
        self._given = function(call, **own)
        self._concurrent = call.concurrent
        self._bulk: bool = function.__dict__.get("bulk", False)

    @property
    def ongoing(self) -> bool:
        """Whether there may be more results than one."""
        return inspect.isasyncgen(self._given)

    def give(self, take: Take) -> None:
        """Give `take` each result as soon as it is there, until it says no; then end the command.

        All of them are taken in one run of the event loop. Between two runs nobody would look after
        Ctrl-C: it would come up amid what begins or ends a run, and the command would go on.
        """
        if isinstance(self._given, Result):
            take(self._given)
            return
        if self._concurrent:
            take = _interruptible(take)
        with _driver(self._concurrent, bulk=self._bulk) as drive:
            drive(self._give(take))

    async def _give(self, take: Take) -> None:
        if not self.ongoing:
            take(await self._given)
            return
        async with aclosing(self._given) as results:
            async for result in results:
                if not take(result):
                    return


def _interruptible(take: Take) -> Take:
    """Let Ctrl-C end also what `take` waits for, as for who reads what it prints: that of the event
    loop only cancels what is awaited."""
    import signal
    import threading

    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return take  # as asyncio.Runner

    def taking(result: Result) -> bool:
        cancelling = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return take(result)
        finally:
            signal.signal(signal.SIGINT, cancelling)

    return taking


def _driver(concurrent: bool, *, bulk: bool) -> AbstractContextManager[Drive]:
    if not concurrent:
        from mq.client.blocking import run

        return nullcontext(run)
    return _EventLoop(bulk)


class _EventLoop(AbstractContextManager[Drive]):
    def __init__(self, bulk: bool) -> None:
        self._bulk = bulk

    def __enter__(self) -> Drive:
        import asyncio

        factory = None
        if self._bulk:
            with suppress(ImportError):  # uvloop is not for every platform
                import uvloop

                factory = uvloop.new_event_loop
        self._runner = asyncio.Runner(loop_factory=factory)
        return self._runner.run

    def __exit__(self, *exc: object) -> None:
        self._runner.close()
