"""What listeners may be and may say, against our own daemons."""

import asyncio
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.consumer.push.listener import RetryLater, SuspendQueue, suspension_of
from mq.client.errors import ClientError
from mq.client.producer.producer import Producer
from mq.client.pull.process_queue import FlowLimits
from mq.client.pull.pull_consumer import PullConsumer
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message, StoredMessage
from mq.protocol.properties import PropertyKey
from tests.client.clusters import FIRST, GROUP, TOPIC, Cluster, cluster, numbers
from tests.waiting import until


async def in_dead_letters(there: Cluster, count: int) -> list[StoredMessage]:
    """The group's dead letters, once there are so many."""
    store = there.pair.broker.stores.messages
    topic = f"%DLQ%{GROUP}"
    await until(lambda: store.max_offset(topic, 0) >= count, 20)
    await there.pair.broker.registration.announced()  # the broker has just made the topic
    puller = PullConsumer(there.session, GROUP)
    (queue,) = [queue for queue in await puller.queues(topic) if queue.queue_id == 0]
    return [message async for message in puller.read(queue)]


def test_a_plain_function_runs_in_threads_side_by_side() -> None:
    both = threading.Barrier(2, timeout=15)
    got: list[bytes] = []

    def listen(message: StoredMessage) -> None:
        both.wait()  # only passes while two are in it at the same time
        got.append(message.body)

    async def scenario() -> None:
        async with cluster() as there:
            await there.send(*numbers(4))
            async with there.consumer(listener=listen, concurrency=2):
                await until(lambda: len(got) == 4)
            assert await there.lag() == 0

    asyncio.run(scenario())
    assert sorted(got) == numbers(4)


def test_a_plain_function_around_an_async_one_is_awaited() -> None:
    got: list[bytes] = []

    async def listen(prefix: bytes, message: StoredMessage) -> None:
        await asyncio.sleep(0)
        got.append(prefix + message.body)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"1")
            async with there.consumer(listener=lambda message: listen(b"lambda ", message)):
                await until(lambda: bool(got))
            await there.send(b"2")
            async with there.consumer(listener=partial(listen, b"partial ")):
                await until(lambda: len(got) == 2)

    asyncio.run(scenario())
    assert got == [b"lambda 1", b"partial 2"]


def test_a_batch_listener_gets_lists_and_finishes_what_it_says() -> None:
    calls: list[list[bytes]] = []

    async def listen(messages: list[StoredMessage]) -> None:
        calls.append([message.body for message in messages])
        if len(calls) == 1:
            raise RetryLater(1, consumed=3)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(10))
            async with there.consumer(batch_listener=listen, batch=4, concurrency=1):
                # The fourth is redelivered from the retry topic.
                await until(lambda: sum(map(len, calls)) == 11)
            assert await there.lag() == 0

    asyncio.run(scenario())
    assert calls[:3] == [numbers(4), numbers(8)[4:], numbers(10)[8:]]
    assert calls[3:] == [[b"3"]]


def test_a_message_that_fails_comes_again_as_often_as_is_allowed_then_it_is_a_dead_letter() -> None:
    tries: list[int] = []

    async def listen(message: StoredMessage) -> None:
        tries.append(message.reconsume_times)
        assert message.topic == TOPIC
        raise RetryLater(1)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            async with there.consumer(listener=listen, max_reconsume_times=1):
                await there.send(b"hopeless")
                (dead,) = await in_dead_letters(there, 1)
        assert dead.body == b"hopeless"
        assert dead.properties[PropertyKey.RETRY_TOPIC] == TOPIC

    asyncio.run(scenario())
    assert tries == [0, 1]


def test_a_listener_can_make_a_message_a_dead_letter_at_once() -> None:
    async def listen(message: StoredMessage) -> None:
        raise RetryLater(-1)

    async def scenario() -> None:
        async with cluster(queues=1) as there, there.consumer(listener=listen):
            await there.send(b"no")
            assert [m.body for m in await in_dead_letters(there, 1)] == [b"no"]

    asyncio.run(scenario())


def test_a_message_that_a_listener_has_too_long_is_sent_back_once() -> None:
    got: list[int] = []
    release = asyncio.Event()

    async def listen(message: StoredMessage) -> None:
        got.append(message.reconsume_times)
        if len(got) == 1:
            await release.wait()
            raise ValueError("too late to matter")

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            store = there.pair.broker.stores.messages
            async with there.consumer(listener=listen, consume_timeout=0.2):
                await there.send(b"slow")
                await until(lambda: store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 1)  # level 3
                release.set()
            assert store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 1
            assert await there.lag() == 0

    asyncio.run(scenario())
    assert got == [0]


