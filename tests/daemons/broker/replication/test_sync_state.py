"""The sync state set: which slaves join, and which leave."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.daemons.broker.replication import sync_state
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.replication.pair import end_of, send
from tests.daemons.broker.replication.sets import (
    ScriptedControllers,
    ScriptedMember,
    asked_set,
    empty_member,
    followed_set,
    set_master,
    shown,
    state_of,
)
from tests.daemons.peer import Peer
from tests.waiting import until


def test_a_slave_joins_when_it_has_everything(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers(epoch=5)
        async with asked_set(tmp_path, controllers) as (first, peer):
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            async with empty_member(first) as slave:
                *_, data = await slave.frame()
                assert controllers.asked == []
                slave.say(len(data))
                await until(lambda: state_of(first).members == {1, 2})
                assert controllers.asked == [(frozenset((1, 2)), 5)]
                assert state_of(first).members_epoch == 6

    asyncio.run(main())


def test_acknowledgements_of_a_requested_slave_count_at_once(tmp_path: Path) -> None:
    """The controllers may have agreed before their answer arrives (issue 5663)."""

    async def main() -> None:
        controllers = ScriptedControllers()
        async with (
            asked_set(tmp_path, controllers) as (first, peer),
            ScriptedMember(first.ha_master.port) as slave,
        ):
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            controllers.gate.clear()
            await slave.handshake()
            slave.say(0)
            *_, data = await slave.frame()
            slave.say(len(data))
            await until(lambda: len(controllers.asked) == 1)
            sending = asyncio.create_task(send(peer, b"a table"))
            _, _, _, more = await slave.frame()
            assert not sending.done() and shown(first) == 1
            slave.say(len(data) + len(more))
            assert (await sending).code == ResponseCode.SUCCESS
            assert state_of(first).members == {1}
            controllers.gate.set()
            await until(lambda: state_of(first).members == {1, 2})

    asyncio.run(main())


def test_a_slave_with_a_small_lag_joins_under_load(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers()
        async with (
            asked_set(tmp_path, controllers) as (first, peer),
            ScriptedMember(first.ha_master.port) as slave,
        ):
            assert (await send(peer, b"1")).code == ResponseCode.SUCCESS
            one = end_of(first)
            await slave.handshake()
            slave.say(0)
            offset, _, _, data = await slave.frame()
            slave.writer.transport.pause_reading()  # type: ignore[attr-defined]
            slave.say(one)
            await until(lambda: state_of(first).waited_for == {1, 2})
            # each is written before the acknowledgement of the previous one
            for number in range(5):
                sending = asyncio.create_task(send(peer, b"%d" % number))
                before = end_of(first)
                await until(lambda: end_of(first) > before)  # noqa: B023
                slave.say(end_of(first))
                assert (await sending).code == ResponseCode.SUCCESS
            await until(lambda: state_of(first).members == {1, 2})
            assert offset == 0 and data

    asyncio.run(main())


def test_a_member_that_comes_back_with_less_than_is_confirmed_leaves(tmp_path: Path) -> None:
    """Its machine has lost its power, and its last connection is not known to have ended."""

    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with (
            followed_set(tmp_path, controllers) as (first, peer, slave),
            ScriptedMember(first.ha_master.port) as again,
        ):
            sending = asyncio.create_task(send(peer, b"a chair"))
            _, _, _, data = await slave.frame()
            slave.say(len(data))
            assert (await sending).code == ResponseCode.SUCCESS
            await again.handshake()
            again.say(0)
            await until(lambda: len(controllers.asked) == 1)
            assert controllers.asked[0][0] == {1}
            _, _, _, data = await again.frame()
            again.say(len(data))
            await until(lambda: state_of(first).members == {1, 2})

    asyncio.run(main())


def test_a_slave_that_keeps_its_lag_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        changes = {"haMaxTimeSlaveNotCatchup": "200", "checkSyncStateSetPeriod": "50"}
        async with followed_set(tmp_path, controllers, **changes) as (first, peer, slave):
            await until(lambda: 2 in state_of(first).slaves)
            await asyncio.sleep(0.4)  # it has everything, and stays
            assert controllers.asked == []
            assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
            assert state_of(first).members == {1}
            await slave.frame()
            slave.say(end_of(first))
            await until(lambda: state_of(first).members == {1, 2})

    asyncio.run(main())


def test_a_member_that_does_not_connect_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_state, "FIRST_LOOK", 0.2)

    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with set_master(tmp_path, controllers, slaveTimeout="20000") as first:
            async with Peer(first.port) as peer:
                assert (await send(peer, b"a chair")).code == ResponseCode.SUCCESS
                assert state_of(first).members == {1}

    asyncio.run(main())


def test_a_master_that_is_stopped_leaves_the_set_as_it_is(tmp_path: Path) -> None:
    """Otherwise no member could be elected."""

    async def main() -> None:
        controllers = ScriptedControllers((1, 2))
        async with AsyncExitStack() as parts:
            async with set_master(tmp_path, controllers) as first:
                slave = await parts.enter_async_context(ScriptedMember(first.ha_master.port))
                await slave.handshake()
                slave.say(0)
                await until(lambda: 2 in state_of(first).slaves)
            assert await slave.is_closed()
            assert controllers.asked == []

    asyncio.run(main())
