"""Queues that only one member of a group may consume."""

from pathlib import Path

from mq.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from mq.protocol.codes import RequestCode, ResponseCode
from tests import answered
from tests.daemons.broker.harness import Harness, serve
from tests.daemons.peer import Peer


@answered.by_broker(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
def test_queues_are_locked_for_one_client(tmp_path: Path) -> None:
    queues = {MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)}

    async def script(broker: Harness, peer: Peer) -> None:
        for client_id, held in (("c1", queues), ("c2", set())):
            body = LockBatchRequestBody(consumer_group="g", client_id=client_id, mq_set=queues)
            reply = await peer.ask(RequestCode.LOCK_BATCH_MQ, None, body.encode())
            assert LockBatchResponseBody.decode(reply.body).lock_ok_mq_set == held
        unlock = UnlockBatchRequestBody(consumer_group="g", client_id="c1", mq_set=queues)
        reply = await peer.ask(RequestCode.UNLOCK_BATCH_MQ, None, unlock.encode())
        assert reply.code == ResponseCode.SUCCESS
        assert broker.clients.locks.holder("g", MessageQueue("T", "broker-a", 0)) is None
        reply = await peer.ask(RequestCode.LOCK_BATCH_MQ, None, b"{}")
        assert reply.code == ResponseCode.SYSTEM_ERROR

    serve(tmp_path, script)