def test_a_paused_consumer_pulls_nothing_until_it_is_resumed() -> None:
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    async def scenario() -> None:
        async with cluster(queues=1) as there, there.consumer(listener=listen) as consumer:
            await there.send(b"1")
            await until(lambda: len(got) == 1)
            consumer.pause()
            await there.send(b"2")  # ends the pull that waits already
            await until(lambda: len(got) == 2)
            await there.send(b"3")
            await consumer.reader.rebalance()
            assert all(held.paused for held in consumer.reader.held.values())
            assert got == [b"1", b"2"]
            consumer.resume()
            await until(lambda: len(got) == 3)

    asyncio.run(scenario())


def test_an_ordered_message_is_given_up_after_its_tries_and_the_queue_goes_on() -> None:
    tries: list[tuple[bytes, int]] = []

    def listen(message: StoredMessage) -> None:
        tries.append((message.body, message.reconsume_times))
        if message.body == b"bad":
            raise SuspendQueue(0.01)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"bad", b"good")
            async with there.consumer(listener=listen, ordered=True, max_reconsume_times=2):
                await until(lambda: (b"good", 0) in tries)
                (dead,) = await in_dead_letters(there, 1)
            assert await there.lag() == 0
        assert dead.body == b"bad"

    asyncio.run(scenario())
    assert tries == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]


def test_more_queues_than_workers_fail_without_keeping_the_others_waiting() -> None:
    got: Counter[int] = Counter()

    async def listen(message: StoredMessage) -> None:
        got[message.queue_id] += 1
        if message.queue_id < 3:
            raise SuspendQueue(30)

    async def scenario() -> None:
        async with cluster(queues=4) as there:
            await there.send(*numbers(8))
            async with there.consumer(listener=listen, ordered=True, concurrency=1):
                await until(lambda: got[3] == 2)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (SuspendQueue(), 1.0),
        (SuspendQueue(0.0), 0.01),
        (SuspendQueue(99), 30.0),
        (SuspendQueue(5), 5.0),
        (ValueError(), 1.0),
    ],
)
def test_a_suspension_has_the_bounds_of_java(error: Exception, seconds: float) -> None:
    assert suspension_of(error, 1.0) == seconds


def test_what_does_not_go_together_is_refused() -> None:
    def listen(_: object) -> None:
        raise AssertionError("never called")

    with pytest.raises(ClientError, match="not both"):
        Consumer("127.0.0.1:1", GROUP, {TOPIC: "*"}, listener=listen, batch_listener=listen)
    with pytest.raises(ClientError, match="needs a batch_listener"):
        Consumer("127.0.0.1:1", GROUP, {TOPIC: "*"}, listener=listen, batch=2)
    with pytest.raises(ClientError, match="a delay level is -1 to 18, not 19"):
        RetryLater(19)


def test_a_topic_limit_is_shared_by_the_queues_that_a_member_has() -> None:
    async def scenario() -> None:
        release = asyncio.Event()

        async def listen(message: StoredMessage) -> None:
            await release.wait()

        limits = FlowLimits(topic_messages=8)
        async with cluster(queues=4) as there:
            await there.send(*numbers(60))
            async with there.consumer(listener=listen, pull_batch=1, limits=limits) as consumer:
                held = consumer.reader.held

                def full() -> bool:
                    mine = [q for queue, q in held.items() if queue.topic == TOPIC]
                    return len(mine) == 4 and not any(q.has_room for q in mine)

                await until(full)
                assert {q.count for queue, q in held.items() if queue.topic == TOPIC} == {2}
                release.set()

    asyncio.run(scenario())


