"""Offsets that a member commits."""

from mq.daemons.broker.app import Broker
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.peer import Peer


async def commit(broker: Broker, offset: int) -> None:
    fields = {"consumerGroup": "G", "topic": "Orders", "queueId": "0", "commitOffset": str(offset)}
    async with Peer(broker.port) as peer:
        reply = await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert reply.code == ResponseCode.SUCCESS, reply
