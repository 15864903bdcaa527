"""Our client at a Java cluster."""

from mq.client.admin import Admin
from mq.client.errors import RouteNotFound
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.protocol.bodies import ConsumeFromWhere, TopicConfig
from mq.protocol.message import Message, StoredMessage
from tests.interop.conftest import JavaCluster
from tests.waiting import until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def make_topic(cluster: JavaCluster, session: Session, topic: str, queues: int = 4) -> None:
    config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
    admin = Admin(session)
    await admin.create_topic(cluster.broker, config)

    async def routed() -> bool:
        return topic in (await admin.topic_list()).topic_list

    await until(routed)  # a 5.x broker answers before the name server knows the topic


async def read_all(session: Session, topic: str, expected: int) -> list[StoredMessage]:
    """Read all messages of `topic` once `expected` have reached the queues."""
    puller = PullConsumer(session)

    async def complete() -> bool:
        try:
            queues = await puller.queues(topic)
        except RouteNotFound:
            return False  # a broker registers a new topic a moment later
        return sum([await puller.max_offset(queue) for queue in queues]) >= expected

    await until(complete)
    queues = await puller.queues(topic)
    return [message for queue in queues async for message in puller.read(queue)]


def many(topic: str, count: int) -> list[Message]:
    return [Message(topic, b"%d" % i, keys=[f"key-{i}"]) for i in range(count)]
