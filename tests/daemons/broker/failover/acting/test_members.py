"""How a broker of a replica set registers at name servers, and learns about the others and its
master.
"""

import asyncio
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.failover.acting.members import ask_for_members
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher, Handler, Refused
from mq.daemons.listener import Listener
from mq.protocol.bodies import BrokerData, TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import ExchangeHAInfoRequestHeader
from mq.protocol.headers.route import GetRouteInfoRequestHeader
from tests.daemons.broker.acl.accounts import home
from tests.daemons.broker.acl.guarded import ACCOUNTS, NOTHING, Account, SigningPeer
from tests.daemons.broker.failover.acting.sets import (
    SET,
    TOPIC,
    acts,
    acts_no_more,
    cluster,
    is_copied,
    sees,
    send,
)
from tests.daemons.namesrv.servers import header, register
from tests.daemons.peer import Peer
from tests.waiting import until


def test_an_acting_slave_registers_its_topics_and_sends_heartbeats(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave() as slave:
            await brokers.shows(slave, 1)
            tables = brokers.names.routes
            assert tables.brokers[SET].enable_acting_master
            assert SET in tables.topics  # the topic of its name
            live = tables.live[slave.address]
            assert live.timeout == 10.0
            first = live.last_seen
            await until(lambda: live.last_seen > first)

    asyncio.run(script())


def test_clients_see_the_acting_slave_in_place_of_the_master(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave() as slave:
            async with brokers.master() as master:
                await send(master, b"first")
                await is_copied(slave, master)
                await sees(slave, master)
            await acts(slave)
            route = brokers.names.routes.route(TOPIC)
            assert route is not None
            assert [one.broker_addrs for one in route.broker_datas] == [{0: slave.address}]
            assert [one.perm for one in route.queue_datas] == [4]
            async with brokers.master() as master:
                await until(lambda: slave.master_addresses.address == master.address)
                await until(lambda: slave.replication.slave.connection is not None)  # type: ignore[union-attr]

    asyncio.run(script())


MEMBERS = {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


@pytest.mark.parametrize("knows", [True, False])
def test_a_name_server_of_4_9_is_asked_for_the_route_of_the_members(knows: bool) -> None:
    def refuse(command: Command, channel: Channel) -> Command:
        raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 901 not supported")

    def route(command: Command, channel: Channel) -> Command:
        header = GetRouteInfoRequestHeader.decode(command.fields)
        assert header.topic == "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
        if not knows:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, "no topic route info in name server")
        data = BrokerData(cluster="C", broker_name=SET, broker_addrs=MEMBERS)
        return command.reply(body=TopicRouteData(broker_datas=[data]).encode())

    async def script() -> None:
        handlers: dict[int, Handler] = {
            RequestCode.GET_BROKER_MEMBER_GROUP: refuse,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: route,
        }
        async with Listener(Dispatcher(handlers), "127.0.0.1", 0) as old:
            address = f"127.0.0.1:{old.port}"
            async with Session(address) as session:
                found = await ask_for_members(session, address, "C", SET)
        assert found == (MEMBERS if knows else {})

    asyncio.run(script())


async def announce(port: int, host: str, account: Account | None = None) -> None:
    told = ExchangeHAInfoRequestHeader(
        master_address=f"{host}:1", master_ha_address=f"{host}:2", master_flush_offset=0
    )
    async with SigningPeer(port, account) as peer:
        reply = await peer.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, told)
    assert (reply.code, reply.fields) == (ResponseCode.SUCCESS, {})


def test_a_slave_makes_way_for_a_starting_master_and_follows_it(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave() as slave:
            await acts(slave)
            await announce(slave.port, "127.0.0.1")
            await acts_no_more(slave)
            assert slave.master_addresses.address == "127.0.0.1:1"
            assert slave.master_addresses.ha_address == "127.0.0.1:2"

    asyncio.run(script())


def test_an_announcement_of_a_master_elsewhere_is_ignored(tmp_path: Path) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave() as slave:
            await acts(slave)
            await announce(slave.port, "10.0.0.1")
            assert slave.acting.is_acting
            assert slave.master_addresses.address == ""

    asyncio.run(script())


def test_a_slave_that_may_not_act_ignores_announcements(tmp_path: Path) -> None:
    async def script() -> None:
        plain = {"enableSlaveActingMaster": "false"}
        async with cluster(tmp_path) as brokers, brokers.slave(1, **plain) as slave:
            await announce(slave.port, "127.0.0.1")
            assert slave.master_addresses.address == ""

    asyncio.run(script())


def test_with_access_control_only_a_registered_master_is_followed(tmp_path: Path) -> None:
    guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}

    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave(1, **guarded) as slave:
            await acts(slave)
            await announce(slave.port, "127.0.0.1", NOTHING)
            assert slave.acting.is_acting
            async with Peer(brokers.names.port) as peer:
                await register(peer, told=header(SET, "127.0.0.1:1", enable_acting_master=True))
                await until(lambda: slave.master_addresses.address == "127.0.0.1:1")
            await until(lambda: slave.master_addresses.address == "")
            await acts(slave)
            await announce(slave.port, "127.0.0.1", NOTHING)
            await acts_no_more(slave)
            assert slave.master_addresses.address == "127.0.0.1:1"

    asyncio.run(script())
