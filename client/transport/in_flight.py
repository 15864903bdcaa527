"""Requests in flight over one connection: batched writes, pending answers and timeouts.

No task and no await is needed per request: a request is appended to the connection's batch, and a
future represents its answer. The batch is written to the socket once per turn of the event loop.
Deadlines are stored with the futures and checked by one timer per connection, because a timer per
request costs more than the request itself. Subclasses define how requests are encoded and answers
decoded.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from mq.client.errors import ConnectError, MQError, RequestTimeout, reason_of

# A timeout ends a connection that has received nothing, not even answers to other requests, for
# this long. Otherwise requests would be sent forever to a machine that vanished without a reset.
SILENCE_SECONDS = 3.0


class Waiter(Protocol):
    """Receives the answer to a request: a future, or a proxy's replacement for one."""

    def done(self) -> bool:
        """Whether the answer is no longer needed."""

    def set_result(self, response: Any, /) -> None:
        """Accept the answer, whatever its code."""

    def set_exception(self, error: MQError, /) -> None:
        """Accept the failure of the request."""


class Pending:
    """A request that waits for its answer."""

    __slots__ = ("code", "convert", "deadline", "future", "raised", "seconds")

    def __init__(
        self,
        future: "asyncio.Future[Any] | Waiter",
        deadline: float,
        seconds: float,
        code: int,
        convert: Callable[[Any], Any] | None,
        raised: Callable[[Any], Exception] | None = None,
    ) -> None:
        self.future = future
        self.deadline = deadline
        self.seconds = seconds
        self.code = code
        self.convert = convert  # converts the answer to the result
        self.raised = raised  # converts an error answer to an exception


class InFlight(asyncio.Protocol):
    """A connection to one address, and its pending requests. It is not reused after its end.

    It exists from its first request on: requests written before the connection is established are
    sent once it is, or fail with it. ``owner`` names the closing party in errors. A subclass
    implements `_dial` and passes a task of `_connect` to `_await_connection`.
    """

    _connecting: "asyncio.Task[None]"
    _PEER = "peer"  # the peer's name in errors

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop, owner: str) -> None:
        self.address = address
        self.error: MQError | None = None  # why the connection ended
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, Pending] = {}
        self._batch: list[bytes] = []
        self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard = loop.time()  # time of the peer's last bytes, or of the connection
        self._writable: asyncio.Future[None] | None = None  # set while the socket's buffer is full

    def _await_connection(self, connecting: "asyncio.Task[None]") -> None:
        self._connecting = connecting
        connecting.add_done_callback(self._on_connect_done)

    def _on_connect_done(self, _: "asyncio.Task[None]") -> None:
        """End the connection if the attempt failed, or was cancelled before it started, so that no
        request is left waiting.
        """
        if self._transport is None:
            self._end(self._unconnected(f"the {self._owner} was closed"))

    async def _connect(self, seconds: float) -> None:
        """Connect, or end with the reason."""
        try:
            async with asyncio.timeout(seconds):
                await self._dial()
        except TimeoutError:
            self._end(self._unconnected("no connection in time"))
        except OSError as error:
            self._end(self._unconnected(reason_of(error)))
        except ValueError:  # from the resolver: part of the name is empty, too long, or has a NUL
            self._end(self._unconnected("not a valid host name"))
        except MQError as error:
            self._end(error)
        except asyncio.CancelledError:  # the connection may exist by now
            self._end(self._unconnected(f"the {self._owner} was closed"))
            raise

    async def _dial(self) -> None:
        """Connect this protocol. Raises OSError, ValueError, MQError."""
        raise NotImplementedError

    def _unconnected(self, reason: str) -> ConnectError:
        """Return the error for a failed connection."""
        return ConnectError(self.address, reason)

    @property
    def stands(self) -> bool:
        """Whether the connection is established and has not ended."""
        return self._transport is not None and self.error is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, so the type cannot be checked.
        self._transport = transport = cast(asyncio.Transport, transport)
        if self.error is not None:
            transport.abort()
            return
        self._heard = self._loop.time()
        self._made(transport)
        self._flush()

    def _made(self, transport: asyncio.Transport) -> None:
        """Called when the connection is established, before anything is written."""

    def _write_soon(self) -> None:
        """Schedule the batch to be written at the end of this turn, or once connected."""
        if not self._flush_is_due and self._transport is not None:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._batch and self._transport is not None:
            self._transport.write(b"".join(self._batch))
            self._batch.clear()

    async def drain(self) -> None:
        """Wait while the socket's buffer is full. Raises the error with which the connection ended,
        if any.
        """
        if self._transport is None and self.error is None:
            await asyncio.wait([self._connecting])
        while self._writable is not None:
            await asyncio.shield(self._writable)
        if self.error is not None:
            raise self.error

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def _wait(self, key: int, pending: Pending) -> None:
        """Register a written request as pending."""
        self._pending[key] = pending
        if self._timer is None or pending.deadline < self._timer.when():
            self._watch(pending.deadline)

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail overdue requests, and rearm the timer for the next deadline.

        If nothing at all was received meanwhile, the connection may be dead: it ends, so that the
        next request opens another one.
        """
        self._timer = None
        now = self._loop.time()
        is_dead, codes = False, []
        for key in [key for key, entry in self._pending.items() if entry.deadline <= now]:
            entry = self._pending.pop(key)
            if not entry.future.done():
                entry.future.set_exception(RequestTimeout(self.address, entry.seconds, entry.code))
                codes.append(entry.code)
                is_dead = is_dead or self._heard <= now - SILENCE_SECONDS
        self._unanswered(codes)
        if is_dead:
            reason = f"nothing was heard for {now - self._heard:.1f} s"
            # A closed transport would wait for data that the peer never reads: abort it.
            self._end(ConnectError(self.address, reason), flushes=False)
        elif self._pending:
            self._watch(min(entry.deadline for entry in self._pending.values()))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f"the {self._PEER} closed the connection"
        if exc is not None:
            reason = reason_of(exc) if isinstance(exc, OSError) else str(exc)
        self._end(ConnectError(self.address, reason))

    def _end(self, error: MQError, *, flushes: bool = True) -> None:
        """End the connection: every pending request fails with `error`."""
        if self.error is not None:
            return
        self.error = error
        self._over()
        self._unanswered([entry.code for entry in self._pending.values()])
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            if flushes:
                self._transport.close()
            else:
                self._transport.abort()
        self.resume_writing()
        self._batch.clear()
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(error)
        self._pending.clear()
        if not self.ended.done():
            self.ended.set_result(None)

    def _unanswered(self, codes: Iterable[int]) -> None:
        """Called for requests that got no answer in time, or whose connection ended."""

    def _over(self) -> None:
        """Called when the connection has ended, before pending requests fail."""

    def close(self) -> None:
        """Send the batch and end the connection. Pending requests fail."""
        self._flush()
        self._connecting.cancel()
        self._end(ConnectError(self.address, f"the {self._owner} was closed"))
