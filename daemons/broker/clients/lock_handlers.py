"""Locks on queues for ordered consumers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mq.daemons.broker.clients.locks import QueueLocks
from mq.daemons.channel import Channel
from mq.daemons.dispatch import LARGE_BODY, Refused, Reply
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError

# Limit of queues in one request. A consumer names its queues of one broker and group.
MOST_QUEUES = 10_000
MOST_BYTES = 2 * 1024 * 1024
# Limit in characters of a client id or broker name. Each lock keeps its names and logs them.
LONGEST_NAME = 1024

Asked = TypeVar("Asked", LockBatchRequestBody, UnlockBatchRequestBody)


class LockHandlers:
    """Gives queues to one member of a group at a time."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks
        self._large_lock = asyncio.Lock()
        self._large_unlock = asyncio.Lock()

    @serves(RequestCode.LOCK_BATCH_MQ)
    def lock(self, command: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        """Lock or renew queues for a member of a group; the reply lists the ones it holds."""
        return _read(command, LockBatchRequestBody, self._lock, self._large_lock)

    @serves(RequestCode.UNLOCK_BATCH_MQ)
    def unlock(self, command: Command, channel: Channel) -> Reply | Awaitable[Reply]:
        """Release locks."""
        return _read(command, UnlockBatchRequestBody, self._unlock, self._large_unlock)

    def _lock(self, command: Command, asked: LockBatchRequestBody) -> Command:
        _check_names(asked)
        held = self._locks.lock(*_owner_of(asked), asked.mq_set)
        return command.reply(body=LockBatchResponseBody(lock_ok_mq_set=held).encode())

    def _unlock(self, command: Command, asked: UnlockBatchRequestBody) -> Command:
        self._locks.unlock(*_owner_of(asked), asked.mq_set)
        return command.reply()


def _read(
    command: Command,
    schema: type[Asked],
    handler: Callable[[Command, Asked], Command],
    one_at_a_time: asyncio.Lock,
) -> Reply | Awaitable[Reply]:
    """Decode the body and call the handler. A body over LARGE_BODY is decoded in a thread; one over
    MOST_BYTES is refused.
    """
    if len(command.body) > MOST_BYTES:
        raise _too_many(f"a body of {len(command.body)} bytes, over {MOST_BYTES}")
    if len(command.body) > LARGE_BODY:
        return _read_late(command, schema, handler, one_at_a_time)
    return handler(command, command.read_body(schema))


async def _read_late(
    command: Command,
    schema: type[Asked],
    handler: Callable[[Command, Asked], Command],
    one_at_a_time: asyncio.Lock,
) -> Reply:
    async with one_at_a_time:
        asked = await asyncio.to_thread(command.read_body, schema)
    if len(asked.mq_set) > MOST_QUEUES:
        raise _too_many(f"{len(asked.mq_set)} queues, over {MOST_QUEUES}")
    return handler(command, asked)


def _too_many(what: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]one request for locks names {what}")


def _check_names(asked: LockBatchRequestBody) -> None:
    """Check the lengths of all names; raises RemoteProtocolError if one is too long."""
    if (
        len(asked.consumer_group) > names.MAX_GROUP_LENGTH
        or len(asked.client_id) > LONGEST_NAME
        or any(
            len(queue.topic) > names.MAX_RETRY_TOPIC_LENGTH or len(queue.broker_name) > LONGEST_NAME
            for queue in asked.mq_set
        )
    ):
        raise RemoteProtocolError("a request for locks with a name that is too long")


def _owner_of(asked: LockBatchRequestBody | UnlockBatchRequestBody) -> tuple[str, str]:
    if not asked.consumer_group or not asked.client_id:
        raise RemoteProtocolError(f"{type(asked).__name__}: consumerGroup or clientId is missing")
    return asked.consumer_group, asked.client_id
