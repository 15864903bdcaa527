"""A transaction that cannot end now stays open."""

import asyncio
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.log.mapped_file import MappedFile
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.running import broker_on, now
from tests.daemons.broker.transactions.producers import (
    COMMIT,
    HALF,
    ROLLBACK,
    TransactionPeer,
    kept,
    operations,
)

FULL = StoreRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "store refused: the disk is full")
OLD = 3_600_000


def fail_next_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next batch fail with a full disk."""

    def write(self: MappedFile, data: bytes, position: int) -> None:
        monkeypatch.undo()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MappedFile, "write", write)


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_an_end_that_the_store_refuses_can_be_sent_again(tmp_path: Path, how: int) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            peer = TransactionPeer(session, broker.address)
            half = await peer.prepare(b"x")
            broker.stores.messages.appender.refuse("test", FULL)
            reply = await peer.end(half, how)
            assert (reply.code, reply.remark) == (FULL.code, FULL.remark)
            assert broker.delivery.transactions.ledger.offsets() == [0]
            broker.stores.messages.appender.accept("test")
            assert (await peer.end(half, how)).code == 0
            assert await peer.consumed() == ([b"x"] if how == COMMIT else [])

    asyncio.run(script())


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_an_end_that_cannot_be_written_can_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: int
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            peer = TransactionPeer(session, broker.address)
            half = await peer.prepare(b"x")
            fail_next_write(monkeypatch)
            reply = await peer.end(half, how)
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert await peer.consumed() == []
            assert (await peer.end(half, how)).code == 0
            assert await peer.consumed() == ([b"x"] if how == COMMIT else [])
            assert len(operations(broker)) == 1

    asyncio.run(script())


def test_a_half_that_cannot_be_put_again_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            peer = TransactionPeer(session, broker.address)
            await peer.beat()
            half = await peer.prepare(b"x", now() - OLD)
            await asyncio.sleep(0.002)
            broker.stores.messages.appender.refuse("test", FULL)
            await broker.delivery.checks.round()
            broker.stores.messages.appender.accept("test")
            fail_next_write(monkeypatch)
            await broker.delivery.checks.round()
            assert broker.delivery.transactions.ledger.offsets() == [0]
            assert peer.checks.empty()
            assert len(kept(broker, HALF)) == 1
            await broker.delivery.checks.round()
            await asyncio.wait_for(peer.checks.get(), 30)
            assert (await peer.end(half, COMMIT)).code == 0
            assert await peer.consumed() == [b"x"]

    asyncio.run(script())


def test_a_half_that_is_not_stored_is_not_an_open_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            peer = TransactionPeer(session, broker.address)
            await peer.prepare(b"x")
            fail_next_write(monkeypatch)
            assert (await peer.send(b"y")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert broker.delivery.transactions.ledger.offsets() == [0]

    asyncio.run(script())


def test_a_half_that_was_sent_twice_is_one_transaction(tmp_path: Path) -> None:
    """As a producer does whose first attempt was not answered in time."""

    async def script() -> None:
        async with broker_on(tmp_path) as broker, Session("127.0.0.1:1") as session:
            peer = TransactionPeer(session, broker.address)
            first, second = [await peer.prepare(b"x") for _ in range(2)]
            assert broker.delivery.transactions.ledger.offsets() == [1]
            assert (await peer.end(first, COMMIT)).code == 0
            assert (await peer.end(second, COMMIT)).code == ResponseCode.SYSTEM_ERROR
            assert await peer.consumed() == [b"x"]
            # The same message in a new transaction is another one.
            third = await peer.prepare(b"x")
            assert (await peer.end(third, COMMIT)).code == 0
            assert await peer.consumed() == [b"x", b"x"]

    asyncio.run(script())
