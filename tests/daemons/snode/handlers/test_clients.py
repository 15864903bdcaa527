"""Clients of a snode: heartbeats, groups, notifications, expiry."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from mq.protocol.bodies.clients import ProducerData
from mq.protocol.codes import DIALECT_FIELD, RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.group import UnregisterClientRequestHeader
from tests import answered
from tests.client.scripted import scripted
from tests.daemons.broker.groups.members import HEARTBEAT as OF_A_SNODE
from tests.daemons.peer import Peer
from tests.daemons.snode.pulls import beat, heartbeat
from tests.daemons.snode.world import ENODE, OTHER, beside, broker_settings, world
from tests.waiting import until


async def members(peer: Peer, group: str = "g") -> list[str] | None:
    reply = await peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    if reply.code == ResponseCode.SYSTEM_ERROR:
        return None
    return GetConsumerListByGroupResponseBody.decode(reply.body).consumer_id_list


async def until_told_of(broker: Broker, group: str) -> None:
    await until(lambda: group in broker.stores.groups.table)
    await until(lambda: broker.stores.topics.get(f"%RETRY%{group}") is not None)


@answered.by_snode(RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT)
def test_members_are_notified_of_each_other_until_they_leave(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as first:
            assert await members(first) is None
            await beat(first, "c1")
            async with Peer(one.port) as second:
                await beat(second, "c2")
                notice = await first.pushed_command()
                assert notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
                assert sorted(await members(first) or ()) == ["c1", "c2"]
                leaving = UnregisterClientRequestHeader(client_id="c2", consumer_group="g")
                await second.ask(RequestCode.UNREGISTER_CLIENT, leaving)
                assert await members(first) == ["c1"]
                await beat(second, "c2")
            await until(lambda: len(one.snode.consumers.groups["g"].clients) == 1)

    asyncio.run(main())


@answered.by_snode(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
def test_a_client_with_two_connections_is_one_member(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as first, Peer(one.port) as second:
            await beat(first, "c1")
            await beat(second, "c1")
            assert await members(first) == ["c1"]

    asyncio.run(main())


def test_the_flag_of_a_group_enables_notifications_of_its_members(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as first, Peer(one.port) as second:
            quiet = SubscriptionGroupConfig(
                group_name="quiet", notify_consumer_ids_changed_enable=False
            )
            await one.broker.stores.groups.update(quiet)
            await one.snode.groups.read()
            for group in ("quiet", "g"):
                await beat(first, "c1", group)
            for group in ("quiet", "g"):
                await beat(second, "c2", group)
            notice = await first.pushed_command()
            while notice.fields["consumerGroup"] == "g" and len(first.pushed):
                notice = first.pushed.pop()
            assert notice.fields["consumerGroup"] == "g"
            assert all(other.fields["consumerGroup"] == "g" for other in first.pushed)

    asyncio.run(main())


def test_a_silent_client_is_forgotten_and_its_connection_closed(tmp_path: Path) -> None:
    async def main() -> None:
        short = {"channelExpiredTimeout": "50", "houseKeepingInterval": "10"}
        async with world(tmp_path, snode_is=short) as one, Peer(one.port) as peer:
            await beat(peer, "c1")
            await peer.closed_by_daemon()
            assert not one.snode.consumers.groups

    asyncio.run(main())


def test_producers_are_known_until_their_connection_closes(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one:
            async with Peer(one.port) as peer:
                data = HeartbeatData(
                    client_id="p1", producer_data_set=[ProducerData(group_name="p")]
                )
                await peer.ask(RequestCode.HEART_BEAT, None, data.encode())
                assert list(one.snode.producers.groups) == ["p"]
            await until(lambda: not one.snode.producers.groups)

    asyncio.run(main())


@answered.by_snode(RequestCode.CHECK_CLIENT_CONFIG)
@pytest.mark.parametrize(
    ("kind", "text", "allowed", "code"),
    [
        ("TAG", "a || b", "true", ResponseCode.SUCCESS),
        ("SQL92", "a > 1", "true", ResponseCode.SUCCESS),
        ("SQL92", "a >", "true", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("SQL92", "a > 1", "false", ResponseCode.SYSTEM_ERROR),
        ("OTHER", "a", "true", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_expressions_are_checked(
    tmp_path: Path, kind: str, text: str, allowed: str, code: int
) -> None:
    async def main() -> None:
        async with world(tmp_path, enablePropertyFilter=allowed) as one, Peer(one.port) as peer:
            subscription = SubscriptionData(topic="T", sub_string=text, expression_type=kind)
            body = CheckClientRequestBody(subscription_data=subscription).encode()
            assert (await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body)).code == code

    asyncio.run(main())


def test_a_new_group_and_its_retry_topic_are_created_at_every_enode(tmp_path: Path) -> None:
    async def main() -> None:
        strict = {"autoCreateSubscriptionGroup": "false"}
        async with world(tmp_path, names=(ENODE, OTHER), brokers=strict) as one:
            async with Peer(one.port) as peer:
                await beat(peer, "c1", "fresh")
                for broker in one.brokers.values():
                    await until_told_of(broker, "fresh")

    asyncio.run(main())


def test_a_new_group_is_created_at_an_enode_that_was_unavailable(tmp_path: Path) -> None:
    async def main() -> None:
        strict = {"autoCreateSubscriptionGroup": "false"}
        async with (
            world(tmp_path, names=(ENODE, OTHER), brokers=strict) as one,
            Peer(one.port) as peer,
        ):
            known = one.snode.enodes.masters
            port = str(one.brokers[OTHER].port)
            await one.brokers[OTHER].__aexit__(None, None, None)
            one.snode.enodes.masters = known  # its unregistration was not seen
            await beat(peer, "c1", "fresh")
            await until(lambda: "fresh" in one.broker.stores.groups.table)
            await one.snode.groups.read()
            again = broker_settings(
                tmp_path, OTHER, one.name_server.address, listenPort=port, **strict
            )
            async with Broker(again) as broker:
                await until(lambda: "fresh" in broker.stores.groups.table)
                await until(lambda: broker.stores.topics.get("%RETRY%fresh") is not None)

    asyncio.run(main())


def test_an_existing_group_of_an_enode_stays_unchanged(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            mine = SubscriptionGroupConfig(group_name="mine", retry_max_times=3, retry_queue_nums=2)
            await one.broker.stores.groups.update(mine)
            await beat(peer, "c1", "mine")
            await until(lambda: one.broker.stores.topics.get("%RETRY%mine") is not None)
            assert one.broker.stores.groups.table["mine"].retry_max_times == 3

    asyncio.run(main())


def test_groups_are_created_at_an_enode_that_appears_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await beat(peer, "c1", "fresh")
            settings = broker_settings(tmp_path, OTHER, one.name_server.address)
            async with Broker(settings) as late:
                await one.snode.enodes.refresh()
                await until(lambda: late.stores.topics.get("%RETRY%fresh") is not None)

    asyncio.run(main())


def test_the_number_of_groups_that_clients_create_is_limited(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, maxAutoCreatedGroups="10") as one, Peer(one.port) as peer:
            codes = []
            for number in range(10):
                body = heartbeat(f"g{number}")
                codes.append((await peer.ask(RequestCode.HEART_BEAT, None, body)).code)
            assert ResponseCode.SYSTEM_BUSY in codes

    asyncio.run(main())


def test_a_snode_does_not_accept_the_snode_dialect(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            reply = await peer.ask(RequestCode.HEART_BEAT, None, OF_A_SNODE.encode())
            assert DIALECT_FIELD not in reply.fields

    asyncio.run(main())


@pytest.mark.parametrize(
    "busy",
    [
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    ],
)
def test_a_group_is_created_once_an_enode_is_not_busy_and_replaces_none(
    tmp_path: Path, busy: RequestCode
) -> None:
    """Groups of an enode that does not return them would be overwritten as new ones; an enode that
    refuses temporarily would never get the group.
    """
    is_busy = True
    has = busy is RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    asked: list[int] = []

    def answer(request: Command, channel: Channel) -> Command:
        asked.append(request.code)
        if request.code == busy and is_busy:
            return request.reply(ResponseCode.SYSTEM_BUSY, remark="[OVERLOAD]system busy")
        if request.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            table = {"fresh": SubscriptionGroupConfig(group_name="fresh", retry_max_times=3)}
            body = SubscriptionGroupWrapper(subscription_group_table=table if has else {})
            return request.reply(body=body.encode())
        if request.code == RequestCode.GET_TOPIC_STATS_INFO:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST)
        return request.reply()

    async def main() -> None:
        nonlocal is_busy
        async with beside(answer, tmp_path) as (one, peer):
            await beat(peer, "c1", "fresh")
            await until(lambda: "fresh" in one.broker.stores.groups.table)
            await until(lambda: asked.count(busy) >= 2)
            is_busy = False
            await until(lambda: RequestCode.UPDATE_AND_CREATE_TOPIC in asked)
        made = asked.count(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        assert made == 0 if has else made >= 2

    asyncio.run(main())


def test_a_group_that_is_read_while_it_is_created_is_created_at_all_enodes(
    tmp_path: Path,
) -> None:
    """It counted as created by somebody else if an enode had it that had not replied yet."""
    empty = SubscriptionGroupWrapper().encode()
    table = {"fresh": SubscriptionGroupConfig(group_name="fresh")}
    has: list[str] = []
    looked = asyncio.Event()

    def late(request: Command, channel: Channel) -> Command:
        if request.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            if not looked.is_set():
                return request.reply(ResponseCode.SYSTEM_BUSY, remark="[OVERLOAD]system busy")
            has.append("late")
        is_list = request.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return request.reply(body=empty if is_list else b"")

    async def main() -> None:
        async with scripted({int(code): late for code in RequestCode}) as there:

            async def slow(request: Command, channel: Channel) -> Command:
                if request.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
                    has.append("slow")
                    await one.snode.groups.read()  # as every few seconds
                    looked.set()
                if request.code != RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                    return request.reply()
                found = SubscriptionGroupWrapper(subscription_group_table=table).encode()
                return request.reply(body=found if has else empty)

            async with beside(slow, tmp_path) as (one, peer):
                one.pretend("broker-c", int(there.split(":")[1]))
                await one.snode.enodes.refresh()
                await one.snode.groups.read()
                await beat(peer, "c1", "fresh")
                await until(lambda: "late" in has)

    asyncio.run(main())


def test_an_enode_that_appears_during_queries_keeps_its_group_unchanged(
    tmp_path: Path,
) -> None:
    """It was not queried itself, and its group would be overwritten as a new one."""
    asked: list[int] = []
    come = asyncio.Event()

    def late(request: Command, channel: Channel) -> Command:
        asked.append(request.code)
        table = {"fresh": SubscriptionGroupConfig(group_name="fresh", retry_max_times=3)}
        is_list = request.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        body = SubscriptionGroupWrapper(subscription_group_table=table).encode()
        return request.reply(body=body if is_list else b"")

    async def main() -> None:
        async with scripted({int(code): late for code in RequestCode}) as there:

            async def slow(request: Command, channel: Channel) -> Command:
                if request.code != RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                    return request.reply()
                if "fresh" in one.snode.groups.table and not come.is_set():
                    come.set()
                    one.pretend("broker-c", int(there.split(":")[1]))
                    await one.snode.enodes.refresh()
                return request.reply(body=SubscriptionGroupWrapper().encode())

            async with beside(slow, tmp_path) as (one, peer):
                await beat(peer, "c1", "fresh")
                await until(lambda: one.snode.groups._done.get("fresh", {}).get("broker-c"))
        assert come.is_set()
        assert RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP not in asked

    asyncio.run(main())


def test_an_enode_without_a_group_list_is_queried_less_and_less_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All groups of all enodes were read each second, with a log line each time."""
    monkeypatch.setattr("mq.daemons.snode.groups.RETRY_SECONDS", 0.01)
    lists = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    refused, asked = [0], [0]

    def refuses(request: Command, channel: Channel) -> Command:
        if request.code == lists:
            refused[0] += 1
            return request.reply(ResponseCode.NO_PERMISSION, remark="no")
        return request.reply()

    def takes(request: Command, channel: Channel) -> Command:
        asked[0] += request.code == lists
        return request.reply(body=SubscriptionGroupWrapper().encode())

    async def main() -> None:
        async with (
            scripted({int(code): takes for code in RequestCode}) as third,
            beside(refuses, tmp_path) as (one, peer),
        ):
            groups = one.snode.groups
            one.pretend("broker-c", int(third.split(":")[1]))
            await one.snode.enodes.refresh()
            await beat(peer, "c1", "fresh")
            await until(lambda: "broker-c" in groups._done.get("fresh", {}))
            before = asked[0]
            await until(lambda: refused[0] >= 6)
            assert asked[0] == before
            assert groups._pauses[OTHER].seconds >= 0.01 * 2**3
            # An enode that is new meanwhile is not delayed.
            await beat(peer, "c1", "fresher")
            await until(lambda: "broker-c" in groups._done.get("fresher", {}))
        said = [one for one in caplog.messages if "cannot read" in one]
        assert len(said) == 1 and f"cannot read the groups of enode {OTHER}" in said[0]

    asyncio.run(main())


