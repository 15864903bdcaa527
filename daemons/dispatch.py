"""Dispatcher: passes requests to their handlers, and turns results into replies.

Requests go to a handler by their code; those of the hot path go to a direct handler, undecoded
except for the header's JSON.

A handler is a plain function ``(command, channel) -> Command | None``. It returns the reply, or
None if nothing is to be sent now: because the request is one-way, or because the handler keeps the
channel and replies later. A handler that waits for I/O is an ``async def``; it runs as a task of
the dispatcher. Every exception becomes an error reply, so handlers just raise. Some requests wait
for earlier ones on their connection: see `turns`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Protocol

from mq.client.machine.clock import perf_counter
from mq.client.transport.tasks import end_with
from mq.daemons.channel import Bulk, Channel, NotReady, PutOff
from mq.daemons.connection_order import TURNS, ConnectionOrder
from mq.daemons.memory import cost_of
from mq.daemons.overload.busy_reply import WAIT_SETTING, BusyReply, refuse_sends
from mq.daemons.time_slices import OneAtATime
from mq.protocol.codes import Dialect, RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError

log = logging.getLogger(__name__)

# Limit of a JSON body decoded in the event loop: larger ones take milliseconds.
LARGE_BODY = 16 * 1024
# Memory of a request that is answered later, in addition to its content: a task, a command.
_TASK_COST = 4096
_ORDINARY = Dialect.ORDINARY
# Limit of calls of a handler that needs preparations: each call may need another one.
_MOST_CALLS = 3

Reply = Command | None
Handler = Callable[[Command, Channel], Reply | Awaitable[Reply]]
# A handler of the hot path: header (its JSON form, checked to be an object), body, channel. It
# writes its own replies and only gets requests in JSON.
DirectHandler = Callable[[dict[str, object], bytes, Channel], None]


class Guard(Protocol):
    """Access check called before any handler. All methods raise Refused for a request that is not
    allowed.

    The guard sees what the handler uses: a header or body read by `Command.read_header` and
    `Command.read_body` is the very object that the handler gets. For the codes in `reads_body_of`
    it reads the body, in a thread if the body is large.
    """

    reads_body_of: Container[int]

    def guard(self, command: Command, channel: Channel) -> None:
        """Check an ordinary request."""

    def guard_dialect(self, command: Command, channel: Channel) -> None:
        """Check a request whose code has the meaning of the channel's dialect."""

    def guard_direct(
        self, code: int, fields: Mapping[str, str], body: bytes, channel: Channel
    ) -> None:
        """Check a request of the hot path, whose handler reads the names from `fields`, too."""


