import asyncio
from pathlib import Path

import pytest

from mq.client.consumer import lite_pull_consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.errors import ClientError
from mq.client.offsets.offset_store import OffsetStore
from mq.client.producer.producer import Producer
from mq.client.pull.subscription import Sql92
from mq.client.reader import commits
from mq.client.transport.session import Session
from mq.protocol.bodies import (
    ConsumerRunningInfo,
    MessageQueue,
    ResetOffsetBody,
    TopicConfig,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.client.brokers import served
from tests.client.clusters import FIRST, GROUP, TOPIC, Cluster, cluster, numbers
from tests.waiting import until

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def member(there: Cluster, **options: object) -> LitePullConsumer:
    settings = {"consume_from": FIRST, **options}
    return LitePullConsumer(there.address, GROUP, {TOPIC: "*"}, **settings)  # type: ignore[arg-type]


def reading(there: Cluster, **options: object) -> LitePullConsumer:
    """A consumer without subscriptions."""
    return LitePullConsumer(there.address, GROUP, consume_from=FIRST, **options)  # type: ignore[arg-type]


async def take(consumer: LitePullConsumer, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    async with asyncio.timeout(20):
        while len(bodies) < count:
            bodies += [message.body for message in await consumer.poll(1)]
    return bodies


def test_members_share_the_queues_and_one_gets_all_when_the_other_leaves() -> None:
    async def scenario() -> None:
        async with cluster() as there, member(there) as first:
            await until(lambda: len(first.assigned) == 4)
            async with member(there) as second:
                await until(lambda: len(first.assigned) == len(second.assigned) == 2)
                await there.send(*numbers(20))
                got = await take(first, 10) + await take(second, 10)
                assert sorted(got) == sorted(numbers(20))
            await until(lambda: len(first.assigned) == 4)
            await there.send(b"later")
            assert await take(first, 1) == [b"later"]
            await first.commit()
            await first.close()
            assert await there.lag() == 0

    asyncio.run(scenario())


def test_assigned_queues_are_read_and_others_are_not() -> None:
    async def scenario() -> None:
        async with cluster(queues=2) as there, reading(there) as consumer:
            other = MessageQueue(TOPIC, "broker-a", 1)
            assert await consumer.queues(TOPIC) == [QUEUE, other]
            for queue, body in ((QUEUE, b"mine"), (other, b"not mine")):
                await there.producer.send(Message(TOPIC, body), queue)
            await consumer.assign([QUEUE])
            assert await take(consumer, 1) == [b"mine"]
            assert await consumer.poll(0.1) == []
            await consumer.assign([other])
            assert await take(consumer, 1) == [b"not mine"]
            assert consumer.assigned == [other]
            assert await consumer.committed(QUEUE) == 1

    asyncio.run(scenario())


def test_a_seek_moves_to_any_offset_and_drops_pulled_messages() -> None:
    async def scenario() -> None:
        async with cluster(queues=8) as there, reading(there, auto_commit=False) as consumer:
            for body in numbers(6):
                await there.producer.send(Message(TOPIC, body), QUEUE)
            await consumer.assign([QUEUE])
            assert await take(consumer, 6) == numbers(6)
            await consumer.seek(QUEUE, 4)
            assert await take(consumer, 2) == [b"4", b"5"]
            await consumer.seek_to_begin(QUEUE)
            assert await take(consumer, 6) == numbers(6)
            await consumer.seek(QUEUE, 0)
            await consumer.seek_to_end(QUEUE)
            assert await consumer.poll(0.1) == []
            await there.producer.send(Message(TOPIC, b"new"), QUEUE)
            assert await take(consumer, 1) == [b"new"]
            assert await consumer.committed(QUEUE) in (None, 0)
            await consumer.commit()
            assert await consumer.committed(QUEUE) == 7
            for offset in (-1, 8):
                with pytest.raises(ClientError, match=f"offset {offset} is not in .* 0 to 7"):
                    await consumer.seek(QUEUE, offset)
            with pytest.raises(ClientError, match="is not assigned"):
                await consumer.seek_to_begin(MessageQueue(TOPIC, "broker-a", 7))

    asyncio.run(scenario())


def test_a_paused_queue_delivers_nothing_and_keeps_its_order() -> None:
    async def scenario() -> None:
        async with cluster(queues=2) as there, reading(there, pull_batch=2) as consumer:
            other = MessageQueue(TOPIC, "broker-a", 1)
            for body in numbers(6):
                await there.producer.send(Message(TOPIC, body), QUEUE)
            await there.producer.send(Message(TOPIC, b"other"), other)
            await consumer.assign([QUEUE, other])
            held = consumer.reader.held
            await until(lambda: held[QUEUE].count == 6 and held[other].count == 1)
            consumer.pause([QUEUE])
            assert await take(consumer, 1) == [b"other"]
            assert await consumer.poll(0.05) == []
            consumer.resume([QUEUE])
            assert await take(consumer, 6) == numbers(6)

    asyncio.run(scenario())


def test_a_seek_releases_pulled_messages_while_another_queue_is_paused() -> None:
    """Messages pulled before a seek are released, although a paused queue comes before them."""

    async def scenario() -> None:
        async with cluster(queues=2) as there, reading(there) as consumer:
            other = MessageQueue(TOPIC, "broker-a", 1)
            await there.producer.send(Message(TOPIC, b"paused"), QUEUE)
            await consumer.assign([QUEUE, other])
            held = consumer.reader.held
            await until(lambda: held[QUEUE].count == 1)
            consumer.pause([QUEUE])
            for body in numbers(2):
                await there.producer.send(Message(TOPIC, body), other)
            for _ in range(5):
                await until(lambda: held[other].count == 2)
                await consumer.seek_to_begin(other)
                assert await consumer.poll(0) == []
            assert len(consumer._ready) == 1
            consumer.resume([QUEUE])
            assert await take(consumer, 1) == [b"paused"]

    asyncio.run(scenario())


def test_offsets_are_committed_automatically(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "COMMIT_SECONDS", 0.02)

    async def scenario() -> None:
        async with cluster(queues=1) as there, reading(there) as consumer:
            await there.send(b"1", b"2")
            await consumer.assign([QUEUE])
            await take(consumer, 2)
            assert await consumer.poll(0.01) == []
            async with asyncio.timeout(15):
                while await consumer.committed(QUEUE) != 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert await consumer.offset_at(QUEUE, 0) == 0

    asyncio.run(scenario())


def test_a_listener_is_called_for_new_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite_pull_consumer, "TOPIC_CHECK_SECONDS", 0.02)
    heard: list[tuple[str, int]] = []

    async def scenario() -> None:
        async with cluster(queues=1) as there, reading(there) as consumer:
            await consumer.on_queues_changed(
                TOPIC, lambda topic, now: heard.append((topic, len(now)))
            )
            config = TopicConfig(topic_name=TOPIC, read_queue_nums=3, write_queue_nums=3)
            await there.admin.create_topic(there.pair.broker.address, config)
            consumer.session.outdate_route(TOPIC)
            await until(lambda: bool(heard))
        assert heard == [(TOPIC, 3)]

    asyncio.run(scenario())


def test_a_subscription_in_sql_is_evaluated_by_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            served(tmp_path, enablePropertyFilter="true") as at,
            Producer(at.namesrv, "senders") as producer,
        ):
            for amount in range(4):
                message = Message(TOPIC, b"%d" % amount, properties={"amount": str(amount)})
                await producer.send(message, QUEUE)
            subscriptions = {TOPIC: Sql92("amount > 1")}
            consumer = LitePullConsumer(at.namesrv, GROUP, subscriptions, consume_from=FIRST)
            async with consumer:
                assert await take(consumer, 2) == [b"2", b"3"]

    asyncio.run(scenario())


