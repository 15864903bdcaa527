"""Dispatcher: from a request to its handler, and from what the handler does to a reply.

Requests go to a handler by their code; those of the hot path go, still undecoded but for the
header's JSON, to a direct handler.

A handler is a plain function ``(command, channel) -> Command | None``. It returns the reply, or
None when nothing is to be sent now: because the request was one-way, or because the handler keeps
the channel and replies later. One that must wait for I/O is an ``async def``; it runs as a task of
the dispatcher. Whatever goes wrong becomes an error reply, so that a handler only says what is
wrong. Some requests wait for those before them on their connection: see `turns`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Protocol

from mq.client.cancellation import end_with
from mq.client.machine.clock import perf_counter
from mq.daemons.channel import Bulk, Channel, NotReady, PutOff
from mq.daemons.connection_order import TURNS, ConnectionOrder
from mq.daemons.memory import cost_of
from mq.daemons.overload.busy_reply import WAIT_SETTING, BusyReply, refuse_sends
from mq.daemons.time_slices import OneAtATime
from mq.protocol.codes import Dialect, RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError

log = logging.getLogger(__name__)

# A body of JSON over so many bytes keeps a reader busy for milliseconds: not in the loop.
LARGE_BODY = 16 * 1024
# What a request costs that is answered later, besides what it brought: a task, a command.
_TASK_COST = 4096
_ORDINARY = Dialect.ORDINARY
# Calls of a handler that needs something first: each may need something else than the one before.
_MOST_CALLS = 3

Reply = Command | None
Handler = Callable[[Command, Channel], Reply | Awaitable[Reply]]
# A handler of the hot path: header (its JSON form, checked to be an object), body, channel. It
# writes its own replies and is only given requests in JSON.
DirectHandler = Callable[[dict[str, object], bytes, Channel], None]


class Guard(Protocol):
    """Is asked before any handler. Both raise Refused for what is not allowed.

    It sees what the handler uses: a header or body that it reads by `Command.read_header` and
    `Command.read_body` is the very object that the handler gets. Of the codes in `reads_body_of`
    it reads the body; when that is large, it does so in a thread.
    """

    reads_body_of: Container[int]

    def guard(self, command: Command, channel: Channel) -> None:
        """An ordinary request."""

    def guard_dialect(self, command: Command, channel: Channel) -> None:
        """An ordinary request whose code means what the channel's dialect says."""

    def guard_direct(
        self, code: int, fields: Mapping[str, str], body: bytes, channel: Channel
    ) -> None:
        """One of the hot path, whose handler reads the names from `fields`, too."""


