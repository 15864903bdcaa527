"""Brokers whose role is assigned by controllers: how they join, which role they take, and how they
run without controllers.
"""

import asyncio
import logging
import socket
import time
from pathlib import Path

import pytest

from mq.daemons.broker import controlled_broker
from mq.daemons.service import CannotStart
from mq.protocol.bodies import HARuntimeInfo
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.headers.broker import ExchangeHAInfoResponseHeader
from tests import answered
from tests.daemons.broker.failover.membership.controller import ScriptedController
from tests.daemons.broker.failover.membership.sets import (
    BRIEF,
    NAME,
    STORED,
    ask,
    code_of_send,
    is_master,
    is_slave,
    member_of,
    name_server,
    nobody_listens,
)
from tests.daemons.broker.replication.pair import caught_up, content, end_of
from tests.daemons.peer import PATIENCE, Peer
from tests.daemons.stopped_time import stopped_monotonic
from tests.waiting import until


def test_the_first_is_master_the_second_its_slave_and_routes_show_it(tmp_path: Path) -> None:
    async def play() -> None:
        async with (
            ScriptedController() as controller,
            name_server(tmp_path) as names,
            member_of(tmp_path, controller, namesrvAddr=names.address) as first,
        ):
            master = await is_master(first, 1)
            assert (master.settings.broker.broker_id, first.member.broker_id) == (0, 1)
            assert await code_of_send(master) in STORED
            async with member_of(tmp_path, controller, "two", namesrvAddr=names.address) as second:
                slave = await is_slave(second, master.address)
                assert slave.settings.broker.broker_id == 2
                await caught_up(slave, master)
                assert content(slave.stores.messages.log) == content(master.stores.messages.log)
                assert await code_of_send(slave) not in STORED
                both = {0: master.address, 2: slave.address}
                await until(lambda: names.routes.brokers[NAME].broker_addrs == both)
                versions = [one.data_version for one in names.routes.live.values()]
                assert [version.state_version for version in versions] == [1, 1]
            await until(lambda: names.routes.brokers[NAME].broker_addrs == {0: master.address})
        assert controller.sets[NAME].ids.keys() == {1, 2}
        stores = [(tmp_path / one / "brokerIdentity").read_text() for one in ("one", "two")]
        assert stores == [f"DefaultCluster#{NAME}#{number}" for number in (1, 2)]

    asyncio.run(play())


def test_another_master_is_elected_and_both_change_roles_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        # No broker polls: only the notice makes them ask.
        rare = {"syncBrokerMetadataPeriod": "60000"}
        async with (
            ScriptedController() as controller,
            name_server(tmp_path) as names,
            member_of(tmp_path, controller, namesrvAddr=names.address, **rare) as first,
            member_of(tmp_path, controller, "two", namesrvAddr=names.address, **rare) as second,
        ):
            old = await is_master(first, 1)
            old_address = old.address
            assert await code_of_send(old, b"before") in STORED
            await caught_up(await is_slave(second, old.address), old)
            began = time.monotonic()
            assert controller.choose(NAME, 2, designated=True)
            new = await is_master(second, 2)
            assert time.monotonic() - began < 30  # half the polling time
            assert await code_of_send(new, b"after") in STORED
            follower = await is_slave(first, new.address)
            await caught_up(follower, new)
            assert content(follower.stores.messages.log) == content(new.stores.messages.log)
            expected = {0: new.address, 1: old_address}
            await until(lambda: names.routes.brokers[NAME].broker_addrs == expected)
            assert RequestCode.CONTROLLER_GET_REPLICA_INFO in controller.asked

    asyncio.run(play())


def test_a_slave_without_its_master_polls_without_a_notice(tmp_path: Path) -> None:
    async def play() -> None:
        rare = {"syncBrokerMetadataPeriod": "60000", "allAckInSyncStateSet": "true"}
        async with ScriptedController() as controller:
            controller.notifies = False
            async with member_of(tmp_path, controller, "two", **rare) as second:
                old = await is_master(second, 1)
                async with member_of(tmp_path, controller, **rare) as first:
                    await is_slave(first, old.address)
                    await controller.until(lambda: controller.sets[NAME].members == {1, 2})
                    await second.__aexit__()
                    new = await is_master(first, 2)
                    assert await code_of_send(new) == ResponseCode.SUCCESS

    asyncio.run(play())


