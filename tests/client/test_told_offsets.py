"""Whether an offset counts as committed for a queue that is not pulled from: it is committed
once.
"""

from contextlib import AsyncExitStack

import pytest

from mq.client.lite_pull_consumer import LitePullConsumer
from mq.client.process_queue import FlowLimits
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.client.clusters import GROUP, TOPIC, numbers
from tests.client.replicas import NAME, named, polled, replica
from tests.client.scenarios import in_a_loop
from tests.client.scripted import scripted
from tests.waiting import until

QUEUE = MessageQueue(TOPIC, NAME, 0)
LIMITS = FlowLimits(messages=1)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.client.process_queue.CHECK_AFTER_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.offsets.REPEAT_SECONDS", 0.0)


def _listening(told: list[int]) -> dict[int, Handler]:
    def tell(request: Command, channel: Channel) -> Command:
        told.append(int(request.fields["commitOffset"]))
        return request.reply(0)

    return {**replica(5), RequestCode.UPDATE_CONSUMER_OFFSET: tell}


@in_a_loop
async def test_where_a_full_queue_is_is_told_once_also_while_another_broker_is_away() -> None:
    """That it could not be told counted for all: in a topic that was made again it was wrong."""
    told: list[int] = []
    async with AsyncExitStack() as parts, AsyncExitStack() as dies:
        broker = await parts.enter_async_context(scripted(_listening(told)))
        others = {"broker-b": await dies.enter_async_context(scripted(replica(0)))}
        names = await parts.enter_async_context(named({0: broker}, others))
        async with LitePullConsumer(names, GROUP, limits=LIMITS) as consumer:
            await consumer.assign([QUEUE, MessageQueue(TOPIC, "broker-b", 0)])
            assert await polled(consumer, 3) == numbers(3)
            await dies.aclose()
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            assert await consumer.reader.commit()
            assert await consumer.reader.commit()
            assert told == [2]


@in_a_loop
async def test_where_a_full_queue_is_is_told_again_to_a_master_that_was_away() -> None:
    """What its replica was told counted: behind a crash what was finished came once more."""
    told: list[int] = []
    addresses: dict[int, str] = {}
    async with AsyncExitStack() as parts:
        master = await parts.enter_async_context(scripted(_listening(told)))
        addresses[1] = await parts.enter_async_context(scripted(replica(5)))
        names = await parts.enter_async_context(named(addresses))
        async with LitePullConsumer(names, GROUP, limits=LIMITS) as consumer:
            await consumer.assign([QUEUE])
            assert await polled(consumer, 3) == numbers(3)
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            assert await consumer.reader.commit() == []
            assert told == []
            addresses[0] = master
            await consumer.session.fresh_route(TOPIC)
            assert await consumer.reader.commit() == []
            assert told == [2]