class Refused(Exception):
    """The request is understood and refused: becomes a reply with this code and remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Overloaded(Refused):
    """Refused because a limit is reached; `limit` is the setting, and the remark names it, too."""

    def __init__(self, limit: str, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_BUSY, f"{remark} ({limit})")
        self.limit = limit


def guarded(handler: Handler, guard: Guard) -> Handler:
    """A handler that is only called for what the guard lets through."""

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
    """The same of a request that means something else on ordinary connections."""

    def call(command: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        guard.guard_dialect(command, channel)
        return handler(command, channel)

    return call


def guarded_direct(code: int, handler: DirectHandler, guard: Guard) -> DirectHandler:
    """The same for a handler of the hot path."""

    def call(header: dict[str, object], body: bytes, channel: Channel) -> None:
        fields = header.get("extFields") or {}
        if not isinstance(fields, dict):
            raise TypeError("extFields is not an object")
        guard.guard_direct(code, fields, body, channel)
        handler(header, body, channel)

    return call


def _when_ready(handler: Handler) -> Handler:
    """A handler that is called again when what it needs first is there (NotReady)."""

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
        if channel.closed:  # a client that it registers now would never be removed
            raise ConnectionError("closed before its turn")
        try:
            result = handler(command, channel)
            return await result if isinstance(result, Awaitable) else result
        except NotReady as another:
            error = another
        del needed
    raise Refused(ResponseCode.SYSTEM_BUSY, "what the request needs is not ready; try again")


def unknown_code(command: Command) -> Command:
    """What a peer gets for a request that nobody handles here."""
    return command.reply(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f"request type {command.code} not supported",
    )


def error_reply(command: Command, error: Exception) -> Command:
    """The reply that tells a peer why its request failed."""
    if isinstance(error, Refused):
        return command.reply(error.code, remark=error.remark)
    if isinstance(error, RemoteProtocolError):
        return command.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    return command.reply(
        ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error or 'no details'}"
    )


class Dispatcher:
    """The handlers behind a port: it gives each request to its own, and counts what goes wrong.

    ``handlers`` answer ordinary requests, ``direct`` those of the hot path. ``guard`` is asked
    before every handler; without one nothing is paid for it. An ordinary request that takes over
    ``slow_seconds`` is logged and counted; 0 stands for no limit. ``turns`` says which requests of
    a connection wait for each other, by code.
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
        # What codes mean on connections of other dialects, where that differs.
        self.in_dialect: dict[tuple[Dialect, int], Handler] = {}
        # Any object may be asked for: a header's code is checked by looking it up.
        self.direct: dict[object, DirectHandler] = {}
        self.bulk: Bulk | None = None
        self.defer: PutOff | None = None
        self.serve(handlers, direct)
        self.bad_requests = 0
        self.refusals: Counter[tuple[int, str]] = Counter()  # by request code and cause
        self.slow_requests: Counter[int] = Counter()  # by request code
        self.tasks: dict[asyncio.Task[None], None] = {}  # of requests that are answered later
        self._slow_seconds = slow_seconds or float("inf")
        self._stale_reply = BusyReply(
            f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while ({WAIT_SETTING})"
        )

    def serve(
        self, handlers: Mapping[int, Handler], direct: Mapping[int, DirectHandler] | None = None
    ) -> None:
        """Answer these requests too; for a daemon that needs its port before its handlers."""
        guard = self._guard
        for code, handler in handlers.items():
            allowed = handler if guard is None else guarded(handler, guard)
            self.handlers[code] = _when_ready(allowed)
        for code, direct_handler in (direct or {}).items():
            self.direct[code] = (
                direct_handler if guard is None else guarded_direct(code, direct_handler, guard)
            )

    def serve_dialect(self, dialect: Dialect, handlers: Mapping[int, Handler]) -> None:
        """Answer these requests where they come on connections of a dialect."""
        guard = self._guard
        for code, handler in handlers.items():
            self.in_dialect[dialect, code] = (
                handler if guard is None else guarded_in_dialect(handler, guard)
            )

    def serve_bulk(self, bulk: Bulk | None, defer: PutOff | None = None) -> None:
        """Offer what comes to these first, unless there is a guard: that is to see each request."""
        self.bulk = bulk if self._guard is None else None
        self.defer = defer if self._guard is None else None

    def handle(self, command: Command, channel: Channel) -> None:
        """Give a request to its handler and send what comes of it."""
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
                    # Not by the task itself: cancelled before its first step, it does nothing.
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
        """Wait at most so long for requests that are being handled."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=seconds)

    async def cancel(self) -> None:
        """Give up the requests that are being handled."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        if tasks:  # not gathered: cancelled, that goes on until the last of them has ended
            await asyncio.wait(tasks)

    def failed(self, command: Command, channel: Channel, error: Exception) -> Command:
        """The reply for a request that raised; what is not the peer's own fault is logged."""
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
        """Count a bad request and log it; the log lets one line a second through for each peer."""
        self.bad_requests += 1
        log.warning(
            "bad request from %s: %s: %s",
            channel.remote,
            type(error).__name__,
            error,
            extra={"peer": channel.remote_address[0]},
        )

    def refuse_stale(self, channel: Channel, data: bytes) -> bytes:
        """Answer the sends with SYSTEM_BUSY and return the rest."""
        replies, count, rest = refuse_sends(data, self._stale_reply)
        if replies:
            channel.queue_frame(replies)
        if count:
            self.refusals[RequestCode.SEND_MESSAGE_V2, WAIT_SETTING] += count
            log.warning(
                "sends have waited too long and are refused (%s)",
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
                return  # it went away while its request waited for its turn
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
