"""Checks of queues that were not pulled recently: whether their topic is still the same."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.errors import ClientError
from mq.client.hooks import ConsumeHook
from mq.client.machine import clock
from mq.client.offsets.local_offsets import LocalOffsetStore
from mq.client.pull.process_queue import FlowLimits
from mq.daemons.channel import Channel
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from mq.protocol.names import retry_topic
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster, numbers
from tests.client.replicas import NAME, named, polled, replica
from tests.client.scenarios import in_a_loop
from tests.client.scripted import scripted
from tests.waiting import until

QUEUE = MessageQueue(TOPIC, NAME, 0)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.client.pull.process_queue.CHECK_AFTER_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.pull.pulling.RECONNECT_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.pull.pulling.PULL_RETRY_SECONDS", 0.05)


@pytest.mark.parametrize("is_named", [False, True])
@in_a_loop
async def test_a_paused_queue_is_resumed_at_a_slave_while_its_master_is_down(
    is_named: bool,
) -> None:
    """The check does not need the master: the answer of a slave is enough."""
    async with AsyncExitStack() as parts, AsyncExitStack() as dies:
        master = await dies.enter_async_context(scripted(replica(5)))
        slave = await parts.enter_async_context(scripted(replica(10)))
        addresses = {0: master, 1: slave}
        names = await parts.enter_async_context(named(addresses))
        async with LitePullConsumer(names, GROUP, auto_commit=False) as consumer:
            await consumer.assign([QUEUE])
            assert await polled(consumer, 3) == numbers(3)
            consumer.pause([QUEUE])
            await dies.aclose()
            if not is_named:
                del addresses[0]
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            consumer.resume([QUEUE])
            assert await polled(consumer, 7) == numbers(10)[3:]


@in_a_loop
async def test_a_slow_consumer_reads_a_slave_that_has_more_than_its_master_to_the_end() -> None:
    """The master has deleted the messages that were read, so its first message is younger than they
    are. The queue must not restart because of that.
    """
    limits = FlowLimits(messages=1)  # it is full until a message is finished
    async with AsyncExitStack() as parts:
        master = await parts.enter_async_context(scripted(replica(8, first=2**40)))
        slave = await parts.enter_async_context(scripted(replica(8)))
        names = await parts.enter_async_context(named({0: master, 1: slave}))
        async with LitePullConsumer(names, GROUP, limits=limits) as consumer:
            await consumer.assign([QUEUE])
            got: list[bytes] = []
            while len(got) < 8:
                got += await polled(consumer, 1)
                held = consumer.reader.held[QUEUE]
                await until(lambda held=held: held.is_unseen)  # type: ignore[misc]
            assert got == numbers(8)


@in_a_loop
async def test_a_queue_is_read_to_its_end_although_the_broker_clock_was_set_back() -> None:
    """The store times of the first messages are later than those of the messages after them. The
    queue must not restart because of that.
    """
    now = int(clock.time() * 1_000)
    put_back = replica(8, time_of=lambda offset: now + (3_600_000 if offset < 3 else 0) + offset)
    limits = FlowLimits(messages=1)
    async with scripted(put_back) as broker, named({0: broker}) as names:
        async with LitePullConsumer(names, GROUP, limits=limits) as consumer:
            await consumer.assign([QUEUE])
            got: list[bytes] = []
            while len(got) < 16 and b"7" not in got:
                got += await polled(consumer, 1)
                held = consumer.reader.held.get(QUEUE)
                await until(lambda held=held: held is None or held.is_unseen)  # type: ignore[misc]
            assert got == numbers(8)


@pytest.mark.parametrize("closes", [False, True])
@in_a_loop
async def test_a_revoked_full_queue_is_committed_although_its_broker_lost_the_offset(
    closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is killed may not have saved the offset, although its topic is the same."""
    monkeypatch.setattr("mq.client.offsets.offset_store.REPEAT_SECONDS", 0.0)
    limits = FlowLimits(messages=5)
    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        offsets = there.pair.broker.stores.offsets
        async with LitePullConsumer(
            there.address, GROUP, {TOPIC: "*"}, limits=limits, consume_from=FIRST
        ) as consumer:
            assert await polled(consumer, 5) == numbers(5)
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            await consumer.commit()
            offsets.remove_topic(TOPIC)
            if closes:
                await consumer.close()
            else:
                await consumer.reader.assign([])  # as a rebalance that revokes the queue
            assert offsets.query(GROUP, TOPIC, 0) == 5


