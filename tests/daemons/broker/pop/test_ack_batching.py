"""Acknowledgements that arrive together are written together, and each is answered."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.store.errors import StoreRefused
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from tests.daemons.broker.pop.consumers import PopConsumer, Popped, fill, run
from tests.daemons.broker.pop.refused_writes import refuse_one
from tests.daemons.broker.running import broker_on
from tests.daemons.broker.store.stores import hold_fsyncs
from tests.daemons.peer import Peer
from tests.waiting import until


async def acknowledged_at_once(consumer: PopConsumer, popped: list[Popped]) -> list[ResponseCode]:
    """The answers to acknowledgements that arrive in one buffer."""
    frames = [
        encode(Command(RequestCode.ACK_MESSAGE, consumer.names(one), opaque=number))
        for number, one in enumerate(popped)
    ]
    consumer.peer.writer.write(b"".join(frames))
    replies = [await consumer.peer.receive() for _ in popped]
    by_request = {reply.opaque: reply.code for reply in replies}
    assert sorted(by_request) == list(range(len(popped)))
    return [ResponseCode(by_request[number]) for number in range(len(popped))]


def revive_records(broker: Broker) -> int:
    store, points = broker.stores.messages, broker.services.pop.points
    return sum(store.max_offset(points.topic, number) for number in range(8))


def test_acknowledgements_of_one_pop_are_one_record_which_a_start_reads(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 6)
            popped = await consumer.pop()
            assert len(popped) == 6
            codes = await acknowledged_at_once(consumer, popped[:5])
            assert codes == [ResponseCode.SUCCESS] * 5
            assert revive_records(broker) == 2
        async with broker_on(tmp_path) as broker:
            (point,) = broker.services.pop.points._table.values()
            assert point.missing == [popped[5].offset]

    asyncio.run(script())


def test_acknowledgements_of_several_pops_are_a_record_each_and_each_is_answered(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 4)
        first = await consumer.pop(maxMsgNums="2")
        second = await consumer.pop(maxMsgNums="2")
        mixed = [first[0], second[0], first[1], second[1], first[0]]
        assert await acknowledged_at_once(consumer, mixed) == [ResponseCode.SUCCESS] * 5
        assert revive_records(broker) == 4
        assert len(broker.services.pop.points) == 0

    run(tmp_path, script)


def test_very_many_acknowledgements_are_not_one_record(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 2)
        popped = await consumer.pop()
        codes = await acknowledged_at_once(consumer, [popped[0]] * 600)
        assert codes == [ResponseCode.SUCCESS] * 600
        assert revive_records(broker) >= 4
        assert (await consumer.ack(popped[1])).code == ResponseCode.SUCCESS
        assert len(broker.services.pop.points) == 0

    run(tmp_path, script)


def test_acknowledgements_that_the_disk_does_not_store_are_refused_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 3)
        popped = await consumer.pop()
        (point,) = broker.services.pop.points._table.values()
        failed = refuse_one(monkeypatch, b'"aol":[0,1,2]')
        codes = await acknowledged_at_once(consumer, popped)
        assert failed.is_set()
        assert ResponseCode.SUCCESS not in codes
        assert not point.acks_in_flight
        assert not point.ending
        assert await acknowledged_at_once(consumer, popped) == [ResponseCode.SUCCESS] * 3
        assert len(broker.services.pop.points) == 0

    run(tmp_path, script)


def test_each_acknowledgement_gets_the_refusal_of_the_store(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 2)
        popped = await consumer.pop()
        (point,) = broker.services.pop.points._table.values()
        appender = broker.stores.messages.appender
        appender.refuse("a test", StoreRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk"))
        codes = await acknowledged_at_once(consumer, popped)
        assert codes == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
        assert not point.acks_in_flight
        assert not point.ending
        appender.accept("a test")
        assert await acknowledged_at_once(consumer, popped) == [ResponseCode.SUCCESS] * 2

    run(tmp_path, script)


def test_a_refused_acknowledgement_does_not_undo_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be redelivered, though the consumer that acknowledged it first was told that it is
    not.
    """

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        await fill(peer, 1)
        (popped,) = await consumer.pop()
        points, appender = broker.services.pop.points, broker.stores.messages.appender
        (point,) = points._table.values()
        async with Peer(broker.port) as impatient:
            with monkeypatch.context() as slow_disk:
                gate = hold_fsyncs(slow_disk)
                first = asyncio.create_task(consumer.ack(popped))
                await until(lambda: bool(point.acks_in_flight))
                refusal = StoreRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk")
                appender.refuse("a test", refusal)
                again = PopConsumer(impatient, broker)
                assert (await again.ack(popped)).code == ResponseCode.SERVICE_NOT_AVAILABLE
                appender.accept("a test")
                hidden = asyncio.create_task(again.hide(popped, 1000))
                await until(lambda: hidden.done() or bool(points._unread))
                gate.set()
            assert (await first).code == ResponseCode.SUCCESS
            assert (await hidden).code == ResponseCode.NO_MESSAGE

    run(tmp_path, script, flushDiskType="SYNC_FLUSH")
