"""How long a broker stays in routes: connection, heartbeats, unregistration."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.namesrv.app import NameServer
from mq.daemons.registration_order import Kind, RegistrationOrder
from mq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    QueryDataVersionRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from mq.protocol.headers.controller import BrokerHeartbeatRequestHeader
from tests import answered
from tests.daemons.namesrv.servers import (
    clusters,
    header,
    register,
    route,
    serve,
    topic,
    topics,
    wrapper,
)
from tests.daemons.peer import PATIENCE, Peer


def test_a_broker_whose_connection_closes_leaves_the_routes_at_once(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        other = header("broker-b", "10.0.0.2:10911", cluster="Other")
        await register(peer, topic("T"), topic("B"), told=other)
        async with Peer(server.port) as broker:
            await register(broker, topic("T"), topic("A"))
            assert await topics(peer) == {"T", "A", "B"}
            ended = end_of(server, broker)
        await asyncio.wait_for(ended.wait(), PATIENCE)
        assert await topics(peer) == {"T", "B"}
        assert (await clusters(peer)).cluster_addr_table == {"Other": {"broker-b"}}
        assert await route(peer, "A") is None

    serve(tmp_path, script)


def end_of(server: NameServer, peer: Peer) -> asyncio.Event:
    """Set when the server has handled the close of a peer's connection."""
    ended = asyncio.Event()
    for channel in server.listener.channels:
        if channel.remote == peer.address:
            channel.on_close.append(lambda _: ended.set())
    return ended


def test_a_broker_that_reconnected_survives_the_end_of_its_old_connection(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        async with Peer(server.port) as old:
            await register(old, topic("T"))
            await register(peer, topic("T"))
            ended = end_of(server, old)
        await asyncio.wait_for(ended.wait(), PATIENCE)
        assert await topics(peer) == {"T"}

    serve(tmp_path, script)


def test_a_silent_broker_expires_and_its_connection_is_closed(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        async with Peer(server.port) as broker:
            await register(broker, topic("T"))
            await broker.closed_by_daemon()
        assert await topics(peer) == set()

    serve(tmp_path, script, scanNotActiveBrokerInterval="10", brokerExpiredTimeout="50")


def test_a_5x_broker_may_ask_for_an_earlier_expiry(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, told=header("broker-b", "10.0.0.2:10911"))
        async with Peer(server.port) as broker:
            await register(broker, topic("T"), told=header(heartbeat_timeout_millis=50))
            await broker.closed_by_daemon()
        assert set((await clusters(peer)).broker_addr_table) == {"broker-b"}

    serve(tmp_path, script, scanNotActiveBrokerInterval="10")


@answered.by_name_server(RequestCode.UNREGISTER_BROKER)
def test_an_unregistered_broker_is_gone(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T"))
        await register(peer, told=header(address="10.0.0.2:10911", broker_id=1))
        for address, broker_id, left in (
            ("10.0.0.1:10911", 0, {"T"}),
            ("10.0.0.2:10911", 1, set()),
        ):
            reply = await peer.ask(
                RequestCode.UNREGISTER_BROKER,
                UnRegisterBrokerRequestHeader(
                    broker_name="broker-a",
                    broker_addr=address,
                    cluster_name="DefaultCluster",
                    broker_id=broker_id,
                ),
            )
            assert reply.code == ResponseCode.SUCCESS
            assert await topics(peer) == left
        assert (await clusters(peer)).cluster_addr_table == {}

    serve(tmp_path, script)


def test_a_late_unregistration_of_an_old_address_keeps_the_new_broker(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T"))
        await register(peer, topic("T"), told=header(address="10.0.0.9:10911"), counter=2)
        reply = await peer.ask(
            RequestCode.UNREGISTER_BROKER,
            UnRegisterBrokerRequestHeader(
                broker_name="broker-a",
                broker_addr="10.0.0.1:10911",
                cluster_name="DefaultCluster",
                broker_id=0,
            ),
        )
        assert reply.code == ResponseCode.SUCCESS
        assert server.routes.brokers["broker-a"].broker_addrs == {0: "10.0.0.9:10911"}
        assert await topics(peer) == {"T"}
        assert set(server.routes.live) == {"10.0.0.9:10911"}

    serve(tmp_path, script)


def test_requests_of_an_old_connection_after_a_new_one_change_nothing(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        async def told(number: int, kind: Kind, *named: str, base: int | None = None) -> Command:
            order = RegistrationOrder(
                "s", number, kind, None if base is None else wrapper(counter=base).data_version
            )
            body = RegisterBrokerBody(
                topic_config_serialize_wrapper=wrapper(*map(topic, named), counter=number)
            )
            fields = header().encode() | order.encode()
            return await peer.ask(RequestCode.REGISTER_BROKER, fields, body.encode())

        assert (await told(3, Kind.WHOLE, "A", "B")).code == ResponseCode.SUCCESS
        late = await told(2, Kind.WHOLE, "A")
        assert late.code == ResponseCode.SYSTEM_ERROR
        assert late.remark == "registration 2 arrived after 3"
        unfounded = await told(5, Kind.INCREMENT, "C", base=4)
        assert unfounded.code == ResponseCode.SYSTEM_ERROR
        assert "send a whole registration" in (unfounded.remark or "")
        assert await topics(peer) == {"A", "B"}
        assert (await told(6, Kind.INCREMENT, "C", base=3)).code == ResponseCode.SUCCESS
        assert await topics(peer) == {"A", "B", "C"}
        bad = header().encode() | {"registrationStart": "s", "registrationKind": "all"}
        malformed = await peer.ask(RequestCode.REGISTER_BROKER, bad)
        assert malformed.code == ResponseCode.SYSTEM_ERROR
        assert "registration fields are malformed" in (malformed.remark or "")

    serve(tmp_path, script)


@answered.by_name_server(RequestCode.BROKER_HEARTBEAT)
@pytest.mark.parametrize("way", ["query", "heartbeat"])
def test_a_sign_of_life_without_registration_keeps_a_broker(tmp_path: Path, way: str) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T"))
        live = server.routes.live["10.0.0.1:10911"]
        live.last_seen -= 1000
        identity: dict[str, Any] = {
            "broker_name": "broker-a",
            "broker_addr": "10.0.0.1:10911",
            "cluster_name": "DefaultCluster",
        }
        if way == "query":
            body = DataVersion(timestamp=1000, counter=1).encode()
            await peer.ask(
                RequestCode.QUERY_DATA_VERSION,
                QueryDataVersionRequestHeader(broker_id=0, **identity),
                body,
            )
        else:
            await peer.ask(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader(**identity))
        assert server.routes.expire(120) == []

    serve(tmp_path, script)
