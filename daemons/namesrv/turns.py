"""What a broker tells over one connection is worked off in the order in which it came.

Most of it at once. A large registration is read in a thread and taken in steps, and what the broker
says behind it, that it stops for instance, must not overtake it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TypeVar

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Reply
from mq.protocol.command import Command

T = TypeVar("T")  # the class of the method
Result = Reply | Awaitable[Reply]

_LAST = "broker's turn"  # of a channel: what came last and is not worked off yet


def in_turn(
    handler: Callable[[T, Command, Channel], Result],
) -> Callable[[T, Command, Channel], Result]:
    """A handler, a method, that waits for what came before over the same connection."""

    @wraps(handler)
    def call(self: T, command: Command, channel: Channel) -> Result:
        before: asyncio.Future[None] | None = channel.attributes.get(_LAST)
        if before is None:
            result = handler(self, command, channel)
            if not isinstance(result, Awaitable):
                return result
            return _finish(result, _begin(channel), channel)
        return _wait(before, _begin(channel), partial(handler, self, command, channel), channel)

    return call


async def _wait(
    before: asyncio.Future[None],
    turn: asyncio.Future[None],
    handle: Callable[[], Result],
    channel: Channel,
) -> Reply:
    try:
        await asyncio.shield(before)
        if channel.closed:
            raise ConnectionError("closed before its turn")
        result = handle()
        return await result if isinstance(result, Awaitable) else result
    finally:
        _end(turn, channel)


def _begin(channel: Channel) -> asyncio.Future[None]:
    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    channel.attributes[_LAST] = turn
    return turn


async def _finish(result: Awaitable[Reply], turn: asyncio.Future[None], channel: Channel) -> Reply:
    try:
        return await result
    finally:
        _end(turn, channel)


def _end(turn: asyncio.Future[None], channel: Channel) -> None:
    turn.set_result(None)
    if channel.attributes.get(_LAST) is turn:
        del channel.attributes[_LAST]