@pytest.mark.parametrize("how", ["away", "in no route", "silent"])
@in_a_loop
async def test_a_broadcasting_member_saves_its_offset_while_its_broker_is_unavailable(
    how: str, tmp_path: Path
) -> None:
    """The broker cannot answer which topic it has, and the offset is not sent to it."""
    got: list[bytes] = []
    handlers = replica(5)
    pull = handlers[RequestCode.PULL_MESSAGE]
    is_silent = False
    handlers[RequestCode.PULL_MESSAGE] = lambda request, channel: (
        None if is_silent else pull(request, channel)
    )

    async def listener(message: StoredMessage) -> None:
        got.append(message.body)

    async with AsyncExitStack() as parts, AsyncExitStack() as dies:
        master = await dies.enter_async_context(scripted(handlers))
        addresses = {0: master}
        names = await parts.enter_async_context(named(addresses))
        async with Consumer(
            names, GROUP, {TOPIC: "*"}, listener=listener, consume_from=FIRST,
            broadcasting=True, offset_directory=tmp_path, timeout=0.5,
        ) as consumer:  # fmt: skip
            await until(lambda: got == numbers(5))
            held = consumer.reader.held[QUEUE]
            if how == "silent":
                consumer.pause()
                await until(lambda: held.is_unseen)  # after the pull in flight
                is_silent = True
            else:
                await dies.aclose()
            if how == "in no route":
                addresses.clear()
                await consumer.session.fresh_route(TOPIC)
            await until(lambda: held.is_unseen)
        written = LocalOffsetStore(tmp_path, consumer.session.client_id, GROUP)
        assert await written.committed(QUEUE) == 5


@in_a_loop
async def test_a_queue_is_read_while_the_broker_of_its_first_messages_is_down() -> None:
    """A Java broker (5.x) with the end of a static topic's queue refuses queries of its start."""
    handlers = replica(10)
    pull = handlers[RequestCode.PULL_MESSAGE]
    is_away = False

    def refuse(request: Command, channel: Channel) -> Command:
        return request.reply(ResponseCode.SYSTEM_ERROR, remark="connect failed")

    def pull_of_end(request: Command, channel: Channel) -> object:
        is_there = not is_away or int(request.fields["queueOffset"])
        return pull(request, channel) if is_there else refuse(request, channel)

    handlers[RequestCode.PULL_MESSAGE] = pull_of_end  # type: ignore[assignment]
    handlers[RequestCode.GET_EARLIEST_MSG_STORETIME] = refuse
    async with scripted(handlers) as broker, named({0: broker}) as names:
        async with LitePullConsumer(
            names, GROUP, auto_commit=False, limits=FlowLimits(messages=3)
        ) as consumer:
            await consumer.assign([QUEUE])
            got = await polled(consumer, 3)
            is_away = True
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            assert got + await polled(consumer, 7) == numbers(10)


@in_a_loop
async def test_a_full_queue_is_read_although_its_broker_returns_no_store_time() -> None:
    """An answer without the field `timestamp` must not make every pull of the queue fail."""
    handlers = replica(6)
    handlers[RequestCode.GET_EARLIEST_MSG_STORETIME] = lambda request, _: request.reply(0)
    async with scripted(handlers) as broker, named({0: broker}) as names:
        async with LitePullConsumer(names, GROUP, limits=FlowLimits(messages=3)) as consumer:
            await consumer.assign([QUEUE])
            got = await polled(consumer, 3)
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            assert got + await polled(consumer, 3) == numbers(6)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
@in_a_loop
async def test_a_recreated_topic_is_noticed_although_its_broker_is_busy_at_first(
    code: ResponseCode,
) -> None:
    """A refusal of a busy broker does not mean that the topic is the same."""
    now = int(clock.time() * 1_000)
    is_another = is_busy = False
    handlers = replica(20, time_of=lambda offset: offset + (now if is_another else 0))
    pull = handlers[RequestCode.PULL_MESSAGE]
    refused: list[int] = []

    def refuse(request: Command, channel: Channel) -> Command:
        refused.append(request.code)
        return request.reply(code)

    def pull_if_not_busy(request: Command, channel: Channel) -> object:
        is_refused = is_busy and request.fields["queueOffset"] == "0" and len(refused) < 4
        return refuse(request, channel) if is_refused else pull(request, channel)

    handlers[RequestCode.PULL_MESSAGE] = pull_if_not_busy  # type: ignore[assignment]
    handlers[RequestCode.GET_EARLIEST_MSG_STORETIME] = refuse
    async with scripted(handlers) as broker, named({0: broker}) as names:
        async with LitePullConsumer(names, GROUP, limits=FlowLimits(messages=1)) as consumer:
            await consumer.assign([QUEUE])
            assert await polled(consumer, 3) == numbers(3)
            is_another = is_busy = True
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            assert await polled(consumer, 3) == numbers(3)


