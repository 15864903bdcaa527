"""Clients that are opened again while they close."""

import asyncio

import pytest

from mq.client.lite_pull_consumer import LitePullConsumer
from mq.client.producer import Producer
from mq.protocol.message import Message
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster
from tests.client.scenarios import in_a_loop

TURNS = range(1, 7)  # of the loop, between the beginning of the closing and the opening


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("traced", [False, True])
@in_a_loop
async def test_a_producer_that_is_opened_while_it_closes_sends_then(traced: bool) -> None:
    async with cluster(queues=1) as there:
        for count in TURNS:
            producer = Producer(there.address, "p", trace=traced)
            await producer.open()
            closing = asyncio.create_task(producer.close())
            await turns(count)
            await producer.open()
            await closing
            await producer.send(Message(TOPIC, b"%d" % count))
            await producer.close()


@in_a_loop
async def test_a_lite_consumer_that_is_opened_while_it_closes_polls_then() -> None:
    async with cluster(queues=1) as there:
        for count in TURNS:
            body = b"%d" % count
            await there.send(body)
            consumer = LitePullConsumer(there.address, GROUP, {TOPIC: "*"}, consume_from=FIRST)
            await consumer.open()
            closing = asyncio.create_task(consumer.close())
            await turns(count)
            await consumer.open()
            await closing
            assert [message.body for message in await consumer.poll()] == [body]
            assert await consumer.poll(0) == []  # which finishes them
            await consumer.close()
