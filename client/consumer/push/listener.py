"""Listeners: the user's functions that consume messages, and the exceptions they may raise."""

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from mq.client.errors import ClientError
from mq.client.transport.tasks import is_meant
from mq.protocol.message import StoredMessage

#: Consumes one message, as `async def` or as a plain function, which then runs in a thread. #:
#: Returning finishes the message; raising sends it back for a later redelivery.
Listener = Callable[[StoredMessage], Any]
#: The same for several messages of one queue at a time.
BatchListener = Callable[[list[StoredMessage]], Any]

MAX_DELAY_LEVEL = 18
# Bounds of Java's ConsumeMessageOrderlyService.submitConsumeRequestLater.
_LEAST_SUSPENSION = 0.01
_MOST_SUSPENSION = 30.0


class RetryLater(Exception):
    """Raised by a listener to have the message redelivered with a chosen delay.

        async def listen(message):
            if not ready():
                raise RetryLater(delay_level=5)

    A `delay_level` of 0 lets the broker choose (10 s at first, longer each time), 1 to 18 are the
    broker's levels, and -1 makes the message a dead letter at once. Of a batch, the first
    `consumed` messages are finished. Raises ClientError for another level. Ordered consumption
    supports only `SuspendQueue`.
    """

    def __init__(self, delay_level: int = 0, *, consumed: int = 0) -> None:
        if not -1 <= delay_level <= MAX_DELAY_LEVEL:
            raise ClientError(f"a delay level is -1 to {MAX_DELAY_LEVEL}, not {delay_level}")
        super().__init__(f"again with delay level {delay_level}")
        self.delay_level = delay_level
        self.consumed = max(0, consumed)


class SuspendQueue(Exception):
    """Raised by an ordered listener to suspend its queue; then the message is delivered again.

    The pause is `seconds`, at least 0.01 and at most 30; None means the consumer's `suspension`.
    """

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__("the queue is suspended")
        self.seconds = seconds


class ListenerFailed(Exception):
    """A listener raised something other than an ordinary exception, which is the cause."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the listener raised {type(error).__name__}: {error}")


def _outcome(listener: Callable[..., Any], argument: object) -> tuple[Any, BaseException | None]:
    """Return what a listener returns or raises; a future cannot carry every exception."""
    try:
        return listener(argument), None
    except BaseException as error:
        return None, error


def _ordinary(error: BaseException) -> Exception:
    """Return the error itself if a coroutine can raise it as an Exception."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    failed = ListenerFailed(error)
    failed.__cause__ = error
    return failed


def make_call(
    listener: Listener | None,
    batch_listener: BatchListener | None,
    batch: int,
    ordered: bool,
    threads: int,
) -> "Call | None":
    """Create the caller of the given listener; None for a consumer that is read in loops.

    Raises ClientError for an invalid combination.
    """
    chosen = batch_listener or listener
    if listener is not None and batch_listener is not None:
        raise ClientError("a consumer has a listener or a batch listener, not both")
    if ordered and chosen is None:
        raise ClientError("ordered consumption needs a listener")
    if batch < 1 or (batch > 1 and batch_listener is None):
        raise ClientError("a batch is at least 1, and more than 1 needs a batch_listener")
    if chosen is None:
        return None
    return Call(chosen, batch=batch_listener is not None, threads=threads)


def suspension_of(error: BaseException, default: float) -> float:
    """Return how many seconds a queue pauses after its listener raised `error`."""
    seconds = default
    if isinstance(error, SuspendQueue) and error.seconds is not None:
        seconds = error.seconds
    return min(max(seconds, _LEAST_SUSPENSION), _MOST_SUSPENSION)


def _in_loop(
    loop: asyncio.AbstractEventLoop, callback: Callable[[bool], None]
) -> Callable[[Future[tuple[Any, BaseException | None]]], None]:
    """Return a done callback for a thread: it calls `callback` in the loop, unless the loop has
    ended, with whether the listener returned, and returned nothing that must be awaited.
    """

    def done(work: Future[tuple[Any, BaseException | None]]) -> None:
        result, error = (None, CancelledError()) if work.cancelled() else work.result()
        returned = error is None and not inspect.isawaitable(result)
        if inspect.iscoroutine(result):  # never awaited
            result.close()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(callback, returned)

    return done


class Call:
    """Calls a listener: on the event loop if it is async, otherwise in one of `threads` threads."""

    def __init__(self, listener: Callable[..., Any], *, batch: bool, threads: int) -> None:
        self._listener = listener
        self._batch = batch
        self._pool: ThreadPoolExecutor | None = None
        if not (
            inspect.iscoroutinefunction(listener)
            or inspect.iscoroutinefunction(getattr(listener, "__call__", None))  # noqa: B004
        ):
            self._pool = ThreadPoolExecutor(threads, thread_name_prefix="mq-listener")

    async def __call__(
        self, messages: list[StoredMessage], on_left: Callable[[bool], None] = lambda _: None
    ) -> None:
        """Call the listener. Raises what it raises, always as an Exception.

        `on_left` is called when no code is inside the listener any more: before this call ends, or
        after it if it was cancelled, because a thread continues. Its argument is whether the
        listener returned normally.

        ListenerFailed wraps what is not an Exception, for example the CancelledError of something
        that the listener awaited. Only KeyboardInterrupt and SystemExit of an async listener, which
        are meant for the program, and a cancellation of the caller are passed on.
        """
        argument = messages if self._batch else messages[0]
        work: Future[tuple[Any, BaseException | None]] | None = None
        has_ended = has_returned = False
        try:
            if self._pool is None:
                await self._listener(argument)
                has_returned = True
                return
            context = contextvars.copy_context()  # includes what hooks have set, for example a span
            work = self._pool.submit(context.run, _outcome, self._listener, argument)
            result, error = await asyncio.wrap_future(work)
            has_ended = True
            if error is not None:
                raise _ordinary(error)
            if inspect.isawaitable(result):  # from a plain function that wraps an async one
                await result
            has_returned = True
        except (Exception, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if is_meant(error) and isinstance(error, asyncio.CancelledError):
                raise
            raise ListenerFailed(error) from error
        finally:
            if work is None or has_ended:
                on_left(has_returned)
            else:
                work.add_done_callback(_in_loop(asyncio.get_running_loop(), on_left))

    def close(self) -> None:
        """Let the threads end after their current work."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
