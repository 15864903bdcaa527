"""Locks on queues for ordered consumers."""

from mq.daemons.broker.locks import QueueLocks
from mq.daemons.dispatch import Handler
from mq.daemons.listener import Channel
from mq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError


def handlers(locks: QueueLocks) -> dict[int, Handler]:
    """The table of this subject."""

    def lock(command: Command, channel: Channel) -> Command:
        """Lock queues for a member of a group, or renew; answers which it holds."""
        told = command.read_body(LockBatchRequestBody)
        group, client_id = _who(told)
        held = locks.lock(group, client_id, told.mq_set)
        return command.reply(body=LockBatchResponseBody(lock_ok_mq_set=held).encode())

    def unlock(command: Command, channel: Channel) -> Command:
        """Give up locks."""
        told = command.read_body(UnlockBatchRequestBody)
        group, client_id = _who(told)
        locks.unlock(group, client_id, told.mq_set)
        return command.reply()

    return {RequestCode.LOCK_BATCH_MQ: lock, RequestCode.UNLOCK_BATCH_MQ: unlock}


def _who(told: LockBatchRequestBody | UnlockBatchRequestBody) -> tuple[str, str]:
    if not told.consumer_group or not told.client_id:
        raise RemoteProtocolError(f"{type(told).__name__}: consumerGroup or clientId is missing")
    return told.consumer_group, told.client_id
