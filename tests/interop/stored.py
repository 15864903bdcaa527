"""The contents of a queue of our broker, for comparison with Java's clients."""

import asyncio

from mq.client.errors import MQError
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.protocol.message import StoredMessage


async def read(session: Session, topic: str, count: int) -> list[StoredMessage]:
    """Return the messages of a topic once there are this many."""
    puller = PullConsumer(session)
    async with asyncio.timeout(60):
        while True:
            try:
                queues = await puller.queues(topic)
                found = [m for queue in queues async for m in puller.read(queue)]
            except MQError:  # the topic is not known everywhere yet
                found = []
            if len(found) >= count:
                return found
            session.outdate_route(topic)
            await asyncio.sleep(0.1)
