"""Masters without contact to controllers: which messages they may still accept and acknowledge."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker import controlled_broker
from mq.daemons.broker.failover.membership.member import MasterControllers
from mq.daemons.broker.replication.controlled import ControllerRefused
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.failover.membership.controller import ScriptedController
from tests.daemons.broker.failover.membership.sets import (
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


def test_a_master_without_controllers_accepts_no_message_that_could_be_lost(tmp_path: Path) -> None:
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
            again = await is_master(member, 1)  # no other master was elected meanwhile
            assert await code_of_send(again) in STORED

    with stopped_monotonic() as passed:
        asyncio.run(play())


def test_a_master_that_notices_late_that_its_lease_is_over_acknowledges_nothing_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a suspension: requests received before the check are served first."""
    monkeypatch.setattr("mq.daemons.broker.failover.membership.member.WATCH_SECONDS", 3600.0)

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


def test_a_former_master_may_not_answer_after_an_election_although_the_new_one_is_alone(
    tmp_path: Path,
) -> None:
    """The set of the new master, which is learned first, says nothing about the old one's."""

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
def test_a_master_without_controllers_continues_if_nothing_can_be_lost(
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


def test_a_deposed_master_without_a_successor_accepts_no_message(tmp_path: Path) -> None:
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
    """A master requests that a slave join the sync state set. The controller agrees, or will
    ``later``, and disappears before it has answered.
    """
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


def test_a_master_that_does_not_know_whether_a_slave_joined_does_not_count_as_alone(
    tmp_path: Path,
) -> None:
    """The controllers elect the slave if they have agreed, and do not hear from the master any
    more.
    """

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


def test_a_master_with_an_unconfirmed_set_does_not_count_as_alone(
    tmp_path: Path,
) -> None:
    """They refuse a request as failed that they may have carried out, or will later."""

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


def test_an_early_report_of_an_unchanged_set_does_not_count(
    tmp_path: Path,
) -> None:
    """The controllers may still agree to its request, and it cannot learn of that then."""

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
