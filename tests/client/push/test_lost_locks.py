"""A broker that was restarted knows of no locks: whoever had one must not trust it any longer."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path

from mq.client.admin import Admin
from mq.client.consumer import Consumer
from mq.client.producer import Producer
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import FIRST, GROUP, TOPIC
from tests.client.scripted import until
from tests.interop.peers import free_port

QUEUE = MessageQueue(TOPIC, "broker", 0)
OTHER = "127.0.0.1@other"  # a member that takes the lock for itself


def broker(root: Path, port: int, names: str) -> Broker:
    settings = {
        "listenPort": str(port),
        "brokerIP1": "127.0.0.1",
        "brokerName": QUEUE.broker_name,
        "namesrvAddr": names,
        "storePathRootDir": str(root / "store"),
    }
    return Broker(BrokerSettings.load(None, settings))


def run(
    folder: Path, scenario: Callable[[str, AsyncExitStack], Coroutine[object, object, None]]
) -> None:
    async def main() -> None:
        settings = {"listenPort": "0", "kvConfigPath": str(folder / "kv.json")}
        async with NameServer(NamesrvSettings.load(None, settings)) as server:
            async with AsyncExitStack() as parts:
                await scenario(server.address, parts)

    asyncio.run(main())


def test_a_queue_that_another_member_had_meanwhile_is_taken_anew_where_that_one_stopped(
    tmp_path: Path,
) -> None:
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    async def scenario(names: str, parts: AsyncExitStack) -> None:
        port = free_port()
        producer = await parts.enter_async_context(Producer(names))
        admin = Admin(producer.session)
        async with broker(tmp_path, port, names) as first:
            one = TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1)
            await admin.create_topic(first.address, one)
            consumer = await parts.enter_async_context(
                Consumer(
                    names, GROUP, {TOPIC: "*"}, listener=listen, consume_from=FIRST, ordered=True
                )
            )
            await producer.send(Message(TOPIC, b"0"), QUEUE)
            await until(lambda: got == [b"0"])
        async with broker(tmp_path, port, names) as second:
            assert await admin.lock_queues(second.address, GROUP, OTHER, [QUEUE]) == {QUEUE}
            for number in range(1, 5):
                await producer.send(Message(TOPIC, b"%d" % number), QUEUE)
            # Long enough for it to have connected, asked for its lock and been refused.
            await until(lambda: QUEUE not in consumer.reader.held)
            assert got == [b"0"]
            await admin.update_consumer_offset(second.address, GROUP, TOPIC, 0, 4)
            await admin.unlock_queues(second.address, GROUP, OTHER, [QUEUE])
            await until(lambda: len(got) > 1)
            assert got == [b"0", b"4"]

    run(tmp_path, scenario)


def test_a_queue_that_is_given_up_and_another_has_locked_meanwhile_is_not_committed(
    tmp_path: Path,
) -> None:
    async def scenario(names: str, parts: AsyncExitStack) -> None:
        began, done = asyncio.Event(), asyncio.Event()
        mine = True

        async def listen(message: StoredMessage) -> None:
            began.set()
            await done.wait()

        def strategy(client_id: str, queues: list[MessageQueue], _: object) -> list[MessageQueue]:
            return list(queues) if mine else []

        port = free_port()
        producer = await parts.enter_async_context(Producer(names))
        admin = Admin(producer.session)
        async with broker(tmp_path, port, names) as first:
            one = TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1)
            await admin.create_topic(first.address, one)
            options = {"listener": listen, "ordered": True, "strategy": strategy}
            consumer = await parts.enter_async_context(
                Consumer(names, GROUP, {TOPIC: "*"}, consume_from=FIRST, **options)  # type: ignore[arg-type]
            )
            for number in range(5):
                await producer.send(Message(TOPIC, b"%d" % number), QUEUE)
            await asyncio.wait_for(began.wait(), 10)
            mine = False
            consumer.reader.wake()
            await until(lambda: QUEUE in consumer.reader._leaving)
        (held,) = consumer.reader._leaving.busy
        async with broker(tmp_path, port, names) as second:
            assert await admin.lock_queues(second.address, GROUP, OTHER, [QUEUE]) == {QUEUE}
            await admin.update_consumer_offset(second.address, GROUP, TOPIC, 0, 4)
            await until(lambda: not held.locked)
            done.set()
            await until(lambda: QUEUE not in consumer.reader._leaving)
            assert second.stores.offsets.query(GROUP, TOPIC, 0) == 4

    run(tmp_path, scenario)
