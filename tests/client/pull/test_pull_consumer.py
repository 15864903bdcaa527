"""Pulls from any queue and offset, against our own daemons."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mq.client.pull.pull_consumer import PullConsumer, PullStatus
from mq.daemons.channel import Channel
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.client.clusters import GROUP, TOPIC, cluster, numbers
from tests.client.scripted import name_server, scripted

QUEUE = MessageQueue(TOPIC, "a", 0)


@asynccontextmanager
async def puller_without_messages(
    steps: list[int], code: ResponseCode = ResponseCode.PULL_RETRY_IMMEDIATELY
) -> AsyncIterator[PullConsumer]:
    """Yield a consumer whose broker answers each pull at once, with `code` and no messages.

    Each answer moves the offset by the next of `steps`.
    """
    left = iter(steps)

    def answer(request: Command, channel: Channel) -> Command:
        found = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(int(request.fields["queueOffset"]) + next(left)),
            "minOffset": "0",
            "maxOffset": "0",
        }
        return request.reply(code, found)

    async with (
        scripted({RequestCode.PULL_MESSAGE: answer}) as broker,
        scripted(name_server({"a": broker})) as names,
        PullConsumer(names, GROUP) as puller,
    ):
        yield puller


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


def test_a_suspended_pull_returns_the_next_message() -> None:
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


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCHED),
        (ResponseCode.PULL_OFFSET_MOVED, PullStatus.OFFSET_ILLEGAL),
        (ResponseCode.SUCCESS, PullStatus.FOUND),
    ],
)
def test_repeated_pulls_without_progress_have_increasing_pauses(
    code: ResponseCode, status: PullStatus
) -> None:
    async def scenario() -> float:
        async with puller_without_messages([0] * 5, code) as puller:
            began = time.monotonic()
            for _ in range(5):
                result = await puller.pull(QUEUE, 6, wait=15)
                assert (result.status, result.next_offset) == (status, 6)
            return time.monotonic() - began

    assert asyncio.run(scenario()) > 0.05 + 0.1 + 0.2 + 0.4


def test_an_offset_that_is_moved_back_is_returned_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.client.pull.pull_consumer.FRUITLESS_SECONDS", 600.0)

    async def scenario() -> None:
        steps, moved = [-1] * 4, ResponseCode.PULL_OFFSET_MOVED
        async with puller_without_messages(steps, moved) as puller, asyncio.timeout(60):
            for offset in range(9, 5, -1):
                await puller.pull(QUEUE, offset, wait=15)

    asyncio.run(scenario())


def test_there_is_no_pause_the_first_time_or_when_the_offset_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.client.pull.pull_consumer.FRUITLESS_SECONDS", 600.0)
    monkeypatch.setattr("mq.client.pull.pull_consumer.LONGEST_FRUITLESS_SECONDS", 600.0)

    async def scenario() -> None:
        async with puller_without_messages([0, 3, 2, 0, 0, 0]) as puller, asyncio.timeout(60):
            for offset in (6, 6, 9, 11):
                await puller.pull(QUEUE, offset, wait=15)
            await puller.pull(QUEUE, 11)  # a pull that may not be suspended

    asyncio.run(scenario())
