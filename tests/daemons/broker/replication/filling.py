"""Messages for a master."""

import random

from mq.daemons.broker.app import Broker
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.replication.pair import (
    send,
)
from tests.daemons.peer import Peer


async def fill(broker: Broker, count: int, seed: int = 1) -> None:
    chance = random.Random(seed)
    async with Peer(broker.port) as peer:
        for number in range(count):
            body = chance.randbytes(chance.choice((0, 1, 100, 3000, 20_000)))
            properties = f"KEYS\x01key-{seed}-{number}\x02TAGS\x01red"
            reply = await send(peer, body, queue_id=number % 4, properties=properties)
            assert reply.code == ResponseCode.SUCCESS, reply
