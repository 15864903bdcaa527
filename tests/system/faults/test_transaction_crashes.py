"""Transactions of a broker that is killed: none is lost, none visible too early or twice."""

import asyncio
import itertools
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from mq.protocol.message import decode_record
from tests.daemons.broker.transactions.batches import end, message, places_of, send
from tests.daemons.broker.transactions.producers import (
    COMMIT,
    GROUP,
    OPERATION,
    ROLLBACK,
    Half,
    TransactionPeer,
)
from tests.system.daemon import BrokerProcess

ROUNDS = int(os.environ.get("MQ_CRASH_ROUNDS", 30 if os.environ.get("MQ_TEST_LONG") else 2))
PATIENCE = 60.0
WORKERS = 16
SETTINGS = {
    "mappedFileSizeCommitLog": str(1024 * 1024),  # so that pairs of records reach its end
    "transactionCheckInterval": "200",
    "transactionTimeOut": "300",
    "transactionCheckMax": "100000",
    "flushConsumerOffsetInterval": "500",
    "diskMaxUsedSpaceRatio": "95",
}


def outcome(identity: str) -> int:
    """The decision for a transaction, whenever its producer is asked."""
    return ROLLBACK if int(identity) % 3 == 0 else COMMIT


class Traffic:
    """Producers that continue whatever happens to their broker."""

    def __init__(self, session: Session, address: str) -> None:
        self.peer = TransactionPeer(session, address)
        self.identities = itertools.count()
        self.sent: set[str] = set()
        self.stored: set[str] = set()  # those with acknowledged halves
        self.stopping = False
        session.on_request(RequestCode.CHECK_TRANSACTION_STATE, self._answer)

    async def _answer(self, request: Command, address: str) -> None:
        check = CheckTransactionStateRequestHeader.decode(request.fields)
        identity = decode_record(request.body).body.decode()
        end = EndTransactionRequestHeader(
            producer_group=GROUP,
            tran_state_table_offset=check.tran_state_table_offset,
            commit_log_offset=check.commit_log_offset,
            commit_or_rollback=outcome(identity),
            from_transaction_check=True,
            msg_id=identity,
        )
        command = Command(RequestCode.END_TRANSACTION, end.encode())
        await self.peer.session.invoke_oneway(address, command)

    async def work(self) -> None:
        while not self.stopping:
            identity = str(next(self.identities))
            self.sent.add(identity)
            try:
                reply = await self.peer.send(identity.encode(), 0, 4, own="." * 600)
                if reply.code != ResponseCode.SUCCESS:
                    continue
                self.stored.add(identity)
                if int(identity) % 4:  # the others wait for a check
                    await self.peer.end(Half(reply), outcome(identity))
            except MQError:
                await asyncio.sleep(0.05)

    async def work_in_batches(self) -> None:
        """As above with several halves in a request, and several ends."""
        while not self.stopping:
            batch = [str(next(self.identities)) for _ in range(8)]
            self.sent.update(batch)
            try:
                messages = [message(each.encode(), own="." * 600) for each in batch]
                reply = await send(self.peer, *messages)
                if reply.code != ResponseCode.SUCCESS:
                    continue
                self.stored.update(batch)
                places = dict(zip(batch, places_of(reply), strict=True))
                for how in (COMMIT, ROLLBACK):
                    ended = [each for each in batch if outcome(each) == how and int(each) % 4]
                    if ended:
                        await end(self.peer, [places[each] for each in ended], how)
            except MQError:
                await asyncio.sleep(0.05)

    async def seen(self) -> Counter[str]:
        """The messages that consumers see, with their counts."""
        return Counter(body.decode() for body in await self.peer.consumed())

    async def know(self, address: str) -> None:
        """The broker is back."""
        self.peer.address = address
        await self.peer.beat()


@pytest.mark.longer
@pytest.mark.timeout(180 + 10 * ROUNDS)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_each_transaction_ends_once_and_as_its_producer_decides(tmp_path: Path, flush: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path / "store", {**SETTINGS, "flushDiskType": flush})

    async def scenario() -> None:
        async with Session("127.0.0.1:1", timeout=10) as session:
            traffic = Traffic(session, broker.address)
            await traffic.know(broker.address)
            workers = [asyncio.create_task(traffic.work()) for _ in range(WORKERS // 2)]
            workers += [asyncio.create_task(traffic.work_in_batches()) for _ in range(WORKERS // 2)]
            for _ in range(ROUNDS):
                await asyncio.sleep(chance.uniform(0.3, 1.2))  # the moment of the kill is varied
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
                await traffic.know(broker.address)
            traffic.stopping = True
            await asyncio.gather(*workers)
            await settle(traffic)

    async def settle(traffic: Traffic) -> None:
        """Wait until everything expected is visible, and two more rounds of checks have passed."""
        wanted = {i for i in traffic.stored if outcome(i) == COMMIT}
        async with asyncio.timeout(PATIENCE):
            while wanted - set(await traffic.seen()):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        await asyncio.sleep(1)
        seen = await traffic.seen()
        print(f"{len(traffic.stored)} of {len(traffic.sent)} stored, {len(seen)} seen")
        assert len(traffic.stored) > 20 * ROUNDS
        assert [identity for identity, count in seen.items() if count > 1] == []
        assert [identity for identity in seen if outcome(identity) != COMMIT] == []
        assert set(seen) <= traffic.sent

    with broker:
        asyncio.run(scenario())
        assert broker.stop() == 0


def test_a_commit_that_was_cut_in_two_is_finished_by_the_next_start(tmp_path: Path) -> None:
    """The write of message and operation ends between the two: the worst result of a kill."""
    store = tmp_path / "store"
    broker = BrokerProcess(store, SETTINGS)
    halves: list[Half] = []

    async def commit() -> None:
        async with Session("127.0.0.1:1", timeout=10) as session:
            peer = TransactionPeer(session, broker.address)
            halves.append(await peer.prepare(b"1"))
            assert (await peer.end(halves[0], COMMIT)).code == ResponseCode.SUCCESS
            assert await peer.consumed() == [b"1"]

    async def check() -> None:
        async with Session("127.0.0.1:1", timeout=10) as session:
            traffic = Traffic(session, broker.address)
            await traffic.know(broker.address)
            reply = await traffic.peer.end(halves[0], COMMIT)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert "not open" in (reply.remark or "")
            await asyncio.sleep(1)  # some rounds of checks
            assert await traffic.peer.consumed() == [b"1"]

    with broker:
        asyncio.run(commit())
        broker.kill()
        start, size = last_record(store)
        with open(store / "commitlog" / f"{0:020}", "r+b") as log:
            log.seek(start)
            log.write(bytes(size))
        broker.start()
        asyncio.run(check())
        assert "cut in two" in broker.log
        broker.kill()
    assert last_record(store)[0] == start


def last_record(store: Path) -> tuple[int, int]:
    """The start and size of the last record of the first log file: that of an operation."""
    data = (store / "commitlog" / f"{0:020}").read_bytes()
    position, last = 0, None
    while data[position : position + 4].strip(b"\0"):
        last = decode_record(data, position)
        position += last.store_size
    assert last is not None and last.topic == OPERATION
    return last.physical_offset, last.store_size
