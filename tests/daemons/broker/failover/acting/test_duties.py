"""The duties of an acting slave: timed messages, transactions, popped messages, offsets; and the
state that its master finds on its return.
"""

import asyncio
from pathlib import Path

from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from tests.daemons.broker.failover.acting.commits import commit
from tests.daemons.broker.failover.acting.sets import (
    acts,
    bodies,
    cluster,
    have,
    is_copied,
    sees,
    send,
)
from tests.daemons.broker.pop.consumers import GROUP, PopConsumer, fill
from tests.daemons.broker.pop.consumers import TOPIC as POPPED
from tests.daemons.broker.transactions.producers import COMMIT, HALF, TOPIC, TransactionPeer
from tests.daemons.peer import Peer
from tests.daemons.stopped_time import stopped_time


def test_a_timed_message_is_delivered_once_through_another_broker(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            await send(other, b"topic")
            async with brokers.slave() as slave:
                async with brokers.master() as master:
                    await send(master, b"timed", TIMER_DELIVER_MS=str(stopped.now + 4000))
                    await send(master, b"later", TIMER_DELIVER_MS=str(stopped.now + 10_000))
                    await is_copied(slave, master)
                await acts(slave)
                stopped.advance(5000)
                assert await have(other, 2) == [b"timed", b"topic"]
                async with brokers.master() as master:
                    stopped.advance(6000)
                    assert await have(master, 1) == [b"later"]
                    assert bodies(other) == [b"timed", b"topic"]
                    assert slave.delivery.timer.timer is None

    with stopped_time() as stopped:
        asyncio.run(script())


def test_an_open_transaction_is_ended_through_another_broker(tmp_path: Path) -> None:
    quick = {"transactionTimeOut": "1", "transactionCheckInterval": "100"}

    async def script() -> None:
        async with (
            cluster(tmp_path) as brokers,
            brokers.other(**quick) as other,
            Session("127.0.0.1:1") as session,
            Session("127.0.0.1:1") as before,
        ):
            await send(other, b"topic", TOPIC)
            there = TransactionPeer(session, other.address)
            await there.beat()
            async with brokers.slave() as slave:
                async with brokers.master() as master:
                    here = TransactionPeer(before, master.address)
                    ended = await here.prepare(b"ended")
                    assert (await here.end(ended, COMMIT)).code == ResponseCode.SUCCESS
                    await here.prepare(b"open", KEYS="k")
                    await is_copied(slave, master)
                await acts(slave)
                header, half = await there.checks.get()
                assert (half.body, half.topic, half.properties["KEYS"]) == (b"open", TOPIC, "k")
                assert bodies(other, HALF).count(b"ended") == 0
                reply = await session.invoke(other.address, commit_of(header, there))
                assert reply.code == ResponseCode.SUCCESS
                assert await have(other, 2, TOPIC) == [b"open", b"topic"]
                async with brokers.master() as master:
                    await sees(slave, master)
                    assert not master.delivery.transactions.open_halves()
                    assert bodies(master, TOPIC) == [b"ended"]

    asyncio.run(script())


def commit_of(check: CheckTransactionStateRequestHeader, producer: TransactionPeer) -> Command:
    fields = {
        "producerGroup": producer.group,
        "tranStateTableOffset": str(check.tran_state_table_offset),
        "commitLogOffset": str(check.commit_log_offset),
        "commitOrRollback": str(COMMIT),
        "fromTransactionCheck": "true",
        "msgId": "id",
    }
    return Command(RequestCode.END_TRANSACTION, fields)


def test_an_unacknowledged_popped_message_is_redelivered_at_another_broker(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            retries = f"%RETRY%{GROUP}_{POPPED}"
            async with brokers.slave() as slave:
                async with brokers.master() as master, Peer(master.port) as peer:
                    await fill(peer, 3)
                    consumer = PopConsumer(peer, master)
                    popped = await consumer.pop(invisibleTime="3000")
                    assert len(popped) == 3
                    await consumer.ack(popped[0])
                    await is_copied(slave, master)
                await acts(slave)
                async with Peer(slave.port) as peer:
                    consumer = PopConsumer(peer, slave)
                    assert (await consumer.ack(popped[1])).code == ResponseCode.SUCCESS
                    refused = await consumer.ask()
                    assert refused.code != ResponseCode.SUCCESS
                stopped.advance(4000)
                assert await have(other, 1, retries) == [b"2"]
                async with brokers.master() as master:
                    await sees(slave, master)
                    assert len(master.services.pop.points) == 0
                    assert bodies(other, retries) == [b"2"]

    with stopped_time() as stopped:
        asyncio.run(script())


def test_groups_continue_at_their_offsets_of_the_acting_slave(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave() as slave:
            async with brokers.master() as master:
                for number in range(4):
                    await send(master, b"%d" % number)
                await commit(master, 1)
                await is_copied(slave, master)
            await acts(slave)
            await commit(slave, 3)
            async with brokers.master() as master:
                assert master.stores.offsets.query("G", "Orders", 0) == 3
                await sees(slave, master)
                await commit(master, 2)  # it was reset
                await is_copied(slave, master)
            async with brokers.master() as master:  # the slave has not acted since
                assert master.stores.offsets.query("G", "Orders", 0) == 2

    asyncio.run(script())
