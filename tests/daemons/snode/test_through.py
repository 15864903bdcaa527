"""Ordinary clients through a snode, which acts as their name server and broker."""

import asyncio
from pathlib import Path

from mq.client import Consumer, Producer
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.message import Message
from tests.daemons.snode.world import ENODE, PATIENCE, world

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def consume(address: str, count: int, group: str = "g", topic: str = "T") -> list[bytes]:
    found = []
    async with (
        asyncio.timeout(PATIENCE),
        Consumer(address, group, {topic: "*"}, consume_from=FIRST) as consumer,
    ):
        async for message in consumer:
            found.append(message.body)
            if len(found) == count:
                break
    return found


def test_messages_that_are_sent_through_a_snode_are_consumed_through_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one:
            await one.make_topic("T")
            address = one.snode.address
            bodies = [b"%d" % number for number in range(20)]
            async with Producer(address, "p") as producer:
                for body in bodies:
                    result = await producer.send(Message("T", body))
                    assert result.queue.broker_name == ENODE
            assert sorted(await consume(address, 20)) == sorted(bodies)

    asyncio.run(main())
