"""The thread that sends log records as messages, with an event loop of its own."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mq.client.errors import MQError, RouteNotFound
from mq.client.options import ClientOptions
from mq.protocol.message import Message

if TYPE_CHECKING:
    from mq.client.producer.producer import Producer

REPORT_SECONDS = 60.0  # between two lines about dropped records
_SEND_SECONDS = 5.0
_LEAST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # before records that no broker accepted are retried


class Source(Protocol):
    """The queue of records: the handler."""

    def take(self) -> list[Message]: ...

    def settle(self, count: int, *, dropped: bool = False) -> None: ...

    def report(self, reason: str, *, at_once: bool = False) -> None: ...


class _OwnLoop(asyncio.SelectorEventLoop):
    """A private event loop that resolves names itself, without threads.

    At Python's exit threads can no longer be started, but queued records must still be sent.
    """

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class LogSender:
    """The thread that sends the records of one handler."""

    def __init__(
        self,
        source: Source,
        namesrv: str | Sequence[str],
        group: str,
        client: ClientOptions,
    ) -> None:
        self._source = source
        self._place = namesrv, group, client
        # Created in the thread: asyncio logs when a loop is created, and that record must not
        # return here.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._ending = asyncio.Event()
        self._is_woken = False  # whether a call that sets `_woken` is scheduled
        self._ends = False
        # A daemon: only `close` joins it, so an unclosed handler does not keep Python alive.
        self.thread = threading.Thread(target=self._run, name="mq-log", daemon=True)

    def wake(self) -> None:
        """Wake the thread because records are queued. May be called from any thread."""
        if not self._is_woken:
            self._is_woken = True
            self._call(self._woken.set)

    def end(self, seconds: float) -> None:
        """Stop the thread, and wait for it for at most `seconds`."""
        self._ends = True
        self._call(self._woken.set)
        self._call(self._ending.set)
        self.thread.join(seconds)

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is not None:  # otherwise the thread has not started its loop yet
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        self._loop = loop = _OwnLoop()
        try:
            while not self._ends:
                try:
                    loop.run_until_complete(self._send_all())
                except Exception as error:  # from opening or closing its client
                    self._source.report(repr(error))
                    loop.run_until_complete(_within(_LONGEST_PAUSE, self._ending))
        finally:
            loop.close()

    async def _send_all(self) -> None:
        # Imported here so that importing this module does not import the producer.
        from mq.client.producer.producer import Producer

        namesrv, group, client = self._place
        async with Producer(namesrv, group, client=client, timeout=_SEND_SECONDS) as producer:
            while not self._ends:
                self._is_woken = False
                self._woken.clear()
                while not self._ends and (batch := self._source.take()):
                    await self._send(producer, batch)
                self._source.report("the queue was full")
                if not self._ends:
                    await _within(REPORT_SECONDS, self._woken)

    async def _send(self, producer: "Producer", batch: list[Message]) -> None:
        """Send records; retries until the end while no broker is available."""
        pause = _LEAST_PAUSE
        while not self._ends:
            try:
                if len(batch) == 1:
                    await producer.send(batch[0])
                else:
                    await producer.send_batch(batch)
            except Exception as error:
                # Without a running broker there is no route; one may appear.
                waits = isinstance(error, RouteNotFound)
                if not waits and not (isinstance(error, MQError) and error.retriable):
                    await self._send_singly(producer, batch, error)
                    return
                self._source.report(f"the queue was full: {error}")
                await _within(pause, self._ending)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._source.settle(len(batch))
                return

    async def _send_singly(
        self, producer: "Producer", batch: list[Message], error: Exception
    ) -> None:
        """Send records one by one after a batch was refused, so that only the refused ones are
        dropped.
        """
        if len(batch) == 1:
            self._source.settle(1, dropped=True)
            self._source.report(str(error))
            return
        for message in batch:
            await self._send(producer, [message])


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
