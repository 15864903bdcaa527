"""Dead letters."""

import asyncio

from mq.client.admin import Admin
from mq.client.consumer.send_back import send_back
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import SubscriptionGroupConfig
from mq.protocol.message import Message
from mq.protocol.names import dead_letter_topic
from tests.cli.pairs import make_topic, put
from tests.client.scripted import routed


def bury(pair: Standalone, group: str, topic: str, bodies: list[bytes], level: int = -1) -> None:
    """Send messages that become dead letters of the group."""
    make_topic(pair, topic, 1)
    with BlockingSession(pair.name_server_address) as session:
        config = SubscriptionGroupConfig(group_name=group)
        run(Admin(session).update_subscription_group(pair.broker.address, config))
        (queue,) = run(PullConsumer(session).queues(topic))
        begin = run(PullConsumer(session).max_offset(queue))
    put(pair, [Message(topic, body, "tag", [f"key-{body.decode()}"]) for body in bodies], 0)

    async def give_up() -> None:
        async with Session(pair.name_server_address) as session:
            consumer = PullConsumer(session)
            async for message in consumer.read(queue, begin):
                await send_back(
                    session, group, queue, message, delay_level=level, max_reconsume_times=0
                )
            await routed(session, dead_letter_topic(group))

    asyncio.run(give_up())
