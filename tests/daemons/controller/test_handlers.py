"""A controller over the wire: requests of brokers, with a real etcd."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import orjson
import pytest

from mq.daemons.controller import etcd as etcd_client
from mq.daemons.controller import liveness
from mq.daemons.controller.app import Controller
from mq.daemons.controller.replica_set import ReplicaSet, apply_id
from mq.protocol.bodies.controller import BrokerReplicasInfo, ElectMasterResponseBody, SyncStateSet
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.headers.controller import CleanControllerBrokerDataRequestHeader
from tests import answered
from tests.daemons.controller.brokers import CLUSTER, NAME, ScriptedBroker, controller, form_set
from tests.daemons.controller.etcd_server import EtcdServer
from tests.daemons.peer import Peer
from tests.waiting import until

Script = Callable[[Controller], Awaitable[None]]


def run(etcd: EtcdServer, group: str, script: Script, **settings: str) -> None:
    async def main() -> None:
        async with controller(etcd.url, controllerDLegerGroup=group, **settings) as one:
            await until(lambda: one.leadership.leads)
            await script(one)

    asyncio.run(main())


def first_id(kept: ReplicaSet | None) -> ReplicaSet:
    return apply_id(kept, CLUSTER, "broker-b", 1, "127.0.0.1:1;1")


@answered.by_controller(
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, RequestCode.CONTROLLER_APPLY_BROKER_ID
)
def test_brokers_get_consecutive_ids_each_once(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 1) as first, ScriptedBroker(one.port, 2) as second:
            assert await first.next_id() == 1
            wrong = await second.apply()
            assert wrong.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
            assert (await first.apply()).code == ResponseCode.SUCCESS
            assert (await first.apply()).code == ResponseCode.SUCCESS  # its reply was lost
            assert (
                await first.apply("another;1")
            ).code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
            assert await second.next_id() == 2
            assert (await second.apply()).code == ResponseCode.SUCCESS
            assert await first.next_id() == 3

    run(etcd, "ids", script)


@answered.by_controller(RequestCode.CONTROLLER_ELECT_MASTER, RequestCode.CONTROLLER_REGISTER_BROKER)
def test_the_first_to_ask_becomes_the_master_and_the_others_are_notified(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 1) as first, ScriptedBroker(one.port, 2) as second:
            await first.join()
            assert "masterBrokerId" not in (await first.register()).fields
            elected = await first.elect()
            assert elected.code == ResponseCode.SUCCESS
            assert elected.fields == {
                "masterBrokerId": "1",
                "masterAddress": first.address,
                "masterEpoch": "1",
                "syncStateSetEpoch": "1",
            }
            body = ElectMasterResponseBody.decode(elected.body)
            assert body.sync_state_set == {1}
            assert body.broker_member_group is not None
            assert body.broker_member_group.broker_addrs == {1: first.address}
            await second.join()
            registered = await second.register()
            assert registered.fields["masterBrokerId"] == "1"
            assert SyncStateSet.decode(registered.body).sync_state_set == {1}
            still = await second.elect()
            assert still.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
            assert still.fields["masterAddress"] == first.address
            assert ElectMasterResponseBody.decode(still.body).broker_member_group is None

    run(etcd, "first", script)


@answered.by_controller(
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_GET_REPLICA_INFO
)
def test_the_in_sync_set_is_changed_by_the_master_of_this_epoch_only(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 1) as first, ScriptedBroker(one.port, 2) as second:
            altered = await form_set(first, second)
            assert altered.fields == {"newSyncStateSetEpoch": "2"}
            assert SyncStateSet.decode(altered.body).sync_state_set == {1, 2}
            for reply, code in (
                (await first.alter({1, 2}, 2, 1), "ALTER_SYNC_STATE_SET_FAILED"),
                (await second.alter({1}, 2, 1), "INVALID_MASTER"),
                (await first.alter({1}, 2, 0), "FENCED_MASTER_EPOCH"),
                (await first.alter({1}, 1, 1), "FENCED_SYNC_STATE_SET_EPOCH"),
                (await first.alter({1, 3}, 2, 1), "INVALID_REPLICAS"),
                (await first.alter({2}, 2, 1), "ALTER_SYNC_STATE_SET_FAILED"),
            ):
                assert reply.code == ResponseCode[f"CONTROLLER_{code}"], reply
            info = await second.info()
            assert info.fields["masterEpoch"] == "1"
            assert SyncStateSet.decode(info.body).sync_state_set_epoch == 2

    run(etcd, "sync", script)


@answered.by_controller(RequestCode.BROKER_HEARTBEAT)
def test_a_master_whose_connection_ends_is_replaced_by_the_best_in_sync(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        first = ScriptedBroker(one.port, 1)
        async with ScriptedBroker(one.port, 2) as second, ScriptedBroker(one.port, 3) as third:
            async with ScriptedBroker(one.port, 4) as fourth:
                async with first:
                    await form_set(first, second, third, fourth, in_sync={1, 2, 3})
                    await second.beat(1, 2**33)
                    await third.beat(1, 2**33 + 2**32)  # higher, though its lower 32 bits are not
                    await fourth.beat(1, 2**40)  # not in sync
                await until(lambda: one.elections.held == 2)
                info = await second.info()
                assert info.fields["masterBrokerId"] == "3" and info.fields["masterEpoch"] == "2"
                assert SyncStateSet.decode(info.body).sync_state_set == {3}

    run(etcd, "dies", script)


@contextmanager
def writing(one: Controller, etcd: EtcdServer) -> Iterator[asyncio.Task[object]]:
    """A change of another set, whose write etcd does not confirm before the block ends."""
    etcd.pause()
    try:
        yield asyncio.ensure_future(one.registry.change("broker-b", first_id))
    finally:
        etcd.go_on()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to an etcd that does not respond wait for it."""
    monkeypatch.setattr(etcd_client, "TIMEOUT", 60)


