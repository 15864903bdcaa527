"""Traces of real sends and listeners, read back from the trace topic."""

import asyncio
from pathlib import Path

import pytest

from mq.client.consumer.push.listener import RetryLater
from mq.client.producer.producer import Producer
from mq.client.producer.transactions import TransactionCheck, TransactionProducer, TransactionState
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.trace.entries import (
    EndTransaction,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
    TraceEntry,
)
from mq.client.transport.session import Session
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import TRACE_TOPIC
from tests.client.brokers import served
from tests.client.clusters import TOPIC, cluster
from tests.client.trace.traces import traced
from tests.waiting import until


def test_sends_are_traced_with_what_the_broker_answered() -> None:
    async def scenario() -> None:
        async with cluster() as there:
            async with Producer(there.address, "senders", trace=True) as producer:
                first = await producer.send(Message(TOPIC, b"hello", "red", ["k1", "k2"]))
                await producer.prepare(TOPIC)
                later = await producer.submit(Message(TOPIC, b"later", delay_level=1))
                batch = await producer.send_batch([Message(TOPIC, b"1"), Message(TOPIC, b"2")])
            found = await traced(there.session, lambda records: len(records) == 3)
            address = there.pair.broker.address
        by_id = {record.message_id: record for record in found}
        pub = by_id[first.message_id]
        assert isinstance(pub, Pub)
        assert (pub.group, pub.topic, pub.tags, pub.keys) == ("senders", TOPIC, "red", "k1 k2")
        assert (pub.store_host, pub.body_length, pub.success) == (address, 5, True)
        assert pub.offset_message_id == first.offset_message_id
        delayed = by_id[later.message_id]
        assert isinstance(delayed, Pub)
        assert delayed.message_type is MessageType.DELAY
        assert batch.message_id in by_id

    asyncio.run(scenario())


def test_a_trace_is_found_by_the_id_and_the_keys_of_its_message() -> None:
    async def scenario() -> None:
        async with cluster() as there:
            async with Producer(there.address, "senders", trace=True) as producer:
                sent = await producer.send(Message(TOPIC, b"hello", keys=["k1"]))
            await traced(there.session, lambda records: len(records) == 1)
            puller = PullConsumer(there.session)
            keys = [
                message.keys
                for queue in await puller.queues(TRACE_TOPIC)
                async for message in puller.read(queue)
            ]
        assert keys == [(sent.message_id, "k1")]

    asyncio.run(scenario())


@pytest.mark.parametrize("ordered", [False, True])
def test_what_a_listener_gets_is_traced_before_and_after(ordered: bool) -> None:
    tries: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        tries.append(message.body)
        if message.body == b"bad" and tries.count(b"bad") == 1:
            raise ValueError if ordered else RetryLater(1)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"bad", b"good")
            async with there.consumer(
                listener=listen, ordered=ordered, trace=True, suspension=0.01
            ):
                await until(lambda: len(tries) == 3)
            found = await traced(there.session, lambda records: len(records) == 6)
        before = [record for record in found if isinstance(record, SubBefore)]
        after = {r.request_id: r for r in found if isinstance(r, SubAfter)}
        assert len(before) == len(after) == 3
        assert {record.group for record in before} == {"group"}
        outcomes = sorted(
            (after[r.request_id].success, after[r.request_id].outcome) for r in before
        )
        assert outcomes == [(False, 2 if ordered else 4), (True, 0), (True, 0)]
        for record in before:
            assert after[record.request_id].message_id == record.message_id
        if not ordered:
            assert sorted(record.retry_times for record in before) == [0, 0, 1]

    asyncio.run(scenario())


def test_the_ends_of_transactions_are_traced_those_by_checks_too(tmp_path: Path) -> None:
    async def check(question: TransactionCheck) -> TransactionState:
        return TransactionState.COMMIT

    async def execute(message: Message) -> TransactionState:
        return TransactionState.UNKNOWN if message.body == b"later" else TransactionState.ROLLBACK

    def ends(records: list[TraceEntry]) -> list[tuple[str, str, bool]]:
        return sorted(
            (record.state, record.message_id, record.from_check)
            for record in records
            if isinstance(record, EndTransaction)
        )

    async def scenario() -> None:
        often = {"transactionCheckInterval": "50", "transactionTimeOut": "50"}
        async with (
            served(tmp_path, **often) as at,
            TransactionProducer(at.namesrv, "payers", check, trace=True) as producer,
            Session(at.namesrv) as session,
        ):
            send = producer.send_in_transaction
            later = await send(Message(TOPIC, b"later", "red", ["k"]), execute)
            never = await send(Message(TOPIC, b"never"), execute)
            found = await traced(session, lambda records: len(ends(records)) >= 3)
        assert set(ends(found)) >= {
            ("COMMIT_MESSAGE", later.sent.message_id, True),
            ("ROLLBACK_MESSAGE", never.sent.message_id, False),
            ("UNKNOW", later.sent.message_id, False),
        }
        halves = [record for record in found if isinstance(record, Pub)]
        assert {record.message_type for record in halves} == {MessageType.HALF}
        ended = [record for record in found if isinstance(record, EndTransaction)]
        assert {(record.group, record.topic) for record in ended} == {("payers", TOPIC)}

    asyncio.run(scenario())
