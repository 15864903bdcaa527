"""Queues that are read at will, against our own daemons."""

import asyncio

from mq.client.pull_consumer import PullConsumer, PullStatus
from tests.client.clusters import GROUP, TOPIC, cluster, numbers


def test_a_queue_is_read_from_any_offset_and_a_wrong_one_is_corrected() -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(5))
            puller = PullConsumer(there.session, GROUP)
            (queue,) = await puller.queues(TOPIC)
            assert [m.body async for m in puller.read(queue, 1, 4)] == [b"1", b"2", b"3"]
            assert [m.body async for m in puller.read(queue)] == numbers(5)
            beyond = await puller.pull(queue, 99)
            assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 5)
            assert (await puller.pull(queue, 5)).status is PullStatus.NO_NEW
            none = await puller.pull(queue, 0, "other")
            assert (none.status, none.next_offset) == (PullStatus.NO_MATCHED, 5)
            assert await puller.committed(queue) is None or await puller.committed(queue) == 0
            await puller.commit(queue, 3)
            assert await puller.committed(queue) == 3
            assert await puller.offset_at(queue, 0) == 0

    asyncio.run(scenario())


def test_a_held_pull_brings_the_next_message_when_it_comes() -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            async with PullConsumer(there.address, GROUP) as puller:
                (queue,) = await puller.queues(TOPIC)
                waiting = asyncio.ensure_future(puller.pull(queue, 0, wait=10))
                await asyncio.sleep(0.05)
                assert not waiting.done()
                await there.send(b"now")
                assert [message.body for message in (await waiting).messages] == [b"now"]

    asyncio.run(scenario())
