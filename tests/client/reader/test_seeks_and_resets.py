"""Queues that a user or an operator has moved to another offset: where they continue, and whether
they stay paused.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.errors import MQError, SystemBusy
from mq.client.offsets.local_offsets import LocalOffsetStore
from mq.daemons.channel import Channel
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster, numbers
from tests.client.missing_topics import (
    QUEUE,
    hide,
    remake,
    shorten_pauses,
    show,
)
from tests.client.replicas import named, polled, replica
from tests.client.scenarios import in_a_loop
from tests.client.scripted import scripted
from tests.waiting import until


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


@in_a_loop
async def test_a_seek_is_kept_while_a_recreated_topic_is_found() -> None:
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with LitePullConsumer(there.address, "g", auto_commit=False) as consumer:
            await consumer.assign([QUEUE])
            got: list[bytes] = []
            while len(got) < 5:
                got += [message.body for message in await consumer.poll()]
            reader = consumer.reader
            await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
            await until(lambda: reader.held[QUEUE].is_absent)
            async with reader._changing:  # as a running rebalance
                seeking = asyncio.create_task(reader.seek(QUEUE, 15))
                await asyncio.sleep(0)
                await remake(there, *[b"new%d" % number for number in range(20)])
                await until(reader._pulls[QUEUE].done)
            await seeking
            got = []
            while b"new19" not in got:
                got += [message.body for message in await consumer.poll()]
            assert got == [b"new%d" % number for number in range(15, 20)]


@pytest.mark.parametrize("sought", [0, 3, 5])
@in_a_loop
async def test_a_seek_is_kept_while_the_topic_is_missing(
    sought: int,
) -> None:
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with LitePullConsumer(there.address, "g", auto_commit=False) as consumer:
            await consumer.assign([QUEUE])
            consumer.pause([QUEUE])
            await consumer.seek(QUEUE, sought)
            held = consumer.reader.held[QUEUE]
            await hide(there)
            consumer.resume([QUEUE])
            await until(lambda: held.is_absent)
            await show(there)
            await there.send(b"5")
            got: list[StoredMessage] = []
            while not got or got[-1].body != b"5":
                got += await consumer.poll()
            assert [message.body for message in got] == numbers(6)[sought:]
            assert consumer.reader.held[QUEUE] is held


@pytest.mark.parametrize("assigns", [False, True])
@pytest.mark.parametrize("why", ["another topic", "a reset"])
@in_a_loop
async def test_a_paused_queue_stays_paused_when_it_moves(why: str, assigns: bool) -> None:
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        subscriptions = {} if assigns else {TOPIC: "*"}
        async with LitePullConsumer(
            there.address, GROUP, subscriptions, consume_from=FIRST
        ) as consumer:
            if assigns:
                await consumer.assign([QUEUE])
            got: list[bytes] = []
            while len(got) < 5:
                got += [message.body for message in await consumer.poll()]
            held = consumer.reader.held[QUEUE]
            if why == "a reset":
                consumer.pause([QUEUE])
                await consumer.reader.reset({QUEUE: 2})
            else:
                await there.admin.delete_topic_in_broker(there.pair.broker.address, TOPIC)
                await until(lambda: held.is_absent)
                consumer.pause([QUEUE])
                await remake(there, b"2", b"3", b"4")
            await until(lambda: held.dropped and QUEUE in consumer.reader.held)
            assert await consumer.poll(0.3) == []
            consumer.resume([QUEUE])
            got = []
            while len(got) < 3:
                got += [message.body for message in await consumer.poll()]
            assert got == [b"2", b"3", b"4"]


@pytest.mark.parametrize("fails", ["its commit", "its taking"])
@in_a_loop
async def test_a_queue_that_is_reset_twice_continues_at_the_last_offset(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the first offset is still retried, for up to a minute."""
    monkeypatch.setattr("mq.client.reader.revoked_queues.HAND_OVER_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.reader.revoked_queues.MOVE_AGAIN_SECONDS", 0.01)
    refuses: set[str] = set()

    class Busy(LocalOffsetStore):
        async def commit(self, *of: Any, **options: Any) -> list[MQError]:
            if "its commit" in refuses:
                return [SystemBusy("", "")]
            return await super().commit(*of, **options)

        async def committed(self, queue: MessageQueue) -> int | None:
            if "its taking" in refuses:
                raise SystemBusy("", "")
            return await super().committed(queue)

    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        store = Busy(tmp_path, "client", GROUP)
        async with LitePullConsumer(
            there.address, GROUP, offsets=store, consume_from=FIRST
        ) as consumer:
            await consumer.assign([QUEUE])
            refuses.add(fails)
            await consumer.reader.reset({QUEUE: 2})
            assert consumer.assigned == []
            await consumer.reader.reset({QUEUE: 4})
            refuses.clear()
            assert [message.body for message in await consumer.poll()] == [b"4"]


