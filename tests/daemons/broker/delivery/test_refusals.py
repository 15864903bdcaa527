"""The broker's own tasks while the store refuses messages for a time: afterwards all continue."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.delivery.waiting import RETRY_SECONDS, StoreResults
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.log.batch import OnStored
from mq.protocol.codes import ResponseCode
from mq.protocol.message import StoredMessage
from tests.daemons.broker.pop.consumers import PopConsumer, bodies, fill
from tests.daemons.broker.running import broker_on, now, pull, send
from tests.daemons.broker.store.stores import fill_disk
from tests.daemons.broker.transactions.producers import HALF, TransactionPeer
from tests.daemons.peer import Peer
from tests.waiting import until


@asynccontextmanager
async def refusing(broker: Broker) -> AsyncIterator[None]:
    """Until the end of the block no message is stored, as with a full disk."""
    refusal = StoreRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "store refused: by the test")
    broker.stores.messages.appender.refuse("test", refusal)
    try:
        yield
    finally:
        broker.stores.messages.appender.accept("test")


@pytest.mark.parametrize("properties", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}])
def test_messages_due_while_the_store_refused_are_delivered_afterwards(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            for body in (b"one", b"two"):
                await send(session, broker.address, body, properties)
            async with refusing(broker):
                await asyncio.sleep(1.3)  # both are due, and were refused
            found = await pull(session, broker.address, "Later", 2)
            assert [message.body for message in found] == [b"one", b"two"]
            assert broker.stores.messages.max_offset("Later", 1) == 2

    asyncio.run(script())


def test_popped_messages_are_delivered_again_after_the_store_refused(tmp_path: Path) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 3)
            assert len(await consumer.pop(invisibleTime="200")) == 3
            async with refusing(broker):
                await asyncio.sleep(0.5)
            assert bodies(await consumer.pop(pollTime="10000", bornTime=str(now()))) == [
                b"0",
                b"1",
                b"2",
            ]

    asyncio.run(script())


def test_popped_messages_are_not_put_repeatedly_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Peer(broker.port) as peer:
            consumer = PopConsumer(peer, broker)
            await fill(peer, 3)
            assert len(await consumer.pop(invisibleTime="200")) == 3
            puts = 0
            put = broker.stores.messages.appender.call_when_stored

            def counted(callback: OnStored) -> None:
                nonlocal puts
                puts += 1
                put(callback)

            monkeypatch.setattr(broker.stores.messages.appender, "call_when_stored", counted)
            with monkeypatch.context() as full:
                fill_disk(full)
                # Each time three messages and the end of their check point.
                await until(lambda: puts > 0)
                began = asyncio.get_running_loop().time()
                await until(lambda: puts > 4 * 4)
                assert asyncio.get_running_loop().time() - began >= 3 * RETRY_SECONDS
            assert bodies(await consumer.pop(pollTime="10000", bornTime=str(now()))) == [
                b"0",
                b"1",
                b"2",
            ]

    asyncio.run(script())


def test_transactions_are_checked_after_the_store_refused(tmp_path: Path) -> None:
    async def script() -> None:
        settings = {"transactionCheckInterval": "100", "transactionTimeOut": "0"}
        broker = broker_on(tmp_path, **settings)
        async with broker, Session("127.0.0.1:1") as session:
            producer = TransactionPeer(session, broker.address)
            await producer.beat()
            await producer.prepare(b"a", now() - 1000)
            async with refusing(broker):
                await asyncio.sleep(0.3)
            async with asyncio.timeout(30):
                _, message = await producer.checks.get()
            assert message.body == b"a"
            assert broker.stores.messages.max_offset(HALF, 0) >= 2

    asyncio.run(script())


def test_results_that_arrive_early_do_not_end_a_later_wait() -> None:
    async def script() -> None:
        results = StoreResults()
        callbacks: list[OnStored] = []
        results.put(lambda stored: stored(None))  # at once, as when a file was full
        results.put(callbacks.append)
        with pytest.raises(StoreRefused):
            results.put(refuse)
        waiting = asyncio.ensure_future(results.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        callbacks[0](None)
        await asyncio.wait_for(waiting, 30)
        assert results.all_well

    def refuse(_: object) -> None:
        raise StoreRefused(ResponseCode.SYSTEM_BUSY, "no")

    asyncio.run(script())


def test_an_internal_message_with_numbers_out_of_range_is_refused(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker:
            for message in (
                StoredMessage("T", b"", queue_id=1 << 31),
                StoredMessage("T", b"", queue_id=-1),
                StoredMessage("T", b"", flag=1 << 31),
                StoredMessage("T", b"", born_timestamp=1 << 63),
                StoredMessage("T", b"", reconsume_times=-(1 << 31) - 1),
            ):
                with pytest.raises(StoreRefused) as refused:
                    broker.delivery.writer.put(message)
                assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
            assert broker.stores.messages.queues.get("T", 1 << 31) is None

    asyncio.run(script())
