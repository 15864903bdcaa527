"""Trace entries on their way: dropped when too many wait, sent several at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mq.client.producer.producer import Producer, trace_dispatcher
from mq.client.trace import dispatcher as dispatcher_module
from mq.client.trace.entries import (
    Pub,
)
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from mq.protocol.names import TRACE_TOPIC
from tests.client.clusters import TOPIC, cluster
from tests.client.scripted import accept_heartbeats, name_server, scripted
from tests.client.trace.traces import traced
from tests.waiting import until


def pub(number: int) -> Pub:
    return Pub(timestamp=number, group="g", topic="t", message_id=f"{number:032d}", keys="k")


def test_when_too_many_entries_wait_more_are_dropped_and_counted() -> None:
    async def scenario() -> None:
        async with Session("127.0.0.1:9") as session:
            dispatcher = trace_dispatcher(session, "g", "PRODUCE")
            taken = [dispatcher.append(pub(n)) for n in range(dispatcher_module.QUEUE_SIZE + 3)]
        assert taken.count(True) == dispatcher_module.QUEUE_SIZE
        assert dispatcher.dropped == 3

    asyncio.run(scenario())


def test_a_thousand_entries_travel_in_few_messages_and_none_is_lost() -> None:
    async def scenario() -> None:
        async with cluster() as there:
            dispatcher = trace_dispatcher(there.session, "g", "PRODUCE")
            await dispatcher.open()
            for number in range(1000):
                assert dispatcher.append(pub(number))
            await dispatcher.close()
            found = await traced(there.session, lambda records: len(records) == 1000)
            assert dispatcher.dropped == 0
            store = there.pair.broker.stores.messages
            assert store.max_offset(TRACE_TOPIC, 0) <= 20
        assert {record.message_id for record in found} == {f"{n:032d}" for n in range(1000)}

    asyncio.run(scenario())


def test_what_is_being_sent_when_it_is_closed_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "FLUSH_SECONDS", 0.01)
    refused = asyncio.Event()
    taken: list[bytes] = []

    def take(request: Command, channel: Channel) -> Command:
        if not refused.is_set():  # it is tried again in a moment
            refused.set()
            return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark="not yet")
        taken.append(bytes(request.body))
        return request.reply(0, {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"})

    async def scenario() -> None:
        handlers = {**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: take}
        async with (
            scripted(handlers) as broker,
            scripted(name_server({"a": broker})) as namesrv,
            Session(namesrv) as session,
        ):
            dispatcher = trace_dispatcher(session, "g", "PRODUCE")
            await dispatcher.open()
            dispatcher.append(pub(1))
            await refused.wait()
            dispatcher.append(pub(2))
            await dispatcher.close()
            assert dispatcher.dropped == 0

    asyncio.run(scenario())
    assert [b"%032d" % number in b"".join(taken) for number in (1, 2)] == [True, True]


def test_a_key_that_no_message_may_have_keeps_no_trace_from_being_written() -> None:
    async def scenario() -> None:
        async with cluster() as there:
            dispatcher = trace_dispatcher(there.session, "g", "PRODUCE")
            await dispatcher.open()
            # As a message of another client may have it; it was read as such.
            odd = Pub(
                timestamp=1, group="g", topic="t", message_id=f"{1:032d}", keys="plain odd\x01key"
            )
            assert dispatcher.append(odd) and dispatcher.append(pub(2))
            await dispatcher.close()
            found = await traced(there.session, lambda records: len(records) == 2)
            assert dispatcher.dropped == 0
        assert [record.message_id for record in found] == [f"{1:032d}", f"{2:032d}"]
        assert [record.keys for record in found] == ["plain oddkey", "k"]

    asyncio.run(scenario())


def test_sends_go_on_when_no_broker_takes_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "FLUSH_SECONDS", 0.01)

    async def scenario() -> None:
        async with cluster() as there:
            # Only the broker itself may write to this topic.
            async with Producer(there.address, "senders", trace="SCHEDULE_TOPIC_XXXX") as producer:
                for _ in range(3):
                    await producer.send(Message(TOPIC, b"x"))
                trace = producer.trace
                assert trace is not None
                await until(lambda: trace.dispatcher.dropped == 3)

    asyncio.run(scenario())


class SlowBroker:
    """Takes traces, and answers when it may: `taken` are the bodies."""

    def __init__(self) -> None:
        self.sends, self.may_answer = asyncio.Event(), asyncio.Event()
        self.taken: list[bytes] = []

    async def take(self, request: Command, channel: Channel) -> Command:
        self.sends.set()
        await self.may_answer.wait()
        self.taken.append(bytes(request.body))
        return request.reply(0, {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"})

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        handlers = {**accept_heartbeats(), RequestCode.SEND_MESSAGE_V2: self.take}
        async with (
            scripted(handlers) as broker,
            scripted(name_server({"a": broker})) as namesrv,
            Session(namesrv) as session,
        ):
            yield session


def test_a_dispatcher_reopened_while_it_closes_sends_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatcher_module, "FLUSH_SECONDS", 0.01)
    broker = SlowBroker()

    async def scenario() -> None:
        async with broker.session() as session:
            dispatcher = trace_dispatcher(session, "g", "PRODUCE")
            await dispatcher.open()
            dispatcher.append(pub(1))
            await broker.sends.wait()
            closing = asyncio.create_task(dispatcher.close())
            await until(lambda: dispatcher._ends)
            opening = asyncio.create_task(dispatcher.open())
            await asyncio.sleep(0)
            broker.may_answer.set()
            await asyncio.gather(closing, opening)
            dispatcher.append(pub(2))
            await until(lambda: len(broker.taken) == 2)
            await dispatcher.close()
            assert dispatcher.dropped == 0
        assert sum(body.count(b"Pub") for body in broker.taken) == 2

    asyncio.run(scenario())


def test_a_cancelled_close_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "FLUSH_SECONDS", 0.01)
    broker = SlowBroker()

    async def scenario() -> None:
        async with broker.session() as session:
            dispatcher = trace_dispatcher(session, "g", "PRODUCE")
            await dispatcher.open()
            dispatcher.append(pub(1))
            await broker.sends.wait()
            dispatcher.append(pub(2))
            closing = asyncio.create_task(dispatcher.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            broker.may_answer.set()
            await dispatcher.close()
            assert dispatcher.dropped == 0
        assert sum(body.count(b"Pub") for body in broker.taken) == 2

    asyncio.run(scenario())