def test_nothing_listens_until_a_controller_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlled_broker, "READY_SECONDS", 0.05)

    async def play() -> None:
        async with ScriptedController() as controller:
            await controller.close()
            async with member_of(tmp_path, controller) as member:
                nothing_yet = "serves nothing yet: no controller of controllerAddr"
                await until(lambda: nothing_yet in member.ready_text())
                assert await nobody_listens(int(member.member.address.rpartition(":")[2]))
                assert next(iter(member.state())) == "role: none yet"
                await controller.open()
                broker = await is_master(member)
                assert member.ready_text() == broker.ready_text()
                assert member.status_text().endswith("; master in epoch 1")
                told = {metric.name: metric.values for metric in broker.metrics().all()}
                ((_, silence),) = told["mq_controller_silence_seconds"]
                assert 0 <= silence < PATIENCE
                assert told["mq_role_changes_total"] == [((), 1.0)]

    asyncio.run(play())


def test_a_start_that_waits_for_controllers_can_be_stopped(tmp_path: Path) -> None:
    async def play() -> None:
        member = member_of(tmp_path, "127.0.0.1:1")
        asyncio.get_running_loop().call_later(0.1, member.stop_starting)
        began = time.monotonic()
        async with member:
            assert member.broker is None
        assert time.monotonic() - began < 30

    asyncio.run(play())


@pytest.mark.parametrize(
    ("lost", "left"),
    [
        (RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, set()),
        (RequestCode.CONTROLLER_APPLY_BROKER_ID, {"brokerIdentity-temp"}),
        (RequestCode.CONTROLLER_REGISTER_BROKER, {"brokerIdentity"}),
        (RequestCode.CONTROLLER_ELECT_MASTER, {"brokerIdentity"}),
    ],
)
def test_a_start_that_is_killed_before_an_answer_gets_the_same_id_at_the_next(
    lost: RequestCode, left: set[str], tmp_path: Path
) -> None:
    async def play() -> None:
        async with ScriptedController() as controller:
            controller.mute.add(lost)  # carried out, without a reply
            killed = member_of(tmp_path, controller)
            entering = asyncio.create_task(killed.__aenter__())
            await controller.until(lambda: lost in controller.asked)
            entering.cancel()
            await asyncio.gather(entering, return_exceptions=True)
            assert {path.name for path in (tmp_path / "one").glob("*")} == left
            controller.mute.clear()
            async with member_of(tmp_path, controller) as member:
                await is_master(member)
                assert member.member.broker_id == 1
            assert controller.sets[NAME].ids.keys() == {1}

    asyncio.run(play())


def test_brokers_that_apply_at_the_same_moment_get_different_ids(tmp_path: Path) -> None:
    async def play() -> None:
        async with ScriptedController() as controller:
            members = [member_of(tmp_path, controller, name) for name in ("one", "two", "three")]
            await asyncio.gather(*(member.__aenter__() for member in members))
            try:
                assert sorted(member.member.broker_id for member in members) == [1, 2, 3]
                roles = [member.member.role for member in members]
                masters = [role is not None and role.is_master for role in roles]
                assert sorted(masters) == [False, False, True]
            finally:
                await asyncio.gather(*(member.__aexit__() for member in members))

    asyncio.run(play())


def test_the_store_of_another_broker_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with ScriptedController() as controller:
            (tmp_path / "one").mkdir()
            (tmp_path / "one" / "brokerIdentity").write_text("DefaultCluster#broker-z#1")
            with pytest.raises(CannotStart, match="is of broker broker-z"):
                await member_of(tmp_path, controller).__aenter__()
            assert controller.asked == []

    asyncio.run(play())


