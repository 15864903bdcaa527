"""A restarted broker learns of a group's members one by one: the first one gets no more queues."""

import asyncio
from pathlib import Path

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.consumer.member import describe_member
from mq.client.pull.subscription import Subscriptions
from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel, TopicConfig
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from tests.client.clusters import GROUP, TOPIC
from tests.client.scripted import name_server, scripted
from tests.interop.ports import free_port
from tests.waiting import until


async def listen(message: StoredMessage) -> None: ...


def broker(root: Path, port: int) -> Broker:
    settings = {
        "listenPort": str(port),
        "brokerIP1": "127.0.0.1",
        "brokerName": "broker",
        "storePathRootDir": str(root / "store"),
    }
    return Broker(BrokerSettings.load(None, settings))


async def join(session: Session, address: str) -> None:
    """Register a member that does nothing else."""
    member = describe_member(
        session,
        GROUP,
        Subscriptions(GROUP, {TOPIC: "*"}),
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    await session.call(address, Command(RequestCode.HEART_BEAT, None, member.encode()))


def test_the_first_member_that_a_restarted_broker_knows_keeps_only_its_queues(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        port = free_port()
        address = f"127.0.0.1:{port}"
        async with (
            scripted(name_server({"broker": address})) as names,
            Session(names) as session,
        ):
            admin = Admin(session)
            async with broker(tmp_path, port):
                two = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
                await admin.create_topic(address, two)
                await join(session, address)
                consumer = Consumer(names, GROUP, {TOPIC: "*"}, listener=listen)
                await consumer.open()

                def mine() -> int:
                    return sum(queue.topic == TOPIC for queue in consumer.assigned)

                await until(lambda: mine() == 1)
            async with broker(tmp_path, port) as restarted:
                await until(lambda: bool(restarted.clients.consumers.groups))
                await consumer.reader.rebalance()
                assert mine() == 1
                await join(session, address)
                await consumer.reader.rebalance()
                assert mine() == 1
                await consumer.close()

    asyncio.run(scenario())
