"""SYNC_MASTER: the replies to senders, and when they are sent."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.protocol.bodies import SubscriptionGroupConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.daemons.broker.replication.pair import (
    ScriptedSlave,
    caught_up,
    content,
    end_of,
    master,
    send,
    slave_of,
)
from tests.daemons.broker.store.stores import fail_fsyncs, hold_fsyncs
from tests.daemons.broker.transactions.producers import COMMIT, ROLLBACK, Half, TransactionPeer
from tests.daemons.peer import Peer
from tests.waiting import until

SYNC = {"brokerRole": "SYNC_MASTER"}


async def sending(
    peer: Peer, body: bytes = b"body", properties: str = ""
) -> "asyncio.Task[Command]":
    return asyncio.create_task(send(peer, body, properties=properties))


async def end_after(broker: Broker, before: int) -> int:
    """The end of the log after something was written past an offset."""
    await until(lambda: end_of(broker) > before)
    return end_of(broker)


def test_without_a_slave_a_message_is_stored_and_the_reply_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC) as first, Peer(first.port) as peer:
            reply = await send(peer, b"a chair")
            assert reply.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert reply.fields["queueOffset"] == "0" and reply.fields["msgId"]
            assert "no slave is connected" in (reply.remark or "")
            assert b"a chair" in content(first.stores.messages.log)
            assert first.stores.messages.max_offset("Orders", 0) == 1

    asyncio.run(main())


def test_a_slave_has_the_acknowledged_messages(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC) as first, slave_of(tmp_path, first) as slave:
            await until(lambda: first.ha_master.nearest() is not None)
            async with Peer(first.port) as peer:
                for number in range(50):
                    reply = await send(peer, b"%d" % number * 100)
                    assert reply.code == ResponseCode.SUCCESS, reply
                    assert end_of(slave) == end_of(first)

    asyncio.run(main())


def test_a_sender_waits_until_one_slave_acknowledges_the_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC, slaveTimeout="20000") as first:
            async with (
                ScriptedSlave(first.ha_master.port) as slave,
                ScriptedSlave(first.ha_master.port) as other,
                Peer(first.port) as peer,
                Peer(first.port) as second,
            ):
                slave.say(0)
                other.say(0)
                await until(lambda: len(first.ha_master.slaves) == 2)
                await until(lambda: first.ha_master.nearest() == 0)
                waiting = await sending(peer)
                one = await end_after(first, 0)
                also = await sending(second)
                end = await end_after(first, one)
                await slave.frame()
                slave.say(one - 1)
                await until(lambda: first.ha_master.nearest() == one - 1)
                assert not waiting.done() and not also.done()
                assert first.replication.acks is not None
                assert first.replication.acks.waiting_replies == 2
                slave.say(end)  # one acknowledgement for both
                assert (await waiting).code == ResponseCode.SUCCESS
                assert (await also).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_slave_that_is_silent_costs_a_sender_slave_timeout(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC, slaveTimeout="300") as first:
            async with ScriptedSlave(first.ha_master.port) as slave, Peer(first.port) as peer:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                began = time.monotonic()
                reply = await send(peer, b"a chair")
                assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                assert time.monotonic() - began >= 0.3
                assert reply.fields["queueOffset"] == "0"
                assert "slaveTimeout" in (reply.remark or "")
                slave.say(end_of(first))  # too late: no sender gets another reply
                await until(lambda: first.ha_master.nearest() == end_of(first))
                first.settings.update({"slaveTimeout": "20000"})
                waiting = await sending(peer)
                slave.say(await end_after(first, end_of(first)))
                assert (await waiting).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_sender_that_does_not_wait_waits_for_no_slave(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC) as first, Peer(first.port) as peer:
            reply = await send(peer, b"a chair", properties="WAIT\x01false")
            assert reply.code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_slave_with_too_much_lag_does_not_count(tmp_path: Path) -> None:
    async def main() -> None:
        changes = {**SYNC, "haSlaveFallbehindMax": "3000"}
        async with master(tmp_path, **changes) as first:
            async with ScriptedSlave(first.ha_master.port) as slave, Peer(first.port) as peer:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                reply = await send(peer, bytes(4000))
                assert reply.code == ResponseCode.SLAVE_NOT_AVAILABLE
                assert "haSlaveFallbehindMax" in (reply.remark or "")

    asyncio.run(main())


def test_acknowledgements_of_a_disconnected_slave_do_not_count(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC) as first, Peer(first.port) as peer:
            async with ScriptedSlave(first.ha_master.port) as slave:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
            await until(lambda: not first.ha_master.slaves)
            assert (await send(peer, b"x")).code == ResponseCode.SLAVE_NOT_AVAILABLE

    asyncio.run(main())


def test_disk_and_slave_are_waited_for_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(gate: threading.Event) -> None:
        changes = {**SYNC, "flushDiskType": "SYNC_FLUSH", "slaveTimeout": "20000"}
        async with master(tmp_path, **changes) as first:
            async with ScriptedSlave(first.ha_master.port) as slave, Peer(first.port) as peer:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                gate.clear()
                waiting = await sending(peer)
                end = await end_after(first, 0)
                slave.say(end)
                await until(lambda: first.ha_master.nearest() == end)
                assert not waiting.done()  # the disk does not have it
                gate.set()
                assert (await waiting).code == ResponseCode.SUCCESS
                gate.clear()
                waiting = await sending(peer)
                gate.set()
                end = await end_after(first, end)
                await until(lambda: first.stores.messages.flushed_offset == end)
                assert not waiting.done()  # the slave does not have it
                slave.say(end)
                assert (await waiting).code == ResponseCode.SUCCESS

    gate = hold_fsyncs(monkeypatch)
    gate.set()
    asyncio.run(main(gate))


@pytest.mark.parametrize("changes", [{}, {**SYNC, "slaveReadEnable": "true"}])
def test_a_slave_that_serves_consumers_gets_flushed_records_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    """Otherwise it would show records that a power failure takes from the master, which shows them
    to no consumer.
    """

    async def main(gate: threading.Event) -> None:
        async with master(tmp_path, flushDiskType="SYNC_FLUSH", **changes) as first:
            async with ScriptedSlave(first.ha_master.port) as slave, Peer(first.port) as peer:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                gate.clear()
                waiting = await sending(peer)
                end = await end_after(first, 0)
                (connection,) = first.ha_master.slaves
                await asyncio.sleep(0.05)
                assert connection.sent == 0
                gate.set()
                offset, data = await slave.frame()
                assert offset + len(data) == end
                slave.say(end)
                assert (await waiting).code == ResponseCode.SUCCESS

    gate = hold_fsyncs(monkeypatch)
    gate.set()
    asyncio.run(main(gate))


def test_the_slaves_timeout_is_reported_if_the_disk_is_late_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(gate: threading.Event) -> None:
        timeouts = {"slaveTimeout": "200", "syncFlushTimeout": "400"}
        changes = {**SYNC, "flushDiskType": "SYNC_FLUSH", **timeouts}
        async with master(tmp_path, **changes) as first:
            async with ScriptedSlave(first.ha_master.port) as slave, Peer(first.port) as peer:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                gate.clear()
                reply = await send(peer, b"late")
                assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                first.settings.update({"slaveTimeout": "20000"})
                waiting = await sending(peer)
                slave.say(await end_after(first, end_of(first)))
                reply = await waiting
                assert reply.code == ResponseCode.FLUSH_DISK_TIMEOUT
                assert reply.fields["msgId"]
                gate.set()

    gate = hold_fsyncs(monkeypatch)
    gate.set()
    asyncio.run(main(gate))


def test_a_disk_error_is_reported_although_a_slave_has_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        changes = {**SYNC, "flushDiskType": "SYNC_FLUSH", "slaveTimeout": "20000"}
        async with master(tmp_path, **changes) as first:
            async with ScriptedSlave(first.ha_master.port) as slave, Peer(first.port) as peer:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                fail_fsyncs(monkeypatch)
                reply = await send(peer, b"lost")
                assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert "fsync" in (reply.remark or "")
                monkeypatch.undo()

    asyncio.run(main())


def test_senders_that_wait_for_a_slave_are_answered_by_a_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC, slaveTimeout="30000") as first:
            async with ScriptedSlave(first.ha_master.port) as slave, Peer(first.port) as peer:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                waiting = await sending(peer)
                await end_after(first, 0)
                stop = asyncio.create_task(first.__aexit__())
                assert (await waiting).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                await peer.close()
                await stop

    asyncio.run(main())


def test_a_slave_with_sync_flush_acknowledges_flushed_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(gate: threading.Event) -> None:
        async with master(tmp_path, **SYNC, slaveTimeout="20000") as first:
            async with slave_of(tmp_path, first, flushDiskType="SYNC_FLUSH") as slave:
                await until(lambda: first.ha_master.nearest() is not None)
                async with Peer(first.port) as peer:
                    gate.clear()
                    waiting = await sending(peer)
                    await end_after(slave, 0)
                    assert slave.stores.messages.max_offset("Orders", 0) == 0
                    assert not waiting.done()
                    gate.set()
                    assert (await waiting).code == ResponseCode.SUCCESS
                    assert slave.stores.messages.flushed_offset == end_of(first)
                    assert slave.stores.messages.max_offset("Orders", 0) == 1

    gate = hold_fsyncs(monkeypatch)
    gate.set()
    asyncio.run(main(gate))


def test_a_pair_continues_when_its_slave_returns(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **SYNC) as first, Peer(first.port) as peer:
            async with slave_of(tmp_path, first) as slave:
                await until(lambda: first.ha_master.nearest() is not None)
                assert (await send(peer, b"1")).code == ResponseCode.SUCCESS
            await until(lambda: not first.ha_master.slaves)
            assert (await send(peer, b"2")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            async with slave_of(tmp_path, first) as slave:
                await until(lambda: first.ha_master.nearest() == end_of(first))
                assert (await send(peer, b"3")).code == ResponseCode.SUCCESS
                assert slave.stores.messages.max_offset("Orders", 0) == 3
                await caught_up(slave, first)
            info = await peer.ask(RequestCode.GET_BROKER_HA_STATUS)
            assert info.code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_message_sent_back_waits_for_a_slave_too(tmp_path: Path) -> None:
    """Its group advances when it is told that the message is stored (asyncConsumerSendMsgBack)."""
    fields = {"offset": "0", "group": "g", "delayLevel": "0", "originTopic": "Orders"}

    async def main() -> None:
        async with master(tmp_path, **SYNC, slaveTimeout="20000") as first:
            async with ScriptedSlave(first.ha_master.port) as slave, Peer(first.port) as peer:
                await first.stores.groups.update(SubscriptionGroupConfig(group_name="g"))
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                waiting = await sending(peer)
                one = await end_after(first, 0)
                await slave.frame()
                slave.say(one)
                assert (await waiting).code == ResponseCode.SUCCESS
                back = asyncio.create_task(peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields))
                end = await end_after(first, one)
                await asyncio.sleep(0)
                assert first.replication.acks is not None
                assert first.replication.acks.waiting_replies == 1
                assert not back.done()
                await slave.frame()
                slave.say(end)
                assert (await back).code == ResponseCode.SUCCESS

    asyncio.run(main())


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_the_end_of_a_transaction_waits_for_a_slave_too(how: int, tmp_path: Path) -> None:
    """And gets SUCCESS without a slave (EndTransactionProcessor.sendFinalMessage)."""

    async def main() -> None:
        async with master(tmp_path, **SYNC, slaveTimeout="20000") as first:
            async with Session("127.0.0.1:1") as session:
                producer = TransactionPeer(session, first.address)
                async with ScriptedSlave(first.ha_master.port) as slave:
                    slave.say(0)
                    await until(lambda: first.ha_master.nearest() == 0)
                    preparing = asyncio.create_task(producer.prepare(b"a chair"))
                    one = await end_after(first, 0)
                    slave.say(one)
                    half = await preparing
                    ending = asyncio.create_task(producer.end(half, how))
                    end = await end_after(first, one)
                    assert first.replication.acks is not None
                    await until(lambda: len(first.delivery.transactions.ledger) == 0)
                    assert first.replication.acks.waiting_replies == 1
                    assert not ending.done()
                    slave.say(end)
                    assert (await ending).code == ResponseCode.SUCCESS
                await until(lambda: not first.ha_master.slaves)
                reply = await producer.send(b"a table")
                assert reply.code == ResponseCode.SLAVE_NOT_AVAILABLE
                reply.code = ResponseCode.SUCCESS
                assert (await producer.end(Half(reply), how)).code == ResponseCode.SUCCESS

    asyncio.run(main())