# Only deaths start elections.
UNSCANNED = {"scanInactiveMasterInterval": "3600000", "leaderLeaseSeconds": "60"}


@pytest.mark.usefixtures("patient")
def test_while_a_change_is_written_replies_show_the_old_state(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 1) as broker:
            await broker.join()
            await broker.elect()
            with writing(one, etcd) as change:
                await until(lambda: one.registry._lock.locked())
                info = await broker.info()
                assert not change.done()
            assert info.code == ResponseCode.SUCCESS
            assert info.fields["masterBrokerId"] == "1"
            await change

    run(etcd, "written", script, **UNSCANNED)


@pytest.mark.usefixtures("patient")
def test_a_master_that_dies_while_another_set_is_written_is_replaced(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 2) as second:
            async with ScriptedBroker(one.port, 1) as first:
                await form_set(first, second)
                with writing(one, etcd) as change:
                    await first.peer.close()
                    await until(lambda: not one.liveness.may_live(NAME, 1))
                    assert not change.done()
                await change
                await until(lambda: one.elections.held == 2)

    run(etcd, "busy", script, **UNSCANNED)


@pytest.mark.usefixtures("patient")
def test_a_master_that_dies_while_its_election_is_written_is_replaced(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        brokers = [ScriptedBroker(one.port, number) for number in (1, 2, 3)]
        async with brokers[0], brokers[1], brokers[2]:
            await form_set(*brokers, in_sync={1, 2})
            etcd.pause()
            await brokers[0].peer.close()
            await until(lambda: one.registry._lock.locked())
            await brokers[1].peer.close()
            await until(lambda: not one.liveness.may_live(NAME, 2))
            etcd.go_on()
            await until(lambda: one.elections.held == 3)
            assert (await brokers[2].info()).fields["masterBrokerId"] == "3"

    run(etcd, "falls", script, **UNSCANNED, enableElectUncleanMaster="true")


def test_a_master_that_dies_while_the_leadership_is_uncertain_is_replaced(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 2) as second:
            async with ScriptedBroker(one.port, 1) as first:
                await form_set(first, second)
                one.leadership.doubt()
                await first.peer.close()
                await until(lambda: not one.liveness.may_live(NAME, 1))
                await until(lambda: not one.elections._wake.is_set())  # it has been examined
                assert not one.leadership.leads
            await one.leadership._stay()
            await until(lambda: one.elections.held == 2)

    run(etcd, "doubts", script, **UNSCANNED)


def test_a_master_whose_set_has_changed_in_etcd_by_itself_is_replaced(etcd: EtcdServer) -> None:
    """As by an unconfirmed write that was executed after all sets had been read again."""

    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 2) as second:
            async with ScriptedBroker(one.port, 1) as first:
                await form_set(first, second)
                (kept,) = one.registry
                key = one.registry._prefix + NAME
                await one.registry._etcd.put_if(key, kept.encode(), {})
                await first.peer.close()
                await until(lambda: one.elections.held == 2)

    run(etcd, "unconfirmed", script, scanInactiveMasterInterval="3600000", leaderLeaseSeconds="3")


