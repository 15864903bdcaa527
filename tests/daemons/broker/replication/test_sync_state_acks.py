"""What senders and readers wait for: the sync state set, the disk, the configured number of
slaves."""

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from tests.daemons.broker.pulls import pull
from tests.daemons.broker.pulls import request as pull_request
from tests.daemons.broker.replication.pair import ScriptedSlave, content, end_of, master, send
from tests.daemons.broker.replication.sets import (
    ScriptedControllers,
    asked_set,
    empty_member,
    follow,
    followed_set,
    shown,
    state_of,
)
from tests.daemons.broker.store.stores import hold_fsyncs
from tests.daemons.peer import Peer
from tests.waiting import until


def test_a_suspended_pull_is_answered_when_its_message_is_confirmed(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with (
            followed_set(tmp_path, controllers) as (first, peer, slave),
            Peer(first.port) as consumer,
        ):
            await until(lambda: 2 in state_of(first).slaves)
            sending = asyncio.create_task(send(peer, b"1"))
            *_, data = await slave.frame()
            slave.say(len(data))
            await sending
            pulling = asyncio.create_task(
                pull(consumer, pull_request(1, hold=20_000, topic="Orders"))
            )
            queue = first.stores.messages.queue("Orders", 0)
            await until(lambda: bool(queue.waiting))
            sending = asyncio.create_task(send(peer, b"a table"))
            _, _, _, more = await slave.frame()
            while not more:  # the confirm offset arrives with it
                _, _, _, more = await slave.frame()
            await asyncio.sleep(0.02)
            assert not pulling.done()
            slave.say(len(data) + len(more))
            reply = await pulling
            assert reply.code == ResponseCode.SUCCESS and b"a table" in bytes(reply.body)
            await sending

    asyncio.run(main())


def test_the_disk_and_the_set_are_both_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(gate: threading.Event) -> None:
        controllers = ScriptedControllers((1, 2))
        sync = {"flushDiskType": "SYNC_FLUSH"}
        async with followed_set(tmp_path, controllers, **sync) as (first, peer, slave):
            await until(lambda: 2 in state_of(first).slaves)
            gate.clear()
            sending = asyncio.create_task(send(peer, b"a chair"))
            *_, data = await slave.frame()
            slave.say(len(data))  # the set has it first
            await until(lambda: state_of(first).slaves[2].acked == len(data))
            # Nor may slaves show it: a power failure here would lose records that consumers have
            # read there.
            assert state_of(first).confirmed == 0
            assert shown(first) == 0 and not sending.done()
            gate.set()
            assert (await sending).code == ResponseCode.SUCCESS
            assert shown(first) == 1 and state_of(first).confirmed == len(data)
            sending = asyncio.create_task(send(peer, b"a table"))
            before = end_of(first)
            await until(lambda: end_of(first) > before)
            await until(lambda: first.stores.messages.flushed_offset == end_of(first))
            assert shown(first) == 1 and not sending.done()  # the disk has it
            slave.say(end_of(first))
            assert (await sending).code == ResponseCode.SUCCESS
            assert shown(first) == 2

    gate = hold_fsyncs(monkeypatch)
    gate.set()
    asyncio.run(main(gate))


def test_with_too_few_members_in_the_set_sends_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers()
        async with asked_set(tmp_path, controllers, minInSyncReplicas="2") as (first, peer):
            reply = await send(peer, b"a chair")
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert reply.remark == "in-sync replicas not enough"
            assert end_of(first) == 0
            async with empty_member(first) as slave:
                await until(lambda: state_of(first).members == {1, 2})
                following = asyncio.create_task(follow(slave))
                assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
                following.cancel()
            await until(lambda: state_of(first).members == {1})
            assert (await send(peer, b"a table")).code == ResponseCode.SYSTEM_ERROR
            assert b"a table" not in content(first.stores.messages.log)

    asyncio.run(main())


def test_without_all_ack_a_message_is_readable_at_once_and_answered_after_enough_copies(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        changes = {"allAckInSyncStateSet": "false", "inSyncReplicas": "2"}
        async with followed_set(tmp_path, ScriptedControllers(), **changes) as (first, peer, slave):
            sending = asyncio.create_task(send(peer, b"a chair"))
            _, _, confirmed, data = await slave.frame()
            assert confirmed == len(data)
            assert shown(first) == 1 and not sending.done()
            slave.say(len(data))
            assert (await sending).code == ResponseCode.SUCCESS

    asyncio.run(main())


async def _follow(slave: ScriptedSlave) -> None:
    while True:
        offset, data = await slave.frame()
        slave.say(offset + len(data))


def test_a_master_without_controllers_waits_for_the_configured_number_of_slaves(
    tmp_path: Path,
) -> None:
    async def answer(count: int) -> Command:
        seconds = "20000" if count == 2 else "100"
        changes = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "3", "slaveTimeout": seconds}
        async with (
            master(tmp_path / str(count), **changes) as first,
            Peer(first.port) as peer,
            AsyncExitStack() as slaves,
        ):
            for _ in range(2):
                slave = await slaves.enter_async_context(ScriptedSlave(first.ha_master.port))
                slave.say(0)
                if count:
                    count -= 1
                    follower = asyncio.create_task(_follow(slave))
                    slaves.callback(follower.cancel)
            await until(lambda: first.ha_master.nearest() == 0)
            return await send(peer, b"a chair")

    assert asyncio.run(answer(1)).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert asyncio.run(answer(2)).code == ResponseCode.SUCCESS


def test_senders_wait_for_the_existing_slaves_but_not_fewer_than_the_minimum(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        changes = {
            "brokerRole": "SYNC_MASTER",
            "inSyncReplicas": "3",
            "enableAutoInSyncReplicas": "true",
            "slaveTimeout": "20000",
        }
        async with master(tmp_path, **changes) as first, Peer(first.port) as peer:
            assert (await send(peer, b"1")).code == ResponseCode.SUCCESS  # no slave is there
            port = first.ha_master.port
            async with ScriptedSlave(port) as one, ScriptedSlave(port) as other:
                one.say(0)
                await until(lambda: first.ha_master.acks_needed() == 1)
                other.say(0)
                await until(lambda: first.ha_master.acks_needed() == 2)
                sending = asyncio.create_task(send(peer, b"2"))
                before = end_of(first)
                await until(lambda: end_of(first) > before)
                one.say(end_of(first))
                await until(lambda: max(s.acked for s in first.ha_master.slaves) == end_of(first))
                assert not sending.done()
                other.writer.close()  # then one is enough
                assert (await sending).code == ResponseCode.SUCCESS
        least = {**changes, "minInSyncReplicas": "2"}
        async with master(tmp_path, **least) as first, Peer(first.port) as peer:
            end = end_of(first)
            reply = await send(peer, b"3")
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert reply.remark == "in-sync replicas not enough"
            async with ScriptedSlave(first.ha_master.port) as one:
                one.say(end)
                await until(lambda: first.ha_master.nearest() == end)
                following = asyncio.create_task(_follow(one))
                assert (await send(peer, b"4")).code == ResponseCode.SUCCESS
                following.cancel()

    asyncio.run(main())
