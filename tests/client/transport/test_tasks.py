"""Clients that are opened while they close, opened twice, or closed while they open."""

import asyncio

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.errors import ClientError
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster, numbers
from tests.client.scenarios import in_a_loop
from tests.client.scripted import name_server, scripted
from tests.waiting import until

TURNS = range(1, 7)  # turns of the loop between the start of the closing and the opening


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("traced", [False, True])
@in_a_loop
async def test_a_producer_that_is_opened_while_it_closes_can_send(traced: bool) -> None:
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
async def test_a_lite_consumer_that_is_opened_while_it_closes_can_poll() -> None:
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
            assert await consumer.poll(0) == []  # this poll finishes the messages
            await consumer.close()


async def ignored(message: StoredMessage) -> None:
    pass


def member(kind: str, session: Session) -> Consumer | LitePullConsumer:
    if kind == "lite":
        return LitePullConsumer(session, GROUP, {TOPIC: "*"}, consume_from=FIRST)
    return Consumer(session, GROUP, {TOPIC: "*"}, listener=ignored, consume_from=FIRST)


def tasks_of(session: Session) -> list[str]:
    """Return the names of the session's tasks, except those that refresh routes."""
    names = [task.get_coro().__qualname__ for task in session._tasks]  # type: ignore[union-attr]
    return [name for name in names if "route" not in name]


@pytest.mark.parametrize("kind", ["push", "lite"])
@in_a_loop
async def test_a_member_that_is_closed_while_it_opens_leaves_its_group(kind: str) -> None:
    """The opening ends with the closing, and the member keeps no queue."""
    async with cluster() as there, Session(there.address) as session:
        for count in (1, 2, 4, 8, 16, 32):
            one = member(kind, session)
            opening = asyncio.create_task(one.open())
            await turns(count)
            await one.close()
            await asyncio.gather(opening, return_exceptions=True)
            await until(lambda: not tasks_of(session))
            assert one.assigned == []


@pytest.mark.parametrize("kind", ["push", "lite"])
@in_a_loop
async def test_a_member_whose_opening_is_cancelled_leaves_its_group(kind: str) -> None:
    """A broker that knows the member would keep queues for it while the session is open."""
    heard = asyncio.Event()
    left: list[str] = []

    def hear(request: Command, channel: Channel) -> None:  # sends no answer
        heard.set()

    def leave(request: Command, channel: Channel) -> Command:
        left.append(request.fields["consumerGroup"])
        return request.reply(0)

    handlers: dict[int, Handler] = {RequestCode.HEART_BEAT: hear}
    handlers[RequestCode.UNREGISTER_CLIENT] = leave
    async with (
        scripted(handlers) as broker,
        scripted(name_server({"broker-a": broker})) as namesrv,
        Session(namesrv) as session,
    ):
        one = member(kind, session)
        opening = asyncio.create_task(one.open())
        await heard.wait()
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await one.close()
        assert left == [GROUP]


@pytest.mark.parametrize("kind", ["push", "lite"])
@in_a_loop
async def test_opening_a_member_twice_starts_it_once(kind: str) -> None:
    async with cluster() as there, Session(there.address) as session:
        one = member(kind, session)
        await one.open()
        before = len(session._tasks)
        await asyncio.gather(one.open(), one.open())
        assert len(session._tasks) == before
        await one.close()
        await until(lambda: not tasks_of(session))


@in_a_loop
async def test_a_consumer_that_was_closed_is_not_opened_again() -> None:
    """It would take queues and deliver nothing, and a second closing would not release them."""
    got: list[bytes] = []

    async def listener(message: StoredMessage) -> None:
        got.append(message.body)

    async with cluster(queues=1) as there:
        async with there.consumer(listener=listener) as consumer:
            pass
        await there.send(*numbers(3))
        for again in (consumer.open, consumer.__aenter__):
            with pytest.raises(ClientError, match="a closed consumer cannot be opened again"):
                await again()
        assert consumer.assigned == []
        async with there.consumer(listener=listener):
            await until(lambda: got == numbers(3))
