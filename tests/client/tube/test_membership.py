"""The group and the subscriptions of a TubeMQ consumer."""

import asyncio

from mq.client.tube.consumer import TubeConsumer
from mq.client.tube.membership import Subscription
from tests.client.tube.scripted import Master, opened
from tests.client.tube.virtual_time import run_fast


def test_one_topic_need_not_be_in_a_list() -> None:
    assert Subscription("orders").topics == Subscription(["orders"]).topics == ["orders"]


def test_members_that_start_in_the_same_moment_are_not_taken_for_one() -> None:
    async def scenario() -> None:
        master = Master()
        async with opened(master):
            consumers = [TubeConsumer(master.address, "reports", "orders") for _ in range(8)]
            await asyncio.gather(*(consumer.start() for consumer in consumers))
            assert len({consumer.client_id for consumer in consumers}) == len(consumers)
            await asyncio.gather(*(consumer.close() for consumer in consumers))

    run_fast(scenario())
