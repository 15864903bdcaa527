"""Several controllers of a group: one leads, and its successor knows all that it replied."""

import asyncio
import contextlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.controller import etcd as etcd_client
from mq.daemons.controller.app import Controller
from mq.daemons.controller.etcd import Etcd, EtcdError, Txn
from mq.daemons.controller.leadership import Leadership
from mq.daemons.controller.replica_set import ReplicaSet, apply_id
from mq.daemons.dispatch import Refused
from mq.protocol.codes import RequestCode, ResponseCode
from tests import answered
from tests.daemons.controller.brokers import NAME, ScriptedBroker, controller, form_set
from tests.daemons.controller.etcd_server import EtcdServer
from tests.daemons.peer import Peer
from tests.waiting import until


async def several(
    stack: AsyncExitStack, etcd: EtcdServer, group: str, **settings: str
) -> list[Controller]:
    """Three controllers, the first of which leads."""
    found = []
    for _ in range(3):
        one = controller(etcd.url, controllerDLegerGroup=group, **settings)
        found.append(await stack.enter_async_context(one))
        await until(lambda: found[0].leadership.leads)
    return found


def first_id(kept: ReplicaSet | None) -> ReplicaSet:
    return apply_id(kept, "c", "broker-b", 1, "127.0.0.1:1;1")