def test_a_reset_and_a_query_of_the_broker_are_answered() -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there, reading(there) as consumer:
            await there.send(*numbers(3))
            await consumer.assign([QUEUE])
            await take(consumer, 3)
            body = ResetOffsetBody(offset_table={QUEUE: 2}).encode()
            fields = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"}
            handlers = consumer.session._handlers
            reset = Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
            await handlers[reset.code](reset, "broker")  # type: ignore[misc]
            assert await take(consumer, 1) == [b"2"]
            ask = Command(
                RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": GROUP, "clientId": "c"}
            )
            answer = handlers[ask.code](ask, "broker")
            assert isinstance(answer, Command)
            info = ConsumerRunningInfo.decode(bytes(answer.body))
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"

    asyncio.run(scenario())


class LateOffsets(OffsetStore):
    """Answers queries of the committed offset only while `may_answer` is set."""

    def __init__(self, session: Session, group: str) -> None:
        super().__init__(session, group)
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()

    async def committed(self, queue: MessageQueue) -> int | None:
        self.asked.set()
        await self.may_answer.wait()
        return await super().committed(queue)


def test_nothing_is_pulled_after_a_close_during_a_reset() -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(3))
            offsets = LateOffsets(there.session, GROUP)
            consumer = LitePullConsumer(there.session, GROUP, consume_from=FIRST, offsets=offsets)
            async with consumer:
                await consumer.assign([QUEUE])
                await take(consumer, 3)
                offsets.asked.clear()
                offsets.may_answer.clear()
                reset = asyncio.create_task(consumer.reader.reset({QUEUE: 0}))
                await offsets.asked.wait()
                closing = asyncio.create_task(consumer.close())
                await until(lambda: not consumer.reader._background)
                offsets.may_answer.set()
                await asyncio.gather(reset, closing)
            assert not consumer.reader._pulls and not consumer.assigned
            with pytest.raises(ClientError, match="is not assigned"):
                await consumer.reader.seek(QUEUE, 0)

    asyncio.run(scenario())


