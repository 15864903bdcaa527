"""Masters that controllers do not hear, or answer: what they may still take, and say."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.membership import controlled_broker
from mq.daemons.broker.membership.member import MasterControllers
from mq.daemons.broker.replication.controlled import ControllerRefused
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.membership.controller import ScriptedController
from tests.daemons.broker.membership.sets import (
    BRIEF,
    NAME,
    STORED,
    code_of_send,
    is_master,
    is_slave,
    member_of,
)
from tests.daemons.broker.replication.pair import end_of
from tests.daemons.stopped_time import stopped_monotonic
from tests.waiting import until


def test_a_master_without_controllers_takes_nothing_that_could_be_lost(tmp_path: Path) -> None:
    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, **BRIEF) as member,
        ):
            await is_master(member, 1)
            there = controller.sets[NAME]
            there.ids[2] = ("127.0.0.1:1", "c")
            there.members, there.members_epoch = {1, 2}, 2
            await until(lambda: len(member.member._members[0]) == 2)
            await controller.close()
            passed.advance(400)
            alone = await is_slave(member, "")
            assert await code_of_send(alone) not in STORED
            assert "takes no messages" not in member.ready_text()
            await controller.open()
            again = await is_master(member, 1)  # nobody else was elected meanwhile
            assert await code_of_send(again) in STORED

    with stopped_monotonic() as passed:
        asyncio.run(play())


def test_a_master_that_is_late_to_see_that_its_lease_is_over_acknowledges_nothing_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that has stood still: what came before it looks is served first."""
    monkeypatch.setattr("mq.daemons.broker.membership.member.WATCH_SECONDS", 3600.0)

    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, slaveTimeout="200", **BRIEF) as member,
        ):
            master = await is_master(member, 1)
            there = controller.sets[NAME]
            there.ids[2] = ("127.0.0.1:1", "c")
            there.members, there.members_epoch = {1, 2}, 2
            await until(lambda: len(member.member._members[0]) == 2)
            assert await code_of_send(master) == ResponseCode.SUCCESS
            shown = master.replication.confirmed
            await controller.close()
            passed.advance(400)
            assert not member.member.may_answer()
            assert await code_of_send(master) == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert master.replication.confirmed == shown < end_of(master)
            await controller.open()
            await until(lambda: master.replication.confirmed == end_of(master))
            assert await code_of_send(master) == ResponseCode.SUCCESS
            assert member.broker is master

    with stopped_monotonic() as passed:
        asyncio.run(play())


def test_who_was_master_may_not_answer_once_another_is_though_that_one_is_alone(
    tmp_path: Path,
) -> None:
    """The set of the new master, which is learned first, says nothing of the old one's."""

    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller) as first,
            member_of(tmp_path, controller, "two") as second,
        ):
            await is_slave(second, (await is_master(first, 1)).address)
            role = first.member.role
            assert role is not None
            old = MasterControllers(first.member, role)
            assert old.may_answer()
            assert controller.choose(NAME, 2, designated=True)
            await until(lambda: first.member.role is not role)
            assert len(first.member._members[0]) == 1
            assert not old.may_answer()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("members", "setting"),
    [
        ({1}, {}),
        ({1, 2}, {"allAckInSyncStateSet": "true"}),
        ({1, 2}, {"stopWithoutController": "false"}),
    ],
    ids=["alone", "all acknowledge", "as Java"],
)
def test_a_master_without_controllers_goes_on_where_nothing_can_be_lost(
    members: set[int], setting: dict[str, str], tmp_path: Path
) -> None:
    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, **BRIEF, **setting) as member,
        ):
            before = await is_master(member, 1)
            there = controller.sets[NAME]
            there.ids[2] = ("127.0.0.1:1", "c")
            if members != there.members:
                there.members, there.members_epoch = members, 2
                await until(lambda: len(member.member._members[0]) == 2)
            await controller.close()
            await until(lambda: bool(member.member.problem))
            await asyncio.sleep(0.8)  # twice the time: nothing happens
            assert member.broker is before

    asyncio.run(play())


def test_a_master_that_was_deposed_while_nobody_follows_takes_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, syncBrokerMetadataPeriod="100") as member,
        ):
            await is_master(member, 1)
            there = controller.sets[NAME]
            there.ids[2] = ("127.0.0.1:1", "c")
            there.members, there.master, there.epoch = {2}, 0, 2
            alone = await is_slave(member, "")
            assert await code_of_send(alone) not in STORED
            there.members = {1}  # the set's last member that was in sync
            await is_master(member, 3)

    asyncio.run(play())


async def agrees_unheard(
    controller: ScriptedController,
    member: controlled_broker.ControlledBroker,
    *,
    later: bool = False,
) -> None:
    """A master asks for a slave to be in sync. The controller agrees, or will ``later``, and is
    away before it has said so."""
    role, there = member.member.role, controller.sets[NAME]
    assert role is not None
    there.ids[2] = ("127.0.0.1:1", "c")
    await controller.until(lambda: 1 in there.alive)
    there.alive[2] = there.alive[1]
    controller.mute.add(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
    asking = asyncio.create_task(member.member.alter(role, frozenset({1, 2}), 1))
    await controller.until(lambda: there.members == {1, 2})
    if later:
        there.members, there.members_epoch = {1}, 1
    await controller.close()
    with pytest.raises(ConnectionError):
        await asking


def test_a_master_that_was_not_told_whether_a_slave_has_joined_may_not_be_alone(
    tmp_path: Path,
) -> None:
    """The controllers elect the slave if they have agreed, and hear of the master no more."""

    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, **BRIEF) as member,
        ):
            await is_master(member, 1)
            controller.mute.add(RequestCode.CONTROLLER_GET_REPLICA_INFO)
            await agrees_unheard(controller, member)
            await is_slave(member, "")

    asyncio.run(play())


def test_a_master_whose_controllers_have_not_confirmed_a_set_may_not_be_alone(
    tmp_path: Path,
) -> None:
    """They refuse as failed what they may have done, or do later."""

    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, **BRIEF) as member,
        ):
            await is_master(member, 1)
            role = member.member.role
            assert role is not None
            alter = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
            controller.refuses[alter] = ResponseCode.SYSTEM_ERROR
            with pytest.raises(ControllerRefused):
                await member.member.alter(role, frozenset({1, 2}), 1)
            await controller.close()
            await is_slave(member, "")

    asyncio.run(play())


def test_a_master_is_told_too_soon_that_a_set_is_as_it_was_and_may_not_be_alone(
    tmp_path: Path,
) -> None:
    """The controllers may still agree to what it asked for, and it cannot hear of it then."""

    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, **BRIEF) as member,
        ):
            await is_master(member, 1)
            await agrees_unheard(controller, member, later=True)
            controller.asked.clear()
            await controller.open()
            look = RequestCode.CONTROLLER_GET_REPLICA_INFO
            await controller.until(lambda: controller.asked.count(look) >= 2)
            await is_master(member, 1)
            await controller.close()
            await is_slave(member, "")

    asyncio.run(play())
