"""Whatever a listener raises is the failure of its message; and however one closes, it ends."""

import asyncio
import concurrent.futures
import time
from collections import Counter
from collections.abc import Callable

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.producer.producer import Producer
from mq.protocol.message import StoredMessage
from tests.client.clusters import GROUP, TOPIC, cluster, numbers
from tests.waiting import until


class Odd(BaseException):
    """Neither an Exception nor what ends a program."""


async def cancelled_inside() -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    task.cancel()
    await task


def raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


IN_THREADS = [
    StopIteration(),
    concurrent.futures.CancelledError(),
    asyncio.CancelledError(),
    KeyError("x"),
    SystemExit(3),
    Odd(),
]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("error", IN_THREADS, ids=lambda error: type(error).__name__)
def test_whatever_a_threaded_listener_raises_fails_its_message_only(
    error: BaseException, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: Counter[bytes] = Counter()

    def listen(message: StoredMessage) -> None:
        tries[message.body] += 1
        if message.body == b"bad" and tries[b"bad"] == 1:
            raise error

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"bad", b"good")
            options = {"ordered": ordered, "suspension": 0.01, "concurrency": 1}
            async with there.consumer(listener=listen, **options) as consumer:
                await until(lambda: tries[b"good"] == 1)
                if ordered:
                    assert tries[b"bad"] == 2
                else:
                    assert consumer.reader.counts[TOPIC].failed == 1
            assert await there.lag() == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("fail", [cancelled_inside, raising(Odd())], ids=["cancelled", "odd"])
def test_whatever_an_async_listener_raises_fails_its_message_only(
    fail: Callable[[], object], ordered: bool
) -> None:
    tries: Counter[bytes] = Counter()

    async def listen(message: StoredMessage) -> None:
        tries[message.body] += 1
        if message.body == b"bad" and tries[b"bad"] == 1:
            result = fail()
            if asyncio.iscoroutine(result):
                await result

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"bad", b"good")
            options = {"ordered": ordered, "suspension": 0.01, "concurrency": 1}
            async with there.consumer(listener=listen, **options) as consumer:
                await until(lambda: tries[b"good"] == 1)
                if not ordered:
                    assert consumer.reader.counts[TOPIC].failed == 1
            assert await there.lag() == 0

    asyncio.run(scenario())


async def cancel_soon(task: "asyncio.Task[None]") -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_after_a_close_that_was_cancelled_the_next_one_ends() -> None:
    async def scenario() -> None:
        release = asyncio.Event()
        inside = asyncio.Event()

        async def listen(message: StoredMessage) -> None:
            inside.set()
            await release.wait()

        async with cluster(queues=1) as there:
            await there.send(b"1")
            consumer = there.consumer(listener=listen)
            await consumer.open()
            await inside.wait()
            await cancel_soon(asyncio.create_task(consumer.close()))
            release.set()
            async with asyncio.timeout(60):
                await consumer.close()
                await consumer.wait_closed()
            assert await there.lag() == 0
            clients: list[LitePullConsumer | Producer] = [
                LitePullConsumer(there.address, GROUP, {TOPIC: "*"}),
                Producer(there.address),
            ]
            for client in clients:
                await client.open()
                await cancel_soon(asyncio.create_task(client.close()))
                async with asyncio.timeout(60):
                    await client.close()
                assert not client.session._peers
                assert not client.session._tasks

    asyncio.run(scenario())


@pytest.mark.parametrize("ordered", [False, True])
def test_a_listener_may_close_its_consumer_and_its_message_counts(ordered: bool) -> None:
    async def scenario() -> None:
        consumers: list[Consumer] = []

        async def listen(message: StoredMessage) -> None:
            await consumers[0].close()

        async with cluster(queues=1) as there:
            await there.send(b"last")
            consumers.append(there.consumer(listener=listen, ordered=ordered))
            began = time.monotonic()
            async with consumers[0]:
                async with asyncio.timeout(8):
                    await consumers[0].wait_closed()
            assert time.monotonic() - began < 8
            assert await there.lag() == 0

    asyncio.run(scenario())


def test_a_message_whose_loop_was_left_by_an_exception_comes_in_the_next_loop() -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(3))
            async with there.consumer() as consumer:
                with pytest.raises(ZeroDivisionError):
                    async for message in consumer:
                        if message.body == b"1":
                            1 / 0  # noqa: B018
                got: list[bytes] = []
                async with asyncio.timeout(60):
                    async for message in consumer:
                        got.append(message.body)
                        if len(got) == 2:
                            await consumer.retry_later(message, 1)
                            break
                assert sorted(got) == [b"1", b"2"]
                async with asyncio.timeout(60):
                    async for message in consumer:
                        assert message.reconsume_times == (message.body == got[-1])
                        if message.reconsume_times:
                            break

    asyncio.run(scenario())
