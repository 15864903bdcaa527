"""Runs a command and prints what it returns or yields.

Most commands ask one question and wait for the answer. They run on plain blocking sockets
(`mq.client.blocking`), without an event loop: importing asyncio costs 30 ms, a third of such a
command.
Commands that do several things at once say so with `concurrently` and run under asyncio.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import effect_of, given_by
from mq.cli.runtime.status import Status
from mq.cli.show.output import Printer
from mq.cli.show.result import Result

Drive = Callable[[Coroutine[Any, Any, Any]], Any]


F = TypeVar("F", bound=Callable[..., Any])


def concurrently(function: F) -> F:
    """Mark a command that needs an event loop."""
    function.__dict__["concurrent"] = True
    return function


def in_bulk(function: F) -> F:
    """Mark a command that moves much data: its event loop is uvloop's, twice as fast with it."""
    function.__dict__["bulk"] = True
    return concurrently(function)


def run_command(function: Callable[..., Any], call: Call, own: dict[str, Any]) -> int:
    """Call the command with its options, print its results, return its exit status."""
    given = given_by(function)
    if given is not None and given.tables:
        call.view.check(given.tables)
    question = effect_of(function).destroys
    if question and not (call.yes or call.dry_run):
        from mq.cli.runtime.confirm import confirm

        confirm(call, question, own)
    call.concurrent = function.__dict__.get("concurrent", False)
    if call.dry_run:
        return _run_dry(function, call, own)
    if call.watch is not None:
        from mq.cli.runtime.watching import watch

        return watch(lambda: Outcome(function, call, own), call)
    try:
        with Outcome(function, call, own) as outcome:
            printer = Printer(
                call.environment, call.name, call.output, view=call.view, ongoing=outcome.ongoing
            )
            return show_all(outcome, printer)
    except KeyboardInterrupt:
        # Ctrl-C is how one ends what would show things for ever.
        if not effect_of(function).endless or effect_of(function).writes:
            raise
        return Status.DONE


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


def _run_dry(function: Callable[..., Any], call: Call, own: dict[str, Any]) -> int:
    """Let the command go on as if it changed things, and print what it would have changed.

    Its own results tell of what was not done: they are shown only where it would change nothing.
    What they say could not be done, because a part is missing, would fail without a dry run, too.
    """
    from mq.cli.runtime.errors import CommandError

    results: list[Result] = []
    failures: list[str] = []
    failed: Exception | None = None
    with Outcome(function, call, own) as outcome:
        ongoing = outcome.ongoing
        try:
            for result in outcome.results():
                failures += result.failures
                if not call.changes:
                    results.append(result)
                elif effect_of(function).endless:
                    break  # what follows would be the same again
        except Exception as error:
            if not call.changes:
                raise
            failed = error
    if call.changes:
        results, ongoing = [call.changes.result(list(dict.fromkeys(failures)))], False
    printer = Printer(call.environment, call.name, call.output, view=call.view, ongoing=ongoing)
    for result in results:
        printer.show(result)
    if failed is None:
        return max((int(result.final_status) for result in results), default=0)
    from mq.cli.runtime.explain import explain

    shown = failed if isinstance(failed, CommandError) else explain(failed, call.environment)
    raise CommandError(
        f"the dry run ends here: {shown.message}",
        hint="the changes above came before; what follows may need the answer to one of them",
        status=shown.status,
    ) from failed


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