def test_a_group_is_created_at_each_enode_though_one_after_the_other_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the first returned with the group created there, it was taken for an administrator's."""
    monkeypatch.setattr("mq.daemons.snode.groups.RETRY_SECONDS", 0.01)
    busy = True
    made: list[str] = []

    def at(name: str) -> Handler:
        def answer(request: Command, channel: Channel) -> Command:
            if request.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
                made.append(name)
            if request.code != RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                return request.reply()
            if name == OTHER and busy:
                return request.reply(ResponseCode.SYSTEM_BUSY)
            has = {"fresh": SubscriptionGroupConfig(group_name="fresh")} if name in made else {}
            return request.reply(
                body=SubscriptionGroupWrapper(subscription_group_table=has).encode()
            )

        return answer

    async def main() -> None:
        nonlocal busy
        async with (
            scripted({int(code): at("broker-c") for code in RequestCode}) as third,
            beside(at(OTHER), tmp_path) as (one, peer),
        ):
            enodes, groups = one.snode.enodes, one.snode.groups
            one.pretend("broker-c", int(third.split(":")[1]))
            await enodes.refresh()
            await beat(peer, "c1", "fresh")
            await until(lambda: "broker-c" in groups._done.get("fresh", {}))
            all_of_them = enodes.masters
            enodes._take({OTHER: all_of_them[OTHER]})
            await until(lambda: "broker-c" not in groups._done["fresh"])
            enodes._take(all_of_them)
            await until(lambda: "broker-c" in groups._done["fresh"])
            busy = False
            await until(lambda: OTHER in groups._done["fresh"])
        assert made == ["broker-c", OTHER]

    asyncio.run(main())


def test_a_retry_topic_that_name_servers_do_not_know_yet_stays_unchanged(tmp_path: Path) -> None:
    """At a broker without the snode dialect, where creating it would change its queues."""
    asked: list[int] = []

    def answer(request: Command, channel: Channel) -> Command:
        asked.append(request.code)
        table = {"g": SubscriptionGroupConfig(group_name="g")}
        body = SubscriptionGroupWrapper(subscription_group_table=table).encode()
        is_list = request.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return request.reply(body=body if is_list else b"")

    async def main() -> None:
        async with beside(answer, tmp_path) as (one, peer):
            await beat(peer, "c1", "g")
            await until(lambda: one.snode.groups._done.get("g", {}).get(OTHER))
        assert RequestCode.GET_TOPIC_STATS_INFO in asked
        assert RequestCode.UPDATE_AND_CREATE_TOPIC not in asked

    asyncio.run(main())