@answered.by_controller(RequestCode.CONTROLLER_GET_METADATA_INFO)
def test_all_controllers_name_the_leader_and_followers_redirect_to_it(
    etcd: EtcdServer,
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            leader, second, third = await several(stack, etcd, "named", leaderLeaseSeconds="6")
            for one in (leader, second, third):
                await until(lambda one=one: len(one.leadership.controllers) == 3)  # type: ignore[misc]
                await until(lambda one=one: one.leadership.leader == leader.address)  # type: ignore[misc]
                async with Peer(one.port) as peer:
                    reply = await peer.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
                    assert reply.fields["controllerLeaderAddress"] == leader.address
                    assert reply.fields["isLeader"] == ("true" if one is leader else "false")
                    assert reply.fields["peers"].count(";") == 3
            async with ScriptedBroker(second.port, 1) as broker:
                assert (await broker.apply()).code == ResponseCode.CONTROLLER_NOT_LEADER

    asyncio.run(main())


def test_when_the_leader_stops_another_leads_at_once_with_the_same_state(
    etcd: EtcdServer,
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            leader, second, third = await several(stack, etcd, "stops", leaderLeaseSeconds="60")
            async with ScriptedBroker(leader.port, 1) as broker:
                await broker.join()
                await broker.elect()
            await leader.leadership.give_up()
            others = (second, third)
            # long before the lease ends
            await until(lambda: any(one.leadership.leads for one in others))
            (next_one,) = (one for one in others if one.leadership.leads)
            async with ScriptedBroker(next_one.port, 1) as broker:
                assert (await broker.info()).fields["masterEpoch"] == "1"

    asyncio.run(main())


def test_a_master_that_only_the_next_leader_knows_to_be_dead_is_replaced_when_it_leads(
    etcd: EtcdServer,
) -> None:
    settings = {"controllerDLegerGroup": "inherited", "scanInactiveMasterInterval": "3600000"}

    async def main() -> None:
        async with AsyncExitStack() as brokers:
            leading = AsyncExitStack()
            first = await leading.enter_async_context(controller(etcd.url, **settings))
            await until(lambda: first.leadership.leads)
            next_one = await brokers.enter_async_context(controller(etcd.url, **settings))
            master, slave, master_there, slave_there = [
                await brokers.enter_async_context(ScriptedBroker(port, number))
                for port in (first.port, next_one.port)
                for number in (1, 2)
            ]
            await form_set(master, slave)
            for broker in (master_there, slave_there):
                await broker.beat(1, 100)
            await master_there.peer.close()
            await until(lambda: not next_one.liveness.is_alive(NAME, 1))
            await leading.aclose()
            await until(lambda: next_one.elections.held == 1)
            assert (await slave_there.info()).fields["masterBrokerId"] == "2"

    asyncio.run(main())


def test_a_controller_that_stops_leaves_neither_its_key_nor_its_name(etcd: EtcdServer) -> None:
    async def main() -> None:
        async with controller(etcd.url, controllerDLegerGroup="gone") as one:
            await until(lambda: one.leadership.leads)
        async with Etcd([etcd.url]) as other:
            assert await other.pairs("/mq/controller/gone/") == []

    asyncio.run(main())


def test_a_leader_that_has_lost_its_key_unnoticed_changes_nothing(etcd: EtcdServer) -> None:
    async def main() -> None:
        settings = {"controllerDLegerGroup": "lost", "leaderLeaseSeconds": "30"}
        async with controller(etcd.url, **settings) as one:
            await until(lambda: one.leadership.leads)
            async with Etcd([etcd.url]) as other:
                await other.revoke(one.leadership._lease)
                assert one.leadership.leads  # it checks again in ten seconds
                with pytest.raises(Refused) as refused:
                    await one.registry.change("broker-b", first_id)
                assert refused.value.code == ResponseCode.CONTROLLER_NOT_LEADER
                assert not one.leadership.leads
                assert await other.pairs("/mq/controller/lost/sets/") == []

    asyncio.run(main())


def test_a_write_that_etcd_does_not_confirm_is_read_again(tmp_path: Path) -> None:
    async def main() -> None:
        with EtcdServer(tmp_path) as etcd:
            settings = {"controllerDLegerGroup": "doubt", "leaderLeaseSeconds": "9"}
            async with controller(etcd.url, **settings) as one:
                await until(lambda: one.leadership.leads)
                etcd.pause()
                with pytest.raises(Refused) as refused:
                    await one.registry.change("broker-b", first_id)
                assert refused.value.code == ResponseCode.SYSTEM_ERROR
                async with ScriptedBroker(one.port, 1) as broker:
                    assert (await broker.info()).code == ResponseCode.CONTROLLER_NOT_LEADER
                etcd.go_on()
                await until(lambda: one.registry._is_known)
                # Whether the write was executed or not, the same broker may ask again. If it was
                # executed after the sets were read, the first attempt shows it.
                with contextlib.suppress(Refused):
                    await one.registry.change("broker-b", first_id)
                await until(lambda: one.leadership.leads and one.registry._is_known)
                kept = await one.registry.change("broker-b", first_id)
                assert kept is not None and sorted(kept.replicas) == [1]

    asyncio.run(main())


def test_controllers_that_start_after_their_brokers_hold_no_new_election(etcd: EtcdServer) -> None:
    async def main() -> None:
        async with controller(etcd.url, controllerDLegerGroup="again") as one:
            await until(lambda: one.leadership.leads)
            async with ScriptedBroker(one.port, 1) as first:
                await first.join()
                await first.elect()
                async with ScriptedBroker(one.port, 2) as second:
                    await second.join()
                    await first.alter({1, 2}, 1, 1)
                    await one.leadership.give_up()
        async with controller(etcd.url, controllerDLegerGroup="again") as one:
            await until(lambda: one.leadership.leads)
            async with ScriptedBroker(one.port, 2) as second:  # the master has sent no heartbeat
                await second.beat(1, 100)
                assert (await second.register()).fields["masterBrokerId"] == "1"
                assert (await second.elect()).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST

    asyncio.run(main())


def test_leads_again_when_etcd_was_away_for_longer_than_the_lease(tmp_path: Path) -> None:
    """etcd restarts the lease when it starts: the old key still exists, and is ours."""

    async def main() -> None:
        with EtcdServer(tmp_path) as etcd:
            async with controller(
                etcd.url, controllerDLegerGroup="away", leaderLeaseSeconds="2"
            ) as one:
                await until(lambda: one.leadership.leads)
                etcd.kill()
                await until(lambda: not one.leadership._created)
                await asyncio.to_thread(etcd.start)
                await until(lambda: one.leadership.leads)

    asyncio.run(main())


def test_a_controller_that_created_the_key_without_a_reply_leads(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_if = Etcd.put_if
    lost: list[str] = []

    async def lose_first_answer(self: Etcd, key: str, *more: Any) -> Txn:
        done = await put_if(self, key, *more)
        if key.endswith("/leader") and not lost:
            lost.append(key)
            raise EtcdError("etcd does not reply")
        return done

    async def main() -> None:
        monkeypatch.setattr(Etcd, "put_if", lose_first_answer)
        async with controller(etcd.url, controllerDLegerGroup="unconfirmed") as one:
            await until(lambda: one.leadership.leads)
            assert lost

    asyncio.run(main())


def test_a_change_by_an_endpoint_that_did_not_reply_is_not_reported_as_undone(
    etcd: EtcdServer,
) -> None:
    async def lose_answers(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        """Forward one request, and drop the reply."""
        theirs, ours = await asyncio.open_connection("127.0.0.1", port)
        ours.write(await reader.readuntil(b"\r\n\r\n") + await reader.read(65536))
        await theirs.readuntil(b"\r\n\r\n")
        for one in (ours, writer):
            one.close()

    async def main() -> None:
        port = int(etcd.url.rpartition(":")[2])
        async with await asyncio.start_server(
            lambda reader, writer: lose_answers(reader, writer, port), "127.0.0.1", 0
        ) as lossy:
            url = f"http://127.0.0.1:{lossy.sockets[0].getsockname()[1]}"
            async with Etcd([url, etcd.url]) as client:
                with pytest.raises(EtcdError, match="may be set already"):
                    await client.put_if("/lossy", b"1", {"/lossy": {"changed": 0}})
                found = await client.get("/lossy")
                assert found is not None and found.value == b"1"

    asyncio.run(main())


def test_a_controller_that_cannot_start_lets_another_lead(etcd: EtcdServer) -> None:
    async def main() -> None:
        async def cannot() -> None:
            raise EtcdError("a record of a later release")

        async def can() -> None:
            pass

        async with Etcd([etcd.url]) as client:
            first, second = (
                Leadership(client, "/mq/unable/", address=address, seconds=2, on_lead=on_lead)
                for address, on_lead in (("first", cannot), ("second", can))
            )
            works = [asyncio.create_task(first.work())]
            await until(lambda: first._stands_back)
            works.append(asyncio.create_task(second.work()))
            await until(lambda: second.leads)
            await until(lambda: first.leader == "second")
            for work in works:
                work.cancel()
            await asyncio.wait(works)
            await second.give_up()
            await first.give_up()

    asyncio.run(main())


def test_keys_come_in_pages_of_one_moment(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_client, "_PAGE", 3)

    async def main() -> None:
        async with Etcd([etcd.url]) as client:
            for number in range(7):
                await client.put_if(f"/paged/{number}", b"%d" % number, {})
            asked = client._ask
            pages = 0

            async def ask(path: str, request: Any, *more: Any) -> Any:
                nonlocal pages
                pages += 1
                answer = await asked(path, request, *more)
                if pages == 1:  # another client writes in between
                    await client.put_if("/paged/6", b"later", {})
                return answer

            with monkeypatch.context() as patched:
                patched.setattr(client, "_ask", ask)
                pairs = await client.pairs("/paged/")
            assert [pair.value for pair in pairs] == [b"%d" % number for number in range(7)]
            assert pages > 3

    asyncio.run(main())