def test_a_port_in_use_ends_the_first_start(tmp_path: Path) -> None:
    async def play() -> None:
        async with ScriptedController() as controller:
            member = member_of(tmp_path, controller)
            port = int(member.member.address.rpartition(":")[2])
            with socket.create_server(("127.0.0.1", port)):
                with pytest.raises(OSError, match="another process does already"):
                    await member.__aenter__()
            await controller.until(lambda: not controller.sets[NAME].alive)

    asyncio.run(play())


def test_a_removed_member_reports_it_and_joins_when_its_id_is_moved_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, syncBrokerMetadataPeriod="100") as member,
        ):
            await is_master(member)
            there = controller.sets[NAME]
            there.ids = {7: ("127.0.0.1:1", "c")}  # cleanBrokerMetadata, and other brokers came
            there.next_id = 8
            there.master, there.epoch = 0, 5
            await until(lambda: "do not know broker id 1" in member.member.problem)
            identity = tmp_path / "one" / "brokerIdentity"
            assert str(identity) in member.member.problem
            there.members = {8}
            identity.rename(tmp_path / "kept")
            await is_master(member, 6)
            assert member.member.broker_id == 8

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    assert sum("do not know broker id 1" in record.message for record in caplog.records) == 1


def test_a_broker_that_cannot_take_its_role_withdraws_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlled_broker, "FIRST_PAUSE", 0.3)

    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller) as first,
            member_of(tmp_path, controller, "two") as second,
        ):
            old = await is_master(first, 1)
            await is_slave(second, old.address)
            controller.sets[NAME].members = {1, 2}
            lock = tmp_path / "two" / "lock"
            lock.unlink()
            lock.mkdir()  # no broker can open this store
            controller.choose(NAME, 2, designated=True)
            await controller.until(lambda: 2 not in controller.sets[NAME].alive)
            assert second.broker is None
            lock.rmdir()
            await is_master(second)
            await is_slave(first, second.member.address)

    asyncio.run(play())


@answered.by_broker(RequestCode.EXCHANGE_BROKER_HA_INFO)
def test_a_master_reports_its_replication_address_and_a_slave_does_not(tmp_path: Path) -> None:
    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller) as first,
            member_of(tmp_path, controller, "two") as second,
        ):
            master = await is_master(first)
            slave = await is_slave(second, master.address)
            answer = await ask(master.port, RequestCode.EXCHANGE_BROKER_HA_INFO)
            told = ExchangeHAInfoResponseHeader.decode(answer.fields)
            assert told.master_ha_address == f"127.0.0.1:{master.ha_master.port}"
            assert (told.master_address, told.master_flush_offset) == (master.address, 0)
            silent = await ask(slave.port, RequestCode.EXCHANGE_BROKER_HA_INFO)
            assert (silent.code, silent.fields) == (ResponseCode.SUCCESS, {})

    asyncio.run(play())


def test_a_slave_reports_the_end_of_its_masters_log_at_the_election(tmp_path: Path) -> None:
    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller) as first,
            member_of(tmp_path, controller, "two") as second,
        ):
            old = await is_master(first, 1)
            assert await code_of_send(old, b"before") in STORED
            await caught_up(await is_slave(second, old.address), old)
            begin = end_of(old)
            assert controller.choose(NAME, 2, designated=True)
            new = await is_master(second, 2)
            assert await code_of_send(new, b"after") in STORED
            slave = await is_slave(first, new.address)
            await caught_up(slave, new)
            answer = await ask(slave.port, RequestCode.GET_BROKER_HA_STATUS)
            status = HARuntimeInfo.decode(answer.body).ha_client_runtime_info
            assert status.master_flush_offset == begin < status.max_offset

    asyncio.run(play())


def test_only_one_of_a_store_and_its_copy_is_master(tmp_path: Path) -> None:
    async def play() -> None:
        brief = {"syncBrokerMetadataPeriod": "100"}
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, **brief) as first,
        ):
            await is_master(first, 1)
            (tmp_path / "copy").mkdir()
            (tmp_path / "copy" / "brokerIdentity").write_bytes(
                (tmp_path / "one" / "brokerIdentity").read_bytes()
            )
            async with member_of(tmp_path, controller, "copy", **brief) as copy:
                await is_master(copy, 1)  # it was the last to register
                alone = await is_slave(first, "")
                assert await code_of_send(alone) not in STORED
                assert f"{copy.member.address} has id 1 of {NAME}, too" in first.member.problem

    asyncio.run(play())