@in_a_loop
async def test_a_recreated_topic_is_noticed_by_a_second_check_too() -> None:
    """A rebalance may check the queue a second time before it restarts. It must commit the start of
    the recreated topic, not the former offset.
    """
    now = int(clock.time() * 1_000)
    is_another = False
    sent_offsets: list[int] = []
    handlers = replica(20, time_of=lambda offset: offset + (now if is_another else 0))

    def note_commit(request: Command, channel: Channel) -> Command:
        sent_offsets.append(int(request.fields["commitOffset"]))
        return request.reply(0)

    handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = note_commit
    async with scripted(handlers) as broker, named({0: broker}) as names:
        async with LitePullConsumer(names, GROUP) as consumer:
            await consumer.assign([QUEUE])
            assert await polled(consumer, 3) == numbers(3)
            consumer.pause([QUEUE])
            reader = consumer.reader
            held = reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            is_another = True
            async with reader._changing:
                assert not await reader._is_same(held)
                await reader._drop(QUEUE)
            assert sent_offsets == [0]


@in_a_loop
async def test_messages_pulled_for_a_check_are_not_passed_to_hooks() -> None:
    """A hook that removes duplicates would reject the message when it is pulled for delivery."""

    class Once(ConsumeHook):
        def __init__(self) -> None:
            self.seen: set[int] = set()

        def keep(self, group: str, queue: MessageQueue, message: StoredMessage) -> bool:
            is_new = message.queue_offset not in self.seen
            self.seen.add(message.queue_offset)
            return is_new

    limits = FlowLimits(messages=1)
    async with scripted(replica(3)) as broker, named({0: broker}) as names:
        async with LitePullConsumer(names, GROUP, limits=limits, hooks=[Once()]) as consumer:
            await consumer.assign([QUEUE])
            assert await polled(consumer, 1) == [b"0"]
            consumer.pause([QUEUE])
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            await consumer.commit()
            consumer.resume([QUEUE])
            assert await polled(consumer, 2) == [b"1", b"2"]


@in_a_loop
async def test_a_paused_queue_is_committed_at_a_broker_without_its_subscription() -> None:
    """A restarted broker refuses the pull of the check until the next heartbeat."""
    done = asyncio.Event()
    begun: list[bytes] = []

    async def listener(message: StoredMessage) -> None:
        begun.append(message.body)
        await done.wait()

    async with cluster(queues=1) as there:
        await there.send(*numbers(5))
        broker = there.pair.broker
        async with there.consumer(listener=listener) as consumer:
            await until(lambda: sorted(begun) == numbers(5))
            queues = [broker.stores.messages.queue(name, 0) for name in (TOPIC, retry_topic(GROUP))]
            await until(lambda: all(queue.waiting for queue in queues))  # so no pull is refused
            consumer.pause()
            held = consumer.reader.held[QUEUE]
            broker.clients.consumers.groups.clear()
            done.set()
            await until(lambda: held.commit_offset == 5 and held.is_unseen)
            await consumer.commit()
            assert broker.stores.offsets.query(GROUP, TOPIC, 0) == 5


@in_a_loop
async def test_lost_messages_of_a_paused_queue_are_not_committed_before_it_restarts() -> None:
    """The check has found the lost end, and the queue has not restarted yet."""
    is_cut = False
    sent_offsets: list[int] = []
    handlers = replica(20)
    pull = handlers[RequestCode.PULL_MESSAGE]
    figures = {"minOffset": 0, "maxOffset": 2, "suggestWhichBrokerId": 0, "nextBeginOffset": 2}
    end = {name: str(figure) for name, figure in figures.items()}

    def pull_or_move(request: Command, channel: Channel) -> object:
        if is_cut and int(request.fields["queueOffset"]) > 2:
            return request.reply(ResponseCode.PULL_OFFSET_MOVED, end)
        return pull(request, channel)

    def note_commit(request: Command, channel: Channel) -> Command:
        sent_offsets.append(int(request.fields["commitOffset"]))
        return request.reply(0)

    handlers[RequestCode.PULL_MESSAGE] = pull_or_move  # type: ignore[assignment]
    handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = note_commit
    async with scripted(handlers) as broker, named({0: broker}) as names:
        async with LitePullConsumer(names, GROUP) as consumer:
            await consumer.assign([QUEUE])
            assert await polled(consumer, 3) == numbers(3)
            consumer.pause([QUEUE])
            held = consumer.reader.held[QUEUE]
            await until(lambda: held.is_unseen)
            is_cut = True
            async with consumer.reader._changing:  # as a rebalance that waits for a broker
                for _ in range(2):
                    with pytest.raises(ClientError, match="the topic is still the same"):
                        await consumer.commit()
            await until(lambda: sent_offsets == [2])
