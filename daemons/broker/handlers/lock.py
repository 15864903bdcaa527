"""Locks on queues for ordered consumers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mq.daemons.broker.locks import QueueLocks
from mq.daemons.channel import Channel
from mq.daemons.dispatch import LARGE_BODY, Handler, Refused, Reply
from mq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError

# Of one request: a consumer names the queues that it has of one broker and group.
MOST_QUEUES = 10_000
MOST_BYTES = 2 * 1024 * 1024

Told = TypeVar("Told", LockBatchRequestBody, UnlockBatchRequestBody)


def handlers(locks: QueueLocks) -> dict[int, Handler]:
    """The table of this subject."""

    def lock(command: Command, told: LockBatchRequestBody) -> Command:
        """Lock queues for a member of a group, or renew; answers which it holds."""
        held = locks.lock(*_who(told), told.mq_set)
        return command.reply(body=LockBatchResponseBody(lock_ok_mq_set=held).encode())

    def unlock(command: Command, told: UnlockBatchRequestBody) -> Command:
        """Give up locks."""
        locks.unlock(*_who(told), told.mq_set)
        return command.reply()

    return {
        RequestCode.LOCK_BATCH_MQ: _reading(LockBatchRequestBody, lock),
        RequestCode.UNLOCK_BATCH_MQ: _reading(UnlockBatchRequestBody, unlock),
    }


def _reading(schema: type[Told], handler: Callable[[Command, Told], Command]) -> Handler:
    """A handler that gets its body read: a large one in a thread, one that is too large never."""
    one_at_a_time = asyncio.Lock()

    def call(command: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        if len(command.body) > MOST_BYTES:
            raise _too_many(f"a body of {len(command.body)} bytes, over {MOST_BYTES}")
        if len(command.body) > LARGE_BODY:
            return call_late(command)
        return handler(command, command.read_body(schema))

    async def call_late(command: Command) -> Reply:
        async with one_at_a_time:
            told = await asyncio.to_thread(command.read_body, schema)
        if len(told.mq_set) > MOST_QUEUES:
            raise _too_many(f"{len(told.mq_set)} queues, over {MOST_QUEUES}")
        return handler(command, told)

    return call


def _too_many(what: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]one request for locks names {what}")


def _who(told: LockBatchRequestBody | UnlockBatchRequestBody) -> tuple[str, str]:
    if not told.consumer_group or not told.client_id:
        raise RemoteProtocolError(f"{type(told).__name__}: consumerGroup or clientId is missing")
    return told.consumer_group, told.client_id