def test_a_master_polls_often_enough_to_keep_its_lease(tmp_path: Path) -> None:
    async def play() -> None:
        rare = {**BRIEF, "syncBrokerMetadataPeriod": "60000"}
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, **rare) as member,
        ):
            before = await is_master(member, 1)
            there = controller.sets[NAME]
            there.ids[2] = ("127.0.0.1:1", "c")
            there.members, there.members_epoch = {1, 2}, 2
            await until(lambda: len(member.member._members[0]) == 2)
            assert member.member._pause() < member.member._lease / 2
            for _ in range(4):
                passed.advance(200)  # half the lease
                assert member.member.may_answer()
                confirmed = member.member._confirmed
                await until(lambda: member.member._confirmed > confirmed)  # noqa: B023
            assert member.broker is before

    with stopped_monotonic() as passed:
        asyncio.run(play())


def test_a_broker_that_has_not_started_reports_the_log_position_on_its_disk(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with ScriptedController() as controller:
            async with member_of(tmp_path, controller) as member:
                master = await is_master(member, 1)
                assert await code_of_send(master) in STORED
                end = master.stores.messages.log.written
            again = member_of(tmp_path, controller)
            port = int(again.member.address.rpartition(":")[2])
            with socket.create_server(("127.0.0.1", port)):
                with pytest.raises(OSError, match="another process does already"):
                    await again.__aenter__()
            assert again._heartbeat().epoch == 1
            assert again._heartbeat().max_offset == end > 0

    asyncio.run(play())


@answered.by_broker(RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
def test_a_notice_makes_a_broker_poll_and_its_content_is_ignored(tmp_path: Path) -> None:
    async def play() -> None:
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, syncBrokerMetadataPeriod="60000") as member,
        ):
            broker = await is_master(member, 1)
            asked = controller.asked.count(RequestCode.CONTROLLER_GET_REPLICA_INFO)
            async with Peer(broker.port) as peer:
                forged = {"masterAddress": "10.0.0.9:1", "masterEpoch": "9", "masterBrokerId": "5"}
                answer = await peer.ask(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, forged)
            assert answer.code == ResponseCode.SUCCESS
            code = RequestCode.CONTROLLER_GET_REPLICA_INFO
            await controller.until(lambda: controller.asked.count(code) > asked)
            assert member.broker is broker
            assert broker.role is not None and broker.role.is_master

    asyncio.run(play())


def test_a_master_whose_machine_crashed_withdraws_for_a_replica_with_its_lost_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returns before the controllers have noticed, and keeps its epoch."""
    all_ack = {"allAckInSyncStateSet": "true"}

    async def play() -> None:
        async with ScriptedController() as controller:
            controller.hears_last = True
            first = member_of(tmp_path, controller, **all_ack)
            await first.__aenter__()
            async with member_of(tmp_path, controller, "two", **all_ack) as second:
                await is_slave(second, (await is_master(first, 1)).address)
                there = controller.sets[NAME]
                await controller.until(lambda: there.members == {1, 2})
                heard = there.alive[1]
                with monkeypatch.context() as patch:
                    patch.setattr(controller, "choose", lambda *_, **__: False)
                    await first.__aexit__()
                    await controller.until(lambda: 1 not in there.alive)
                there.alive[1] = heard
                (tmp_path / "one" / "abort").write_bytes(b"of another boot")
                async with member_of(tmp_path, controller, **all_ack) as again:
                    new = await is_master(second, 2)
                    await is_slave(again, new.address)

    asyncio.run(play())


def test_a_master_whose_machine_crashed_continues_if_no_other_member_is_in_sync(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with ScriptedController() as controller:
            async with member_of(tmp_path, controller, allAckInSyncStateSet="true") as first:
                await is_master(first, 1)
            (tmp_path / "one" / "abort").write_bytes(b"of another boot")
            async with member_of(tmp_path, controller, allAckInSyncStateSet="true") as first:
                await is_master(first)

    asyncio.run(play())
