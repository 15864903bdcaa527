"""A cluster with data of every kind, hostile texts among it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from mq.client import Consumer
from mq.client.admin import Admin
from mq.client.consumer.send_back import send_back
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.daemons.console.clusters import Cluster
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import (
    ConsumeFromWhere,
    MessageQueue,
    SubscriptionGroupConfig,
    TopicConfig,
)
from mq.protocol.message import Message
from mq.protocol.names import dead_letter_topic
from tests.client.scripted import routed
from tests.daemons.console.pages.state import seen

TOPIC, DELAYED, OPEN = "Orders", "Later", "Paid"
GROUP, LETTERS = "billing", "failing"
COUNT = 40
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
# Text with an effect if a page did not escape it.
HOSTILE = (
    '"><img src=x onerror=alert(1)>',
    "<script>alert(2)</script>",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "'; DROP TABLE points; --",
    "\u202egnp.exe\u2066\u200b",
    "bell\x07 escape\x1b[31m",
    "𓀀 😀",
)


class Seen(Protocol):
    """A console and its cluster."""

    @property
    def here(self) -> Cluster: ...


@asynccontextmanager
async def filled(
    pair: Standalone, instance: str = HOSTILE[0], notes: Sequence[str] = HOSTILE
) -> AsyncIterator[Session]:
    """The cluster of a name server and a broker of ours, filled: see `filled_at`."""
    name = pair.broker.settings.broker.broker_name
    async with filled_at(
        pair.name_server_address, pair.broker.address, name, instance, notes
    ) as session:
        yield session


@asynccontextmanager
async def filled_at(
    name_server: str,
    broker: str,
    broker_name: str,
    instance: str = HOSTILE[0],
    notes: Sequence[str] = HOSTILE,
) -> AsyncIterator[Session]:
    """Send messages with tags, keys, properties and notes; create a group with a lag and a
    connected member; dead letters; a delayed message and an open transaction.
    """

    async def unknown(question: TransactionCheck) -> TransactionState:
        return TransactionState.UNKNOWN

    async def undecided(message: Message) -> TransactionState:
        return TransactionState.UNKNOWN

    async with Session(name_server, instance=instance) as session:
        admin = Admin(session)
        for name in (TOPIC, DELAYED, OPEN):
            config = TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=2, perm=6)
            await admin.create_topic(broker, config)
        for name in (GROUP, LETTERS):
            group = SubscriptionGroupConfig(group_name=name)
            await admin.update_subscription_group(broker, group)
        async with TransactionProducer(session, "shop", unknown) as producer:
            for number in range(COUNT):
                await producer.send(_message(number, notes[number % len(notes)]))
            await producer.send(Message(DELAYED, b"in an hour", delay_level=17))
            await producer.send_in_transaction(Message(OPEN, b"nobody knows"), undecided)
            await _give_up(session, broker_name, 3)
            async with Consumer(session, GROUP, {TOPIC: "*"}, consume_from=FIRST) as consumer:
                count = 0
                async for _ in consumer:
                    count += 1
                    if count == 6:
                        break
                await consumer.commit()
                yield session


def _message(number: int, note: str) -> Message:
    return Message(
        TOPIC,
        f'{{"order": {number}, "note": "{note}"}}'.encode(),
        "book" if number % 2 else "chair",
        [f"order-{number}"],
        {"note": note},
    )


async def _give_up(session: Session, broker_name: str, count: int) -> None:
    """Let a group fail on some messages: they become its dead letters."""
    consumer = PullConsumer(session)
    queue = MessageQueue(TOPIC, broker_name, 0)
    async for message in consumer.read(queue, 0):
        await send_back(session, LETTERS, queue, message, delay_level=-1, max_reconsume_times=0)
        count -= 1
        if not count:
            break
    await routed(session, dead_letter_topic(LETTERS))


async def all_seen(site: "Seen") -> None:
    """Wait until the console has all that data."""
    letters = dead_letter_topic(LETTERS)
    await seen(
        site.here.collector,
        lambda s: s.groups and s.brokers and (row := s.topic(letters)) is not None and row.stored,
    )