@in_a_loop
async def test_a_queue_paused_at_a_reset_is_not_paused_when_it_is_assigned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is revoked before the reset offset is committed."""
    monkeypatch.setattr("mq.client.reader.revoked_queues.HAND_OVER_SECONDS", 0.05)
    may_commit = asyncio.Event()

    class Late(LocalOffsetStore):
        async def commit(self, *of: Any, **options: Any) -> list[MQError]:
            await may_commit.wait()
            return await super().commit(*of, **options)

    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        store = Late(tmp_path, "client", GROUP)
        async with LitePullConsumer(
            there.address, GROUP, offsets=store, consume_from=FIRST
        ) as consumer:
            await consumer.assign([QUEUE])
            consumer.pause([QUEUE])
            await consumer.reader.reset({QUEUE: 2})
            assert consumer.assigned == []
            await consumer.assign([])
            may_commit.set()
            await consumer.assign([QUEUE])
            got: list[bytes] = []
            while len(got) < 3:
                got += [message.body for message in await consumer.poll()]
            assert got == numbers(5)[2:]


@in_a_loop
async def test_a_queue_paused_at_a_reset_is_not_paused_when_the_member_gets_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is the only one of its topic, so the assignment is empty in between."""
    monkeypatch.setattr("mq.client.reader.revoked_queues.HAND_OVER_SECONDS", 0.05)
    may_commit = asyncio.Event()
    assignment = [QUEUE]

    class Late(LocalOffsetStore):
        async def commit(self, *of: Any, **options: Any) -> list[MQError]:
            await may_commit.wait()
            return await super().commit(*of, **options)

    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with LitePullConsumer(
            there.address, GROUP, {TOPIC: "*"}, consume_from=FIRST,
            offsets=Late(tmp_path, "client", GROUP), strategy=lambda *_: list(assignment),
        ) as consumer:  # fmt: skip
            await until(lambda: consumer.assigned == [QUEUE])
            consumer.pause([QUEUE])
            assignment.clear()
            await consumer.reader.reset({QUEUE: 2})
            await consumer.reader.rebalance()
            may_commit.set()
            assignment.append(QUEUE)
            consumer.reader.wake()
            await until(lambda: consumer.assigned == [QUEUE])
            assert [message.body for message in await consumer.poll(2)] == numbers(5)[2:]


@in_a_loop
async def test_a_queue_paused_before_it_is_taken_is_not_read(tmp_path: Path) -> None:
    is_away = True

    class Away(LocalOffsetStore):
        async def committed(self, queue: MessageQueue) -> int | None:
            if is_away:
                raise SystemBusy("", "")
            return await super().committed(queue)

    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        async with LitePullConsumer(
            there.address, GROUP, offsets=Away(tmp_path, "client", GROUP), consume_from=FIRST
        ) as consumer:
            await consumer.assign([QUEUE])
            assert consumer.assigned == []
            consumer.pause([QUEUE])
            is_away = False
            await until(lambda: consumer.assigned == [QUEUE])
            assert await consumer.poll(0.3) == []
            consumer.resume([QUEUE])
            assert [message.body for message in await consumer.poll()] == numbers(5)


@in_a_loop
async def test_a_reset_queue_continues_there_although_its_broker_left_the_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker is restarted before it has received the reset offset."""
    monkeypatch.setattr("mq.client.reader.revoked_queues.HAND_OVER_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.reader.revoked_queues.MOVE_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("mq.client.routing.route_changes.CHECK_SECONDS", 0.1)
    sent_offsets: list[str] = []

    def commit(request: Command, channel: Channel) -> Command:
        sent_offsets.append(request.fields["commitOffset"])
        return request.reply(0)

    handlers = {**replica(9), RequestCode.UPDATE_CONSUMER_OFFSET: commit}
    handlers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request, _: request.reply(
        0, {"offset": sent_offsets[-1] if sent_offsets else "5"}
    )
    addresses: dict[int, str] = {}
    async with named(addresses) as names, AsyncExitStack() as dies:
        addresses[0] = await dies.enter_async_context(scripted(handlers))
        async with LitePullConsumer(names, GROUP) as consumer:
            await consumer.assign([QUEUE])
            assert await polled(consumer, 4) == numbers(9)[5:]
            await dies.aclose()
            addresses.clear()
            await consumer.session.fresh_route(TOPIC)
            sent_offsets.clear()
            await consumer.reader.reset({QUEUE: 2})
            async with scripted(handlers) as again:
                addresses[0] = again
                assert await polled(consumer, 7) == numbers(9)[2:]
                assert sent_offsets[0] == "2"