def test_a_silent_master_is_dead_after_its_timeout_and_its_id_stays_taken(
    etcd: EtcdServer,
) -> None:
    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 1) as first, ScriptedBroker(one.port, 2) as second:
            await first.join()
            await first.elect()
            await second.join()
            await first.beat(timeout=100)
            await until(lambda: one.elections.failed > 0)
            info = await second.info()
            assert "masterBrokerId" not in info.fields and info.fields["masterEpoch"] == "2"
            failed = await second.elect()
            assert failed.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
            nobody = await second.elect(-1)
            assert nobody.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
            await first.beat()
            assert (await first.elect()).fields["masterEpoch"] == "3"

    run(etcd, "silent", script)


def test_an_unclean_election_chooses_a_live_broker(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 2) as second:
            async with ScriptedBroker(one.port, 1) as first:
                await first.join()
                await first.elect()
                await second.join()
            await until(lambda: one.elections.held == 2)
            assert (await second.info()).fields["masterBrokerId"] == "2"

    run(etcd, "unclean", script, enableElectUncleanMaster="true")


def test_an_administrator_designates_a_master_in_sync(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 1) as first, ScriptedBroker(one.port, 2) as second:
            await first.join()
            await first.elect()
            await second.join()
            refused = await first.elect(2, designated=True)
            assert refused.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
            await first.alter({1, 2}, 1, 1)
            assert (await first.elect(2, designated=True)).fields["masterBrokerId"] == "2"

    run(etcd, "designated", script)


@answered.by_controller(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, RequestCode.CLEAN_BROKER_DATA)
def test_replicas_are_shown_and_forgotten(etcd: EtcdServer) -> None:
    async def clean(broker: ScriptedBroker, ids: str, living: bool = False) -> int:
        header = CleanControllerBrokerDataRequestHeader(
            cluster_name=CLUSTER,
            broker_name=NAME,
            broker_controller_ids_to_clean=ids,
            is_clean_living_broker=living,
        )
        return (await broker.peer.ask(RequestCode.CLEAN_BROKER_DATA, header)).code

    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 1) as first:
            await first.join()
            await first.elect()
            async with ScriptedBroker(one.port, 2) as second:
                await second.join()
            await until(lambda: not one.liveness.is_alive(NAME, 2))
            names = orjson.dumps([NAME, "unknown"])
            reply = await first.peer.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, names)
            (shown,) = BrokerReplicasInfo.decode(reply.body).replicas_info_table.values()
            assert [(one.broker_id, one.alive) for one in shown.in_sync_replicas] == [(1, True)]
            assert [(one.broker_id, one.alive) for one in shown.not_in_sync_replicas] == [
                (2, False)
            ]
            refused = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
            assert await clean(first, "1") == refused
            assert await clean(first, "") == refused
            assert await clean(first, "x") == refused
            assert await clean(first, "2") == ResponseCode.SUCCESS
            assert sorted(one.registry.get(NAME).replicas) == [1]  # type: ignore[union-attr]
            assert await first.next_id() == 3  # no id is assigned twice
            assert await clean(first, "1", living=True) == ResponseCode.SUCCESS
            assert one.registry.get(NAME) is None

    run(etcd, "clean", script)


def test_a_heartbeat_without_an_id_and_a_broker_without_a_name_are_refused(
    etcd: EtcdServer,
) -> None:
    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 1, name="") as broker:
            invalid = ResponseCode.CONTROLLER_INVALID_REQUEST
            assert (await broker.apply()).code == invalid
            fields = {"clusterName": "c", "brokerAddr": "a:1", "brokerName": "b"}
            reply = await broker.peer.ask(RequestCode.BROKER_HEARTBEAT, fields)
            assert (reply.code, reply.remark) == (invalid, "Heart beat with empty brokerId")
            for wrong in ({"brokerName": "b" * 256}, {"brokerAddr": "a" * 513}):
                given = {**fields, "brokerId": "1", **wrong}
                reply = await broker.peer.ask(RequestCode.BROKER_HEARTBEAT, given)
                assert reply.code == invalid and len(one.liveness) == 0
            reply = await broker.peer.ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, b"{")
            assert reply.code == invalid

    run(etcd, "malformed", script)


