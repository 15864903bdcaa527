"""From a request to its handler, and from what the handler does to a reply.

A handler is a plain function ``(command, channel) -> Command | None``. It returns the reply, or
None when nothing is to be sent now: because the request was one-way, or because the handler keeps
the channel and replies later. One that must wait for I/O is an ``async def``; it runs as a task of
the listener. Whatever goes wrong becomes an error reply, so that a handler only says what is wrong.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import TYPE_CHECKING, Protocol

from mq.daemons.steps import OneAtATime
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from mq.daemons.listener import Channel

log = logging.getLogger(__name__)

# A body of JSON over so many bytes keeps a reader busy for milliseconds: not in the loop.
LARGE_BODY = 16 * 1024

Reply = Command | None
Handler = Callable[[Command, "Channel"], Reply | Awaitable[Reply]]
# A handler of the hot path: header (its JSON form, checked to be an object), body, channel. It
# writes its own replies and is only given requests in JSON.
DirectHandler = Callable[[dict[str, object], bytes, "Channel"], None]


class Guard(Protocol):
    """Is asked before any handler. Both raise Refused for what is not allowed.

    It sees what the handler uses: a header or body that it reads by `Command.read_header` and
    `Command.read_body` is the very object that the handler gets. Of the codes in `reads_body_of`
    it reads the body; when that is large, it does so in a thread.
    """

    reads_body_of: Container[int]

    def guard(self, command: Command, channel: "Channel") -> None:
        """An ordinary request."""

    def guard_direct(
        self, code: int, fields: Mapping[str, str], body: bytes, channel: "Channel"
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

    def call(command: Command, channel: "Channel") -> Reply | Awaitable[Reply]:
        if len(command.body) > LARGE_BODY and command.code in guard.reads_body_of:
            return call_late(command, channel)
        guard.guard(command, channel)
        return handler(command, channel)

    async def call_late(command: Command, channel: "Channel") -> Reply:
        async with one_at_a_time.turn(channel):
            await asyncio.to_thread(guard.guard, command, channel)
        reply = handler(command, channel)
        return await reply if isinstance(reply, Awaitable) else reply

    return call


def guarded_direct(code: int, handler: DirectHandler, guard: Guard) -> DirectHandler:
    """The same for a handler of the hot path."""

    def call(header: dict[str, object], body: bytes, channel: "Channel") -> None:
        fields = header.get("extFields") or {}
        if not isinstance(fields, dict):
            raise TypeError("extFields is not an object")
        guard.guard_direct(code, fields, body, channel)
        handler(header, body, channel)

    return call


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


def merge(*tables: Mapping[int, Handler]) -> dict[int, Handler]:
    """Join handler tables by subject into one; a code handled twice is a bug."""
    merged: dict[int, Handler] = {}
    for table in tables:
        twice = merged.keys() & table.keys()
        if twice:
            raise ValueError(f"request codes handled twice: {sorted(twice)}")
        merged.update(table)
    return merged
