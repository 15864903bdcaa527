"""The group consumer against our own daemons."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.errors import ClientError, ConnectError
from mq.client.producer.producer import Producer
from mq.client.pull.process_queue import FlowLimits
from mq.client.reader import commits
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import (
    ConsumeFromWhere,
    GetConsumerListByGroupResponseBody,
    MessageQueue,
    TopicConfig,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import IllegalName
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster, numbers
from tests.client.scripted import accept_heartbeats, name_server, scripted
from tests.interop.ports import free_port
from tests.waiting import until


async def take(consumer: Consumer, count: int) -> list[bytes]:
    """Return the bodies of `count` messages from the consumer's iterator.

    One more message is requested, so that the last one is finished; then the consumer is closed.
    """
    bodies: list[bytes] = []

    async def loop() -> None:
        async for message in consumer:
            bodies.append(message.body)

    task = asyncio.ensure_future(loop())
    await until(lambda: len(bodies) >= count)
    await asyncio.sleep(0)
    await consumer.close()
    await task
    return bodies


def test_a_group_gets_each_message_once_and_the_next_member_continues() -> None:
    async def scenario() -> None:
        async with cluster() as there:
            await there.send(*numbers(50))
            async with there.consumer() as consumer:
                assert sorted(await take(consumer, 50)) == sorted(numbers(50))
            assert await there.lag() == 0
            await there.send(b"later")
            async with there.consumer() as consumer:
                assert await take(consumer, 1) == [b"later"]

    asyncio.run(scenario())


def test_a_message_at_which_the_loop_breaks_is_redelivered() -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"1", b"2")
            async with there.consumer() as consumer:
                async for message in consumer:
                    if message.body == b"2":
                        break
            assert await there.lag() == 1
            async with there.consumer() as consumer:
                assert await take(consumer, 1) == [b"2"]

    asyncio.run(scenario())


def test_two_members_share_the_queues_and_one_gets_all_when_the_other_leaves() -> None:
    async def scenario() -> None:
        got: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            got.append(message.body)

        def of_topic(consumer: Consumer) -> set[MessageQueue]:
            return {queue for queue in consumer.assigned if queue.topic == TOPIC}

        async with cluster() as there, there.consumer(listener=listen) as first:
            await until(lambda: len(of_topic(first)) == 4)
            async with there.consumer(listener=listen) as second:
                await until(lambda: len(of_topic(first)) == len(of_topic(second)) == 2)
                assert not of_topic(first) & of_topic(second)
                await there.send(*numbers(40))
                await until(lambda: len(got) >= 40)
            await until(lambda: len(of_topic(first)) == 4)
            await there.send(*numbers(4))
            await until(lambda: len(got) >= 44)
        assert Counter(got) == Counter(numbers(40) + numbers(4))

    asyncio.run(scenario())


def test_a_failed_message_is_redelivered_even_if_no_broker_takes_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.client.consumer.push.concurrent.REDELIVER_SECONDS", 0.01)
    monkeypatch.setattr("mq.client.consumer.send_back", refuse_all)

    async def scenario() -> None:
        seen: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            seen.append(message.body)
            if len(seen) < 3:
                raise ValueError("not today")

        async with cluster() as there:
            async with there.consumer(listener=listen):
                await there.send(b"difficult")
                await until(lambda: len(seen) == 3)
            assert await there.lag() == 0

    asyncio.run(scenario())


async def refuse_all(*_: object, **__: object) -> None:
    raise ConnectError("broker", "gone")


def test_only_subscribed_tags_are_delivered() -> None:
    async def scenario() -> None:
        async with cluster() as there:
            await there.send(b"1", tag="red")
            await there.send(b"2", tag="green")
            await there.send(b"3", tag="blue")
            consumer = Consumer(there.address, GROUP, {TOPIC: "red||blue"}, consume_from=FIRST)
            async with consumer:
                assert sorted(await take(consumer, 2)) == [b"1", b"3"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("where", "first"),
    [
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, "0"),
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, "70"),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, "30"),
    ],
)
def test_a_new_group_starts_where_its_option_says(where: ConsumeFromWhere, first: str) -> None:
    pulled: dict[str, str] = {}
    consumers: list[Consumer] = []

    def answer(code: int = 0, **fields: str) -> Handler:
        return lambda request, channel: request.reply(code, fields)

    def members(request: Command, channel: Channel) -> Command:
        ids = [consumer.session.client_id for consumer in consumers]
        return request.reply(
            0, None, GetConsumerListByGroupResponseBody(consumer_id_list=ids).encode()
        )

    def pull(request: Command, channel: Channel) -> None:
        pulled[request.fields["topic"]] = request.fields["queueOffset"]

    async def scenario() -> None:
        handlers = {
            **accept_heartbeats(),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: members,
            RequestCode.QUERY_CONSUMER_OFFSET: answer(ResponseCode.QUERY_NOT_FOUND),
            RequestCode.UPDATE_CONSUMER_OFFSET: answer(),
            RequestCode.GET_MAX_OFFSET: answer(offset="70"),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: answer(offset="30"),
            RequestCode.PULL_MESSAGE: pull,
        }
        async with scripted(handlers) as broker, scripted(name_server({"b": broker})) as address:
            consumers.append(Consumer(address, GROUP, {TOPIC: "*"}, consume_from=where))
            async with consumers[0]:
                await until(lambda: len(pulled) == 2)
        assert pulled[TOPIC] == first

    asyncio.run(scenario())


def test_flow_control_stops_pulling_until_messages_are_finished() -> None:
    async def scenario() -> None:
        release = asyncio.Event()
        got: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            await release.wait()
            got.append(message.body)

        async with cluster(queues=1) as there:
            await there.send(*numbers(60))
            async with there.consumer(
                listener=listen, pull_batch=5, limits=FlowLimits(messages=10)
            ) as consumer:
                queue = MessageQueue(TOPIC, "broker-a", 0)
                await until(lambda: queue in consumer.reader.held)
                held = consumer.reader.held[queue]
                await until(lambda: held.count >= 10)
                assert held.count < 20
                assert held.commit_offset == 0
                release.set()
                await until(lambda: len(got) == 60)
        assert sorted(got) == sorted(numbers(60))

    asyncio.run(scenario())


def test_offsets_are_committed_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "COMMIT_SECONDS", 0.05)

    async def scenario() -> None:
        async def listen(message: StoredMessage) -> None:
            return None

        async with cluster() as there:
            await there.send(*numbers(8))
            async with there.consumer(listener=listen):
                async with asyncio.timeout(15):
                    while True:
                        stats = await there.admin.consume_stats(
                            there.pair.broker.address, GROUP, TOPIC
                        )
                        rows = stats.offset_table.values()
                        if rows and not sum(r.broker_offset - r.consumer_offset for r in rows):
                            return
                        await asyncio.sleep(0.02)

    asyncio.run(scenario())


def test_an_ordered_queue_waits_for_a_failed_message() -> None:
    async def scenario() -> None:
        attempts: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            attempts.append(message.body)
            if message.body == b"2" and attempts.count(b"2") < 3:
                raise ValueError("again")

        async with cluster(queues=1) as there:
            await there.send(*numbers(5))
            async with there.consumer(listener=listen, ordered=True, suspension=0.01):
                await until(lambda: len(attempts) == 7)
        assert attempts == [b"0", b"1", b"2", b"2", b"2", b"3", b"4"]

    asyncio.run(scenario())


def test_an_ordered_queue_goes_to_the_next_member_only_when_it_is_unlocked() -> None:
    async def scenario() -> None:
        async def listen(message: StoredMessage) -> None:
            return None

        async with cluster(queues=1) as there:
            queue = MessageQueue(TOPIC, "broker-a", 0)
            broker = there.pair.broker.address
            assert await there.admin.lock_queues(broker, GROUP, "another", [queue]) == {queue}
            async with there.consumer(listener=listen, ordered=True) as consumer:
                await until(lambda: len(consumer.assigned) == 1)  # the retry queue
                assert queue not in consumer.assigned
                await there.admin.unlock_queues(broker, GROUP, "another", [queue])
                await until(lambda: queue in consumer.assigned)

    asyncio.run(scenario())


def test_an_async_listener_may_end_the_program() -> None:
    async def scenario() -> None:
        async def listen(message: StoredMessage) -> None:
            raise SystemExit(3)

        async with cluster() as there, there.consumer(listener=listen) as consumer:
            await there.send(b"x")
            async with asyncio.timeout(15):
                await consumer.wait_closed()

    with pytest.raises(SystemExit):
        asyncio.run(scenario())


def test_invalid_subscriptions_are_refused() -> None:
    with pytest.raises(IllegalName):
        Consumer("127.0.0.1:9876", "a/b", {TOPIC: "*"})
    with pytest.raises(IllegalName):
        Consumer("127.0.0.1:9876", GROUP, {"../x": "*"})
    with pytest.raises(ClientError, match="listener"):
        Consumer("127.0.0.1:9876", GROUP, {TOPIC: "*"}, ordered=True)


def test_producer_and_consumer_continue_after_the_daemons_restart(tmp_path: Path) -> None:
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    async def scenario() -> None:
        async with AsyncExitStack() as clients:
            # Ports outside the ephemeral range: a connection could take one of those during the
            # restart.
            ports = free_port(), free_port()
            async with Standalone(
                tmp_path, name_server_port=ports[0], broker_port=ports[1]
            ) as pair:
                address, broker = pair.name_server_address, pair.broker.address
                session = await clients.enter_async_context(Session(address))
                producer = await clients.enter_async_context(Producer(session))
                config = TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1)
                await Admin(session).create_topic(broker, config)
                consumer = Consumer(
                    address, GROUP, {TOPIC: "*"}, listener=listen, consume_from=FIRST
                )
                await clients.enter_async_context(consumer)
                await producer.send(Message(TOPIC, b"before"))
                await until(lambda: got == [b"before"])
                await consumer.commit()
            with pytest.raises(ConnectError):
                await producer.send(Message(TOPIC, b"meanwhile"))
            again = Standalone(tmp_path, name_server_port=ports[0], broker_port=ports[1])
            async with again:
                await producer.send(Message(TOPIC, b"after"))
                await until(lambda: got == [b"before", b"after"], 30)
                await clients.aclose()

    asyncio.run(scenario())
