"""What a call of a command gives, driven to its end and printed as it comes.

Most commands ask one question and wait for the answer. They run on plain blocking sockets
(`mq.client.blocking`), without an event loop: importing asyncio costs 30 ms, a third of such a
command.
Commands that do several things at once say so with `concurrently` and run under asyncio.
"""

import inspect
import os
import stat
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack, aclosing, nullcontext, suppress
from typing import Any, TextIO

from mq.cli.runtime.call import Call
from mq.cli.runtime.interruption import Interrupted, interrupting, received
from mq.cli.runtime.signal_wakeup import quieten, woken
from mq.cli.show.output import Printer
from mq.cli.show.result import Result

Drive = Callable[[Coroutine[Any, Any, Any]], Any]
Take = Callable[[Result], bool]  # says whether to go on


def show_all(
    invocation: "Invocation", printer: Printer, shown: Callable[[], None] = lambda: None
) -> int:
    """Print every result as it comes, call `shown` after each; the status is the worst of them."""
    status = 0

    def show(result: Result) -> bool:
        nonlocal status
        printer.show(result)
        shown()
        status = max(status, int(result.final_status))
        return True

    invocation.give(show)
    return status


class Invocation:
    """What calling a command gave: a result, or something that gives results when it is driven."""

    def __init__(self, function: Callable[..., Any], call: Call, own: dict[str, Any]) -> None:
        self._given = function(call, **own)
        self._concurrent = call.concurrent
        self._bulk: bool = function.__dict__.get("bulk", False)
        self._reader = _pipe(call.environment.stdout) if call.until_stopped else None

    @property
    def ongoing(self) -> bool:
        """Whether there may be more results than one."""
        return inspect.isasyncgen(self._given)

    def give(self, take: Take) -> None:
        """Give `take` each result as soon as it is there, until it says no; then end the command.

        All of them are taken in one run of the event loop, in which signals cancel what is awaited.
        Raises Interrupted.
        """
        if isinstance(self._given, Result):
            take(self._given)
            return
        if self._concurrent:
            take = _interruptible(take)
        try:
            with self._driver() as drive:
                coroutine = self._give(take)
                try:
                    drive(coroutine)
                finally:
                    coroutine.close()
        finally:
            if inspect.iscoroutine(self._given):
                self._given.close()  # a signal may come before it is begun

    def _driver(self) -> AbstractContextManager[Drive]:
        if self._concurrent:
            return _EventLoop(bulk=self._bulk, reader=self._reader)
        from mq.client.blocking import run

        return nullcontext(run)

    async def _give(self, take: Take) -> None:
        if not self.ongoing:
            take(await self._given)
            return
        async with aclosing(self._given) as results:
            async for result in results:
                if not take(result):
                    return


def _interruptible(take: Take) -> Take:
    """Let a signal end also what `take` waits for, as for who reads what it prints: that of the
    event loop only cancels what is awaited."""

    def taking(result: Result) -> bool:
        with interrupting(None):
            return take(result)

    return taking


class _EventLoop(AbstractContextManager[Drive]):
    """An event loop, which no signal interrupts amid what begins or ends it."""

    def __init__(self, *, bulk: bool, reader: int | None) -> None:
        """`reader` is a pipe without whose reader the command is of no use."""
        self._bulk = bulk
        self._reader = reader
        self._alone = False  # the reader has gone
        self._ended = False  # what was driven
        self._signals: int | None = None
        self._cancel: Callable[[], None] | None = None
        self._parts = ExitStack()

    def __enter__(self) -> Drive:
        import asyncio

        factory = None
        if self._bulk:
            with suppress(ImportError):  # uvloop is not for every platform
                import uvloop

                factory = uvloop.new_event_loop
        self._parts.enter_context(interrupting(self._interrupt))
        if factory is None:  # uvloop wakes itself
            self._signals = self._parts.enter_context(woken())
        self._runner = self._parts.enter_context(asyncio.Runner(loop_factory=factory))
        return self._drive

    def __exit__(self, *exc: object) -> None:
        self._parts.close()

    def _interrupt(self) -> None:
        if self._cancel is not None:
            self._cancel()

    def _drive(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        async def main() -> Any:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            reader, signals = self._reader, self._signals
            if signals is not None:
                loop.add_reader(signals, quieten, signals)

            def cancel() -> None:
                task.cancel()
                loop.call_soon_threadsafe(_nothing)  # a loop that waits for files wakes up

            self._cancel = cancel
            if received() is not None:  # before there was anything to cancel
                task.cancel()

            def alone() -> None:
                self._alone = True
                if reader is not None:
                    loop.remove_reader(reader)
                task.cancel()

            if reader is not None:
                loop.add_reader(reader, alone)  # all that can come from there is its end
            try:
                result = await coroutine
                self._ended = True
                return result
            finally:
                self._cancel = None
                if reader is not None:
                    loop.remove_reader(reader)
                if signals is not None:
                    loop.remove_reader(signals)

        try:
            return self._runner.run(main())
        except asyncio.CancelledError:
            if self._alone:
                raise BrokenPipeError from None
            number = received()
            if number is None:
                raise
            raise Interrupted(number, late=self._ended) from None


def _pipe(stream: TextIO) -> int | None:
    """The descriptor of a stream that is a pipe."""
    try:
        descriptor = stream.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError):  # no file at all
        return None


def _nothing() -> None:
    pass
