"""Runs a command to its end and passes on its results as they come.

Most commands send one request and wait for the reply. They use plain blocking sockets
(`mq.client.transport.blocking`), without an event loop: importing asyncio takes 30 ms, a third of
such a command. Commands that do several things at once are marked `concurrently` and run under
asyncio.
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
Take = Callable[[Result], bool]  # returns whether to continue


def show_all(
    invocation: "Invocation", printer: Printer, shown: Callable[[], None] = lambda: None
) -> int:
    """Print every result as it comes, and call `shown` after each. Returns the worst status."""
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
    """The return value of a command's call: a result, or a source of results that must be run."""

    def __init__(self, function: Callable[..., Any], call: Call, own: dict[str, Any]) -> None:
        self._given = function(call, **own)
        self._concurrent = call.concurrent
        self._bulk: bool = function.__dict__.get("bulk", False)
        self._reader = _pipe(call.environment.stdout) if call.until_stopped else None

    @property
    def ongoing(self) -> bool:
        """Whether there may be more than one result."""
        return inspect.isasyncgen(self._given)

    def give(self, take: Take) -> None:
        """Pass each result to `take` as it comes, until `take` returns False; then end the command.

        All are taken in one run of the event loop, in which signals cancel the awaited work. Raises
        Interrupted.
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
                self._given.close()  # a signal may come before it is started

    def _driver(self) -> AbstractContextManager[Drive]:
        if self._concurrent:
            return _EventLoop(bulk=self._bulk, reader=self._reader)
        from mq.client.transport.blocking import run

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
    """Let a signal also interrupt blocking in `take`, such as writes to a slow reader.

    The event loop's handler only cancels awaited work.
    """

    def taking(result: Result) -> bool:
        with interrupting(None):
            return take(result)

    return taking


class _EventLoop(AbstractContextManager[Drive]):
    """An event loop; no signal interrupts its start or end."""

    def __init__(self, *, bulk: bool, reader: int | None) -> None:
        """`reader` is a pipe; if its reader exits, the command ends."""
        self._bulk = bulk
        self._reader = reader
        self._alone = False  # the reader has exited
        self._ended = False  # the coroutine has finished
        self._signals: int | None = None
        self._cancel: Callable[[], None] | None = None
        self._parts = ExitStack()

    def __enter__(self) -> Drive:
        import asyncio

        factory = None
        if self._bulk:
            with suppress(ImportError):  # uvloop does not support every platform
                import uvloop

                factory = uvloop.new_event_loop
        self._parts.enter_context(interrupting(self._interrupt))
        if factory is None:  # uvloop wakes up by itself
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
                loop.call_soon_threadsafe(_nothing)  # wakes a loop that waits for files

            self._cancel = cancel
            if received() is not None:  # a signal came earlier
                task.cancel()

            def alone() -> None:
                self._alone = True
                if reader is not None:
                    loop.remove_reader(reader)
                task.cancel()

            if reader is not None:
                loop.add_reader(reader, alone)  # only its end can make it readable
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
    """Return the descriptor of a stream that is a pipe."""
    try:
        descriptor = stream.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError):  # not a file
        return None


def _nothing() -> None:
    pass