def test_every_broadcast_member_gets_all_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    got: dict[str, list[bytes]] = {"a": [], "b": []}

    def listener(name: str) -> object:
        async def listen(message: StoredMessage) -> None:
            got[name].append(message.body)
            if message.body == b"0":
                raise ValueError("what fails does not come again")

        return listen

    async def scenario() -> None:
        async with cluster() as there:

            def member(name: str) -> Consumer:
                return there.consumer(
                    listener=listener(name),
                    broadcasting=True,
                    instance=name,
                    offset_directory=tmp_path,
                )

            await there.send(*numbers(8))
            async with member("a"), member("b"):
                await until(lambda: len(got["a"]) == len(got["b"]) == 8)
            await there.send(b"8")
            async with member("a") as again:
                await until(lambda: len(got["a"]) == 9)
                assert {queue.topic for queue in again.assigned} == {TOPIC}
        assert sorted(got["a"]) == numbers(9)
        assert sorted(got["b"]) == numbers(8)

    asyncio.run(scenario())


def test_a_namespace_is_seen_by_the_broker_only() -> None:
    got: list[tuple[str, int]] = []

    async def listen(message: StoredMessage) -> None:
        got.append((message.topic, message.reconsume_times))
        if message.reconsume_times == 0:
            raise RetryLater(1)

    async def scenario() -> None:
        async with cluster() as there:
            async with (
                Producer(there.address, "senders", namespace="shop") as producer,
                Producer(there.address, "senders", namespace="other") as other,
            ):
                sent = await producer.send(Message("Orders", b"1"))
                assert sent.queue.topic == "shop%Orders"
                await other.send(Message("Orders", b"not for us"))
                batch = await producer.send_batch(
                    [Message("Orders", b"2"), Message("Orders", b"3")]
                )
                assert batch.queue.topic == "shop%Orders"
            async with Consumer(
                there.address,
                GROUP,
                {"Orders": "*"},
                listener=listen,
                consume_from=FIRST,
                namespace="shop",
            ) as consumer:
                assert consumer.group == "shop%group"
                await until(lambda: len(got) == 6, 30)
                topics = {queue.topic for queue in consumer.assigned}
                assert topics == {"shop%Orders", "%RETRY%shop%group"}
        assert Counter(got) == {("Orders", 0): 3, ("Orders", 1): 3}

    asyncio.run(scenario())


def test_a_client_of_a_unit_says_so() -> None:
    async def scenario() -> None:
        async with cluster() as there:
            consumer = there.consumer(instance="i", unit_name="u1")
            assert consumer.session.client_id == "127.0.0.1@i@u1"
            assert consumer._member.describe().consumer_data_set[0].unit_mode

    asyncio.run(scenario())


GARBAGE = b"not compressed at all"


async def send_garbage(there: Cluster) -> None:
    """A message that is flagged compressed, with a body that is not."""
    fields = {
        **{"a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "1"},
        **{"g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", "m": "false"},
    }
    command = Command(RequestCode.SEND_MESSAGE_V2, fields, GARBAGE)
    reply = await there.session.invoke(there.pair.broker.address, command)
    assert reply.code == 0, reply


@pytest.mark.parametrize("ordered", [False, True])
def test_a_body_that_cannot_be_restored_comes_as_it_is_and_the_queue_goes_on(ordered: bool) -> None:
    got: list[tuple[bytes, bool]] = []

    def listen(message: StoredMessage) -> None:
        got.append((message.body, bool(message.body_error)))

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"before")
            await send_garbage(there)
            await there.send(b"after")
            async with there.consumer(listener=listen, ordered=ordered):
                await until(lambda: len(got) == 3)
            assert await there.lag() == 0
            puller = PullConsumer(there.session, "another")
            (queue,) = await puller.queues(TOPIC)
            read = [message async for message in puller.read(queue)]
            assert [message.body for message in read] == [b"before", GARBAGE, b"after"]
            assert "zlib" in read[1].body_error
            async with LitePullConsumer(
                there.address, "lite", {TOPIC: "*"}, consume_from=FIRST
            ) as lite:
                taken: list[bytes] = []
                while len(taken) < 3:
                    taken += [message.body for message in await lite.poll(5)]
            assert taken == [b"before", GARBAGE, b"after"]

    asyncio.run(scenario())
    assert sorted(got) == sorted([(b"before", False), (GARBAGE, True), (b"after", False)])


def test_a_body_that_cannot_be_restored_becomes_a_dead_letter_if_the_listener_says_so() -> None:
    def listen(message: StoredMessage) -> None:
        if message.body_error:
            raise RetryLater(-1)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await send_garbage(there)
            async with there.consumer(listener=listen):
                (dead,) = await in_dead_letters(there, 1)
            assert dead.body == GARBAGE and dead.body_error

    asyncio.run(scenario())