@answered.by_controller(RequestCode.UPDATE_CONTROLLER_CONFIG, RequestCode.GET_CONTROLLER_CONFIG)
def test_settings_are_shown_and_changed_by_the_allow_list(etcd: EtcdServer) -> None:
    async def script(one: Controller) -> None:
        async with Peer(one.port) as peer:
            shown = await peer.ask(RequestCode.GET_CONTROLLER_CONFIG)
            assert b"enableElectUncleanMaster=false\n" in bytes(shown.body)
            change = b"enableElectUncleanMaster=true"
            reply = await peer.ask(RequestCode.UPDATE_CONTROLLER_CONFIG, None, change)
            assert reply.code == ResponseCode.SUCCESS
            assert one.settings.controller.enable_elect_unclean_master
            for text in (b"configStorePath=/tmp/x", b"etcdEndpoints=http://a:1"):
                reply = await peer.ask(RequestCode.UPDATE_CONTROLLER_CONFIG, None, text)
                assert reply.code == ResponseCode.NO_PERMISSION

    path = str(etcd.home / "controller.properties")
    run(etcd, "settings", script, configStorePath=path)


def test_without_etcd_no_controller_leads_and_brokers_get_an_error() -> None:
    async def main() -> None:
        async with controller("http://127.0.0.1:1") as one:
            async with ScriptedBroker(one.port, 1) as broker:
                assert (await broker.apply()).code == ResponseCode.CONTROLLER_NOT_LEADER
                assert (await broker.info()).code == ResponseCode.CONTROLLER_NOT_LEADER
                assert (await broker.beat()).code == ResponseCode.SUCCESS
                reply = await broker.peer.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
                assert reply.code == ResponseCode.SUCCESS
                assert "controllerLeaderAddress" not in reply.fields
                assert reply.fields["isLeader"] == "false"

    asyncio.run(main())


def test_a_broker_in_sync_is_not_elected_before_its_late_heartbeat(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine may be lost with its disk; an elected broker is then the only one in sync."""
    monkeypatch.setattr(liveness, "_LATE", 0.0)

    async def script(one: Controller) -> None:
        async with ScriptedBroker(one.port, 2) as late:
            async with ScriptedBroker(one.port, 1) as first:
                await first.join()
                await late.join()
                await first.elect()
                assert (await first.alter({1, 2}, 1, 1)).code == ResponseCode.SUCCESS
                await late.beat()
            await until(lambda: not one.liveness.is_alive(NAME, 1))
            await asyncio.sleep(0.5)
            assert (await late.info()).fields["masterBrokerId"] == "1"
            assert one.elections.held == 1
            monkeypatch.setattr(liveness, "_LATE", 1000.0)
            await until(lambda: one.elections.held == 2)
            assert (await late.info()).fields["masterBrokerId"] == "2"

    run(etcd, "late", script)


def test_the_id_of_a_broker_that_lives_is_not_taken_from_another_address(etcd: EtcdServer) -> None:
    """Otherwise both a store and its copy would be master in one epoch, until the original asks
    again.
    """

    async def main() -> None:
        async with controller(etcd.url, controllerDLegerGroup="copied") as one:
            await until(lambda: one.leadership.leads)
            async with ScriptedBroker(one.port, 1) as copy:
                copy.address = "127.0.0.1:30001"
                async with ScriptedBroker(one.port, 1) as first:
                    await first.join()
                    await first.elect()
                    reply = await copy.register()
                    assert reply.code == ResponseCode.CONTROLLER_INVALID_REQUEST
                    assert reply.remark == (
                        "brokerId 1 of broker-a is alive at 127.0.0.1:20001 and cannot be at "
                        "127.0.0.1:30001, too: stop one of the two"
                    )
                    info = await copy.info()
                    assert info.fields["masterAddress"] == first.address
                await until(lambda: not one.liveness.is_alive("broker-a", 1))
                assert (await copy.register()).code == ResponseCode.SUCCESS  # it has moved

    asyncio.run(main())
