"""Requests in flight over a connection: what is written together, what waits, what is overdue.

Nothing here makes a task or awaits per request: a request is written into the connection's batch,
and a future stands for its answer. One write per turn of the event loop goes to the socket.
Deadlines are kept beside the futures and looked at by one timer per connection, because a timer per
request costs more than the request. How requests look, and how answers are read, subclasses say.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from mq.client.errors import ConnectError, MQError, RequestTimeout, reason_of

# A time-out ends a connection on which nothing has come for so long, answers to others included:
# a peer's machine that went away without a word would else be sent to for ever.
SILENCE_SECONDS = 3.0


class Waiter(Protocol):
    """Who is told the answer to a request: a future, or what a proxy has in its place."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, response: Any, /) -> None:
        """The answer, whatever its code."""

    def set_exception(self, error: MQError, /) -> None:
        """There will be none."""


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
        self.convert = convert  # makes the result of the answer
        self.raised = raised  # makes the error of an answer that is one


class InFlight(asyncio.Protocol):
    """A connection to one address, and what waits for its answers. Ends once.

    It exists from its first request on: what is written before it stands goes out when it does, or
    fails when it cannot. ``owner`` is what its errors call whoever closes it. Subclasses say how
    to `_dial`, and give `_await_connection` a task of `_connect`.
    """

    _connecting: "asyncio.Task[None]"
    _PEER = "peer"  # what the other side is called in errors

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop, owner: str) -> None:
        self.address = address
        self.error: MQError | None = None  # why it has ended
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, Pending] = {}
        self._batch: list[bytes] = []
        self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard = loop.time()  # when the peer's last bytes came, or the connection stood
        self._writable: asyncio.Future[None] | None = None  # set while the socket is full

    def _await_connection(self, connecting: "asyncio.Task[None]") -> None:
        self._connecting = connecting
        connecting.add_done_callback(self._tried)

    def _tried(self, _: "asyncio.Task[None]") -> None:
        """Whatever has become of the attempt, also if it was cancelled before it began: nothing
        that waits for it is left waiting."""
        if self._transport is None:
            self._end(self._unconnected(f"the {self._owner} was closed"))

    async def _connect(self, seconds: float) -> None:
        """Make the connection, or end, and say why."""
        try:
            async with asyncio.timeout(seconds):
                await self._dial()
        except TimeoutError:
            self._end(self._unconnected("no connection in time"))
        except OSError as error:
            self._end(self._unconnected(reason_of(error)))
        except ValueError:  # of the look-up: a part of the name is empty, too long, or has a NUL
            self._end(self._unconnected("that is not the name of a host"))
        except MQError as error:
            self._end(error)
        except asyncio.CancelledError:  # it may stand by now
            self._end(self._unconnected(f"the {self._owner} was closed"))
            raise

    async def _dial(self) -> None:
        """Connect this protocol. Raises OSError, ValueError, MQError."""
        raise NotImplementedError

    def _unconnected(self, reason: str) -> ConnectError:
        """What is said where there is no connection."""
        return ConnectError(self.address, reason)

    @property
    def stands(self) -> bool:
        """Whether the connection has been made, and goes on."""
        return self._transport is not None and self.error is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, so there is nothing to check.
        self._transport = transport = cast(asyncio.Transport, transport)
        if self.error is not None:
            transport.abort()
            return
        self._heard = self._loop.time()
        self._made(transport)
        self._flush()

    def _made(self, transport: asyncio.Transport) -> None:
        """It stands; nothing has been written yet."""

    def _write_soon(self) -> None:
        """Have the batch written at the end of this turn, or when the connection stands."""
        if not self._flush_is_due and self._transport is not None:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._batch and self._transport is not None:
            self._transport.write(b"".join(self._batch))
            self._batch.clear()

    async def drain(self) -> None:
        """Wait while the socket takes no more. Raises why the connection has ended, if it has."""
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
        """Have a request that was written wait for its answer."""
        self._pending[key] = pending
        if self._timer is None or pending.deadline < self._timer.when():
            self._watch(pending.deadline)

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail what is overdue; look again when the next one may be.

        When nothing at all has come meanwhile, the connection may lead nowhere: it ends, so that
        the next request makes another one.
        """
        self._timer = None
        now = self._loop.time()
        leads_nowhere, codes = False, []
        for key in [key for key, entry in self._pending.items() if entry.deadline <= now]:
            entry = self._pending.pop(key)
            if not entry.future.done():
                entry.future.set_exception(RequestTimeout(self.address, entry.seconds, entry.code))
                codes.append(entry.code)
                leads_nowhere = leads_nowhere or self._heard <= now - SILENCE_SECONDS
        self._unanswered(codes)
        if leads_nowhere:
            reason = f"nothing was heard for {now - self._heard:.1f} s"
            # What is written will never be taken: a transport that is closed would wait for it.
            self._end(ConnectError(self.address, reason), flushes=False)
        elif self._pending:
            self._watch(min(entry.deadline for entry in self._pending.values()))

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f"the {self._PEER} closed the connection"
        if exc is not None:
            reason = reason_of(exc) if isinstance(exc, OSError) else str(exc)
        self._end(ConnectError(self.address, reason))

    def _end(self, error: MQError, *, flushes: bool = True) -> None:
        """The connection is over: every request that waits fails with `error`."""
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
        """Requests with these codes had no answer in time, or the connection has ended."""

    def _over(self) -> None:
        """It has just ended; nobody has been told yet."""

    def close(self) -> None:
        """Send what is to be sent, and end. What waits for answers fails."""
        self._flush()
        self._connecting.cancel()
        self._end(ConnectError(self.address, f"the {self._owner} was closed"))