def test_polling_before_opening_and_assigning_with_subscriptions_are_refused() -> None:
    async def scenario() -> None:
        async with cluster() as there:
            with pytest.raises(ClientError, match="not open"):
                await reading(there).poll()
            async with member(there) as consumer:
                with pytest.raises(ClientError, match="the group assigns"):
                    await consumer.assign([QUEUE])

    asyncio.run(scenario())


def test_polled_messages_are_committed_with_the_next_poll() -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(3))

            def member() -> LitePullConsumer:
                return LitePullConsumer(
                    there.address, GROUP, {TOPIC: "*"}, consume_from=FIRST, pull_batch=1
                )

            with pytest.raises(ZeroDivisionError):
                async with member() as consumer:
                    assert [message.body for message in await consumer.poll(5)] == [b"0"]
                    assert [message.body for message in await consumer.poll(5)] == [b"1"]
                    for error in await consumer.reader.commit():
                        raise error
                    assert await there.lag() == 2  # the caller works on the second one
                    1 / 0  # noqa: B018
            assert await there.lag() == 2
            async with member() as consumer:
                assert [message.body for message in await consumer.poll(5)] == [b"1"]
                await consumer.commit()
                assert await there.lag() == 1
                assert [message.body for message in await consumer.poll(5)] == [b"2"]
            assert await there.lag() == 0  # the block was left without an error

    asyncio.run(scenario())


def test_a_topic_listener_that_raises_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.client.consumer.lite_pull_consumer.TOPIC_CHECK_SECONDS", 0.05)
    heard: list[int] = []

    def broken(topic: str, queues: list[MessageQueue]) -> None:
        raise KeyError("a bug of the user's")

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            async with LitePullConsumer(there.address, GROUP) as lite:
                await lite.on_queues_changed(TOPIC, broken)
                await lite.on_queues_changed(TOPIC, lambda topic, queues: heard.append(len(queues)))
                for count in (2, 3):
                    config = there.pair.broker.stores.topics.get(TOPIC)
                    assert config is not None
                    config.read_queue_nums = config.write_queue_nums = count
                    await there.admin.create_topic(there.pair.broker.address, config)
                    lite.session.outdate_route(TOPIC)
                    await until(lambda: heard[-1:] == [count])  # noqa: B023

    asyncio.run(scenario())
