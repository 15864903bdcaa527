"""One broker, Java's or ours, ends and checks the transactions that the other one began."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage, decode_record
from tests.daemons.broker.running import now
from tests.daemons.broker.transactions.producers import (
    COMMIT,
    HALF,
    ROLLBACK,
    TOPIC,
    Half,
    TransactionPeer,
)
from tests.interop.peers import JavaBroker
from tests.system.daemon import BrokerProcess

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

SETTINGS = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "diskMaxUsedSpaceRatio": "95",
    "brokerName": "broker-a",
    "transactionCheckInterval": "500",
    "transactionTimeOut": "3600000",  # no checks at first
    "transactionCheckMax": "1000",
}
NEVER = {"transactionCheckInterval": "3600000"}


@contextmanager
def broker(
    kind: str, tmp: Path, settings: dict[str, str] = SETTINGS
) -> Iterator[JavaBroker | BrokerProcess]:
    process: JavaBroker | BrokerProcess
    if kind == "ours":
        process = BrokerProcess(tmp / "store", settings)
    else:
        process = JavaBroker(kind, tmp, "", settings, store=tmp / "store")
    with process:
        yield process
        process.stop()


async def seen(peer: TransactionPeer, count: int) -> list[bytes]:
    """Return the messages that consumers see once there are enough: Java fills its queues after the
    log.
    """
    deadline = time.monotonic() + 60
    while len(bodies := await peer.consumed()) < count:
        assert time.monotonic() < deadline, bodies
        await asyncio.sleep(0.05)
    return bodies


async def record(peer: TransactionPeer, physical: int) -> StoredMessage:
    """The message at a physical offset."""
    view = Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(physical)})
    deadline = time.monotonic() + 60
    while True:
        reply = await peer.session.invoke(peer.address, view)
        if reply.code == 0:
            return decode_record(reply.body)
        assert time.monotonic() < deadline, reply
        await asyncio.sleep(0.05)


async def first_turn(address: str) -> list[Half]:
    async with Session("127.0.0.1:1", timeout=10) as session:
        peer = TransactionPeer(session, address)
        await peer.beat()
        halves = [await peer.prepare(b"%d" % n, KEYS="k", TAGS="t") for n in range(5)]
        for half in halves:
            await record(peer, half.physical)
        assert (await peer.end(halves[0], COMMIT)).code == 0
        assert (await peer.end(halves[1], ROLLBACK)).code == 0
        assert await seen(peer, 1) == [b"0"]
        return halves


async def second_turn(address: str, halves: list[Half]) -> None:
    async with Session("127.0.0.1:1", timeout=10) as session:
        peer = TransactionPeer(session, address)
        assert await seen(peer, 1) == [b"0"]
        # Ends with the offsets of the other broker come before a check moves the halves: afterwards
        # Java would commit twice.
        for half, how in ((halves[2], COMMIT), (halves[3], ROLLBACK)):
            assert (await peer.end(half, how)).code == 0
        assert await seen(peer, 2) == [b"0", b"2"]
        await peer.beat()
        update = Command(RequestCode.UPDATE_BROKER_CONFIG, None, b"transactionTimeOut=500\n")
        assert (await session.invoke(address, update)).code == 0
        header, message = await asyncio.wait_for(peer.checks.get(), 60)
        asked = {message.body}
        assert (message.body, message.topic, message.tags) == (b"4", TOPIC, "t")
        moved = halves[4]
        moved.offset, moved.physical = header.tran_state_table_offset, header.commit_log_offset
        assert (await peer.end(moved, COMMIT, fromTransactionCheck="true")).code == 0
        assert await seen(peer, 3) == [b"0", b"2", b"4"]
        await asyncio.sleep(1.5)  # some more rounds of checks
        while not peer.checks.empty():
            asked.add(peer.checks.get_nowait()[1].body)
        assert asked == {b"4"}
        assert await peer.consumed() == [b"0", b"2", b"4"]


ORDERS = [
    ("4.9.7", "ours"),
    ("ours", "4.9.7"),
    pytest.param(("5.5.0", "ours"), marks=pytest.mark.long),
]


@pytest.mark.parametrize("order", ORDERS)
def test_the_other_broker_completes_transactions(tmp_path: Path, order: tuple[str, str]) -> None:
    with broker(order[0], tmp_path, {**SETTINGS, **NEVER}) as process:
        halves = asyncio.run(first_turn(process.address))
    with broker(order[1], tmp_path) as process:
        asyncio.run(second_turn(process.address, halves))


def visible(final: StoredMessage) -> dict[str, str]:
    """The properties without the half message's, which 4.9 keeps, and the id that 5.5 adds."""
    other = {"REAL_TOPIC", "REAL_QID", "__transactionId__"}
    return {name: value for name, value in final.properties.items() if name not in other}


@pytest.mark.parametrize("order", [("4.9.7", "ours")])
def test_both_brokers_store_a_transaction_alike(tmp_path: Path, order: tuple[str, ...]) -> None:
    async def turn(address: str) -> tuple[StoredMessage, StoredMessage]:
        async with Session("127.0.0.1:1", timeout=10) as session:
            peer = TransactionPeer(session, address)
            before = len(await peer.consumed())
            half = await peer.prepare(
                b"same", now(), KEYS="k", TAGS="t", own="x", WAIT="true", UNIQ_KEY="U"
            )
            stored = await record(peer, half.physical)
            assert (await peer.end(half, COMMIT)).code == 0
            await seen(peer, before + 1)
            final = (await peer.read(TOPIC, 2))[before]
            assert final.prepared_transaction_offset == half.physical
            return stored, final

    turns = []
    for kind in order:
        with broker(kind, tmp_path, {**SETTINGS, **NEVER}) as process:
            turns.append(asyncio.run(turn(process.address)))
    for stored, final in turns:
        assert (stored.topic, stored.queue_id, final.topic) == (HALF, 0, TOPIC)
        assert stored.properties == turns[0][0].properties
        assert visible(final) == visible(turns[0][1])
        for one, other in ((stored, turns[0][0]), (final, turns[0][1])):
            assert (one.flag, one.sys_flag, one.body) == (other.flag, other.sys_flag, other.body)
            assert one.reconsume_times == other.reconsume_times
