"""Commands that read TubeMQ: the conditions of their end."""

import asyncio
from typing import Any

import pytest

from mq.cli.tube_reading import all_connected, batches, confirm
from mq.client.tube.errors import TubeError
from mq.protocol.tube.codes import Code, Method
from tests.client.tube.choosing import KEYS, META, TAKE, choosing, metadata
from tests.client.tube.scripted import HANG_UP, Broker, Master, accept, message, refuse
from tests.client.tube.virtual_time import run_fast

GET = Method.GET_MESSAGES_C2B


async def seen(consumer: Any, limit: int | None = None, wait: float | None = None) -> list[int]:
    found = []
    async for batch, shown in batches(consumer, wait, limit):
        found += [one.message_id for one in batch.messages[:shown]]
        await confirm(consumer, batch)
    return found


def test_reading_goes_on_when_a_broker_was_started_again() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        async with choosing(master, broker) as consumer, all_connected(consumer) as count:
            assert count == len(KEYS)
            reading = asyncio.create_task(seen(consumer, 2))
            broker.stores(broker.partition(0), [message(1)])
            await asyncio.sleep(1)
            broker.owners.clear()
            broker.hang_up()
            await asyncio.sleep(30)
            assert not reading.done()
            broker.stores(broker.partition(1), [message(2)])
            assert await reading == [1, 2]

    run_fast(scenario())


def test_partitions_that_come_later_are_read_too() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        one = {"topicMetaInfoList": ["orders#1:1:1:1"], "topicMetaInfoId": 8}
        master.plays(
            META,
            lambda _: accept(META, **{**metadata(broker), **one}),
            lambda _: accept(META, **metadata(broker)),
        )
        async with choosing(master, broker) as consumer, all_connected(consumer) as count:
            assert count == 1
            broker.stores(broker.partition(1), [message(2)])
            assert await seen(consumer, 1) == [2]

    run_fast(scenario())


@pytest.mark.parametrize("step", [refuse(GET, Code.SERVICE_UNAVAILABLE), HANG_UP], ids=str)
def test_what_is_worth_another_try_does_not_end_reading(step: Any) -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        usual: Any = lambda request: broker.usually(GET, request)  # noqa: E731
        broker.plays(GET, step, usual)
        broker.stores(broker.partition(0), [message(1)], [message(2)])
        async with choosing(master, broker) as consumer, all_connected(consumer):
            assert await seen(consumer, wait=60) == [1, 2]

    run_fast(scenario())


def test_what_another_try_does_not_change_ends_reading() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.plays(GET, refuse(GET, Code.BAD_REQUEST, "nonsense"))
        async with choosing(master, broker) as consumer, all_connected(consumer):
            with pytest.raises(TubeError, match="nonsense"):
                await seen(consumer)

    run_fast(scenario())


def test_a_confirmation_in_vain_does_not_end_reading() -> None:
    async def scenario() -> None:
        master, broker = Master(), Broker()
        broker.stores(broker.partition(0), [message(1)], [message(2)])
        async with choosing(master, broker) as consumer, all_connected(consumer):
            found = []
            async for batch, _ in batches(consumer, None, 3):
                found += [one.message_id for one in batch.messages]
                if len(found) == 1:
                    await consumer.disconnect(KEYS[0])
                await confirm(consumer, batch)
            assert found == [1, 1, 2]
            assert len(broker.asked(TAKE)) >= len(KEYS) + 2

    run_fast(scenario())
