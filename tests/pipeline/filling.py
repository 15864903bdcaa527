"""Messages for tests, sent in batches: sending thousands one by one takes too long."""

import asyncio
from collections.abc import Sequence

from mq.client.producer.producer import Producer
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message


def fill(
    name_server: str,
    topic: str,
    bodies: Sequence[bytes],
    queue: MessageQueue | None = None,
    tags: str | None = None,
    per_batch: int = 100,
) -> None:
    """Send bodies in order, to one queue if it is given."""

    async def work() -> None:
        async with Producer(name_server) as producer:
            for start in range(0, len(bodies), per_batch):
                messages = [
                    Message(topic, body, tags) for body in bodies[start : start + per_batch]
                ]
                await producer.send_batch(messages, queue)

    asyncio.run(work())
