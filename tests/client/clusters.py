"""Our daemons in the test's own loop, with one topic, a producer and admin calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import ConsumeFromWhere, TopicConfig
from mq.protocol.message import Message

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TOPIC = "topic"
GROUP = "group"


class Cluster:
    """A broker, a name server, one topic and a producer."""

    def __init__(self, pair: Standalone, session: Session, producer: Producer) -> None:
        self.pair = pair
        self.address = pair.name_server_address
        self.session = session
        self.producer = producer
        self.admin = Admin(session)

    async def send(self, *bodies: bytes, tag: str | None = None) -> None:
        for body in bodies:
            await self.producer.send(Message(TOPIC, body, tag))

    def consumer(self, **options: object) -> Consumer:
        settings = {"consume_from": FIRST, **options}
        return Consumer(self.address, GROUP, {TOPIC: "*"}, **settings)  # type: ignore[arg-type]

    async def lag(self) -> int:
        # The statistics are found by the group's retry topic, which the broker may have just
        # created.
        await self.pair.broker.registration.announced()
        stats = await self.admin.whole_consume_stats(GROUP, TOPIC)
        return sum(row.broker_offset - row.consumer_offset for row in stats.offset_table.values())


@asynccontextmanager
async def cluster(queues: int = 4, **properties: str) -> AsyncIterator[Cluster]:
    """Run daemons with one topic of `queues` queues; `properties` are settings of the broker."""
    async with (
        Standalone(name_server_port=0, broker_port=0, properties=properties) as pair,
        Session(pair.name_server_address) as session,
        Producer(session) as producer,
    ):
        made = Cluster(pair, session, producer)
        config = TopicConfig(topic_name=TOPIC, read_queue_nums=queues, write_queue_nums=queues)
        await made.admin.create_topic(pair.broker.address, config)
        yield made


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]