class Refused(Exception):
    """Refuses a valid request: becomes a reply with this code and remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Overloaded(Refused):
    """Refuses a request because a limit is reached; `limit` is the setting, which the remark names,
    too.
    """

    def __init__(self, limit: str, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_BUSY, f"{remark} ({limit})")
        self.limit = limit


def guarded(handler: Handler, guard: Guard) -> Handler:
    """Wrap a handler so that it is only called for requests that the guard allows."""

    one_at_a_time = OneAtATime()

    def call(command: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        if len(command.body) > LARGE_BODY and command.code in guard.reads_body_of:
            return call_late(command, channel)
        guard.guard(command, channel)
        return handler(command, channel)

    async def call_late(command: Command, channel: Channel) -> Reply:
        async with one_at_a_time.turn(channel):
            await asyncio.to_thread(guard.guard, command, channel)
        reply = handler(command, channel)
        return await reply if isinstance(reply, Awaitable) else reply

    return call


def guarded_in_dialect(handler: Handler, guard: Guard) -> Handler:
    """Like `guarded`, for a request with another meaning on ordinary connections."""

    def call(command: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        guard.guard_dialect(command, channel)
        return handler(command, channel)

    return call


def guarded_direct(code: int, handler: DirectHandler, guard: Guard) -> DirectHandler:
    """Like `guarded`, for a handler of the hot path."""

    def call(header: dict[str, object], body: bytes, channel: Channel) -> None:
        fields = header.get("extFields") or {}
        if not isinstance(fields, dict):
            raise TypeError("extFields is not an object")
        guard.guard_direct(code, fields, body, channel)
        handler(header, body, channel)

    return call


def _when_ready(handler: Handler) -> Handler:
    """Wrap a handler so that it is called again after its preparation (NotReady)."""

    def call(command: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        try:
            return handler(command, channel)
        except NotReady as error:
            return _call_again(handler, error, command, channel)

    return call


async def _call_again(
    handler: Handler, error: NotReady, command: Command, channel: Channel
) -> Reply:
    for _ in range(_MOST_CALLS):
        needed = await error.prepare(channel)
        if channel.closed:  # a client registered now would never be removed
            raise ConnectionError("closed before its turn")
        try:
            result = handler(command, channel)
            return await result if isinstance(result, Awaitable) else result
        except NotReady as another:
            error = another
        del needed
    raise Refused(ResponseCode.SYSTEM_BUSY, "the request's preparation is not ready; try again")


def unknown_code(command: Command) -> Command:
    """The reply to a request without a handler."""
    return command.reply(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f"request type {command.code} not supported",
    )


def error_reply(command: Command, error: Exception) -> Command:
    """The error reply for a failed request."""
    if isinstance(error, Refused):
        return command.reply(error.code, remark=error.remark)
    if isinstance(error, RemoteProtocolError):
        return command.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    return command.reply(
        ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error or 'no details'}"
    )


class Dispatcher:
    """The handlers of a port: passes each request to its handler, and counts errors.

    ``handlers`` serve ordinary requests, ``direct`` those of the hot path. ``guard`` is called
    before every handler; without one there is no overhead. An ordinary request that takes over
    ``slow_seconds`` is logged and counted; 0 means no limit. ``turns`` has the per-connection order
    by request code.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        direct: Mapping[int, DirectHandler] | None = None,
        *,
        guard: Guard | None = None,
        slow_seconds: float = 0.0,
        turns: Mapping[int, ConnectionOrder] = TURNS,
    ) -> None:
        self._guard = guard
        self._turns = turns
        self.handlers: dict[int, Handler] = {}
        # The meaning of codes in other dialects, if it differs.
        self.in_dialect: dict[tuple[Dialect, int], Handler] = {}
        # Keys may be any object: a header's code is checked by looking it up.
        self.direct: dict[object, DirectHandler] = {}
        self.bulk: Bulk | None = None
        self.defer: PutOff | None = None
        self.serve(handlers, direct)
        self.bad_requests = 0
        self.refusals: Counter[tuple[int, str]] = Counter()  # by request code and cause
        self.slow_requests: Counter[int] = Counter()  # by request code
        self.tasks: dict[asyncio.Task[None], None] = {}  # tasks of requests that are answered later
        self._slow_seconds = slow_seconds or float("inf")
        self._stale_reply = BusyReply(
            f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while ({WAIT_SETTING})"
        )

    def serve(
        self, handlers: Mapping[int, Handler], direct: Mapping[int, DirectHandler] | None = None
    ) -> None:
        """Serve these requests, too; for a daemon that needs its port before its handlers."""
        guard = self._guard
        for code, handler in handlers.items():
            allowed = handler if guard is None else guarded(handler, guard)
            self.handlers[code] = _when_ready(allowed)
        for code, direct_handler in (direct or {}).items():
            self.direct[code] = (
                direct_handler if guard is None else guarded_direct(code, direct_handler, guard)
            )

    def serve_dialect(self, dialect: Dialect, handlers: Mapping[int, Handler]) -> None:
        """Serve these requests on connections of a dialect."""
        guard = self._guard
        for code, handler in handlers.items():
            self.in_dialect[dialect, code] = (
                handler if guard is None else guarded_in_dialect(handler, guard)
            )

    def serve_bulk(self, bulk: Bulk | None, defer: PutOff | None = None) -> None:
        """Offer received data to these functions first, unless there is a guard, which must see
        each request.
        """
        self.bulk = bulk if self._guard is None else None
        self.defer = defer if self._guard is None else None

    def handle(self, command: Command, channel: Channel) -> None:
        """Pass a request to its handler and send the result."""
        handler = turn = None
        if channel.dialect is not _ORDINARY:
            handler = self.in_dialect.get((channel.dialect, command.code))
        if handler is None:
            handler = self.handlers.get(command.code)
            turn = self._turns.get(command.code)
        reply: Reply
        if handler is None:
            reply = unknown_code(command)
        else:
            try:
                began = perf_counter()
                if turn is None:
                    result = handler(command, channel)
                else:
                    result = turn.call(handler, command, channel)
            except Exception as error:
                reply = self.failed(command, channel, error)
            else:
                if result is not None and isinstance(result, Awaitable):
                    cost = _TASK_COST + cost_of(command)
                    channel.reserve(cost)
                    work = self._await(handler, command, channel, result, began)
                    task = asyncio.ensure_future(work)
                    self.tasks[task] = None
                    task.add_done_callback(self.tasks.pop)
                    # Not by the task itself, which does nothing if it is cancelled before its first
                    # step.
                    task.add_done_callback(lambda _: channel.reserve(-cost))
                    end_with(task, result)
                    if turn is not None:
                        turn.begin(task, channel)
                    return
                if perf_counter() - began > self._slow_seconds:
                    self._was_slow(command, channel, perf_counter() - began)
                reply = result
        self._send(command, channel, reply)

    async def finish(self, seconds: float) -> None:
        """Wait a limited time for requests in progress."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=seconds)

    async def cancel(self) -> None:
        """Cancel the requests in progress."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        if tasks:  # not gathered: a cancelled gather continues until the last task has ended
            await asyncio.wait(tasks)

    def failed(self, command: Command, channel: Channel, error: Exception) -> Command:
        """The reply for a request that raised an error; errors that are not the peer's fault are
        logged.
        """
        if isinstance(error, Refused):
            cause = error.limit if isinstance(error, Overloaded) else error.code.name
            self.refusals[command.code, cause] += 1
        elif not isinstance(error, RemoteProtocolError):
            log.error(
                "request %d of %s failed",
                command.code,
                channel.remote,
                exc_info=error,
                extra={"failure": f"request {command.code}"},
            )
        else:
            self.complain(channel, error)
        return error_reply(command, error)

    def complain(self, channel: Channel, error: Exception) -> None:
        """Count a bad request and log it; the log passes one line per second and peer."""
        self.bad_requests += 1
        log.warning(
            "bad request from %s: %s: %s",
            channel.remote,
            type(error).__name__,
            error,
            extra={"peer": channel.remote_address[0]},
        )

    def refuse_stale(self, channel: Channel, data: bytes) -> bytes:
        """Answer the sends with SYSTEM_BUSY and return the other requests."""
        replies, count, rest = refuse_sends(data, self._stale_reply)
        if replies:
            channel.queue_frame(replies)
        if count:
            self.refusals[RequestCode.SEND_MESSAGE_V2, WAIT_SETTING] += count
            log.warning(
                "refusing sends that have waited too long (%s)",
                WAIT_SETTING,
                extra={"failure": "sends in time"},
            )
        return rest

    async def _await(
        self,
        handler: Handler,
        command: Command,
        channel: Channel,
        result: Awaitable[Reply],
        began: float,
    ) -> None:
        try:
            try:
                reply = await result
            except NotReady as error:
                reply = await _call_again(handler, error, command, channel)
        except Exception as error:
            if channel.closed and isinstance(error, ConnectionError):
                return  # the peer disconnected while its request waited
            reply = self.failed(command, channel, error)
        if perf_counter() - began > self._slow_seconds:
            self._was_slow(command, channel, perf_counter() - began)
        self._send(command, channel, reply)

    def _was_slow(self, command: Command, channel: Channel, seconds: float) -> None:
        self.slow_requests[command.code] += 1
        log.warning(
            "request %d of %s took %.3f s",
            command.code,
            channel.remote,
            seconds,
            extra={"failure": f"slow requests {command.code}"},
        )

    def _send(self, command: Command, channel: Channel, reply: Reply) -> None:
        if reply is None or command.is_one_way or channel.closed:
            return
        try:
            channel.send(reply)
        except LocalProtocolError as error:
            channel.send(error_reply(command, error))
