"""Commits for queues that are not pulled: a confirmed offset is not sent again."""

from contextlib import AsyncExitStack

import pytest

from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.pull.process_queue import FlowLimits
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
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.client.pull.process_queue.CHECK_AFTER_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.offsets.offset_store.REPEAT_SECONDS", 0.0)


def _replica_noting_commits(sent_offsets: list[int]) -> dict[int, Handler]:
    def note_commit(request: Command, channel: Channel) -> Command:
        sent_offsets.append(int(request.fields["commitOffset"]))
        return request.reply(0)

    return {**replica(5), RequestCode.UPDATE_CONSUMER_OFFSET: note_commit}


@in_a_loop
async def test_the_offset_of_a_full_queue_is_sent_once_while_another_broker_is_down() -> None:
    """An error of one broker does not affect queues at others: in a recreated topic it would be
    wrong to repeat the offset.
    """
    sent_offsets: list[int] = []
    async with AsyncExitStack() as parts, AsyncExitStack() as dies:
        broker = await parts.enter_async_context(scripted(_replica_noting_commits(sent_offsets)))
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
            assert sent_offsets == [2]


@in_a_loop
async def test_the_offset_of_a_full_queue_is_sent_to_a_master_that_returns() -> None:
    """An offset that only a slave has received does not count: after a crash, finished messages
    would be redelivered.
    """
    sent_offsets: list[int] = []
    addresses: dict[int, str] = {}
    async with AsyncExitStack() as parts:
        master = await parts.enter_async_context(scripted(_replica_noting_commits(sent_offsets)))
        addresses[1] = await parts.enter_async_context(scripted(replica(5)))
        names = await parts.enter_async_context(named(addresses))
        async with LitePullConsumer(names, GROUP, limits=LIMITS) as consumer:
            await consumer.assign([QUEUE])
            assert await polled(consumer, 3) == numbers(3)
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            assert await consumer.reader.commit() == []
            assert sent_offsets == []
            addresses[0] = master
            await consumer.session.fresh_route(TOPIC)
            assert await consumer.reader.commit() == []
            assert sent_offsets == [2]
