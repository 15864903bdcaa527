"""What a call of a command gives, driven to its end and printed as it comes.

Most commands ask one question and wait for the answer. They run on plain blocking sockets
(`mq.client.blocking`), without an event loop: importing asyncio costs 30 ms, a third of such a
command.
Commands that do several things at once say so with `concurrently` and run under asyncio.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from mq.cli.runtime.call import Call
from mq.cli.show.output import Printer
from mq.cli.show.result import Result

Drive = Callable[[Coroutine[Any, Any, Any]], Any]


def show_all(outcome: "Outcome", printer: Printer, shown: Callable[[], None] = lambda: None) -> int:
    """Print every result as it comes, call `shown` after each; the status is the worst of them."""
    status = 0
    for result in outcome.results():
        printer.show(result)
        shown()
        status = max(status, int(result.final_status))
    return status


class Outcome:
    """What calling a command gave: a result, or something that gives results when it is driven.

    Use it in a `with` block: it ends what the command has begun, also after Ctrl-C.
    """

    def __init__(self, function: Callable[..., Any], call: Call, own: dict[str, Any]) -> None:
        self._given = function(call, **own)
        concurrent = call.concurrent and not isinstance(self._given, Result)
        self._driver = _driver(concurrent, bulk=function.__dict__.get("bulk", False))
        self._drive: Drive = self._driver.__enter__()

    @property
    def ongoing(self) -> bool:
        """Whether there may be more results than one."""
        return inspect.isasyncgen(self._given)

    def results(self) -> Iterator[Result]:
        """The results, each as soon as it is there."""
        if isinstance(self._given, Result):
            yield self._given
        elif not self.ongoing:
            yield self._drive(self._given)
        else:
            while True:
                try:
                    result: Result = self._drive(anext(self._given))
                except StopAsyncIteration:
                    return
                yield result

    def __enter__(self) -> "Outcome":
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            if self.ongoing:
                self._drive(self._given.aclose())
        finally:
            self._driver.__exit__(None, None, None)


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

        async def finish(awaitable: Any) -> Any:
            return await awaitable

        return lambda awaitable: self._runner.run(finish(awaitable))

    def __exit__(self, *exc: object) -> None:
        self._runner.close()
