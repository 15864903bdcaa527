"""Routes: which brokers have a topic, and which members of a broker's set they contain."""

from pathlib import Path

import pytest

from mq.daemons.namesrv.app import NameServer
from mq.daemons.registration_order import Kind, RegistrationOrder
from mq.protocol.bodies import (
    BrokerData,
    GetBrokerMemberGroupResponseBody,
    QueueData,
    RegisterBrokerBody,
    TopicRouteData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    AddWritePermOfBrokerRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
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
from tests.daemons.peer import Peer


@answered.by_name_server(RequestCode.REGISTER_BROKER, RequestCode.GET_ROUTEINFO_BY_TOPIC)
def test_a_registered_topic_has_a_route(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T", 4), topic("U", 8), filter_servers=["10.0.0.1:3000"])
        assert await route(peer, "T") == TopicRouteData(
            queue_datas=[
                QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=6)
            ],
            broker_datas=[
                BrokerData(
                    cluster="DefaultCluster",
                    broker_name="broker-a",
                    broker_addrs={0: "10.0.0.1:10911"},
                )
            ],
            filter_server_table={"10.0.0.1:10911": ["10.0.0.1:3000"]},
        )
        assert await topics(peer) == {"T", "U"}

    serve(tmp_path, script)


def test_an_unknown_topic_gets_the_remark_of_java(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"})
        assert reply.code == ResponseCode.TOPIC_NOT_EXIST
        assert reply.remark == (
            "No topic route info in name server for the topic: none\n"
            "See http://rocketmq.apache.org/docs/faq/ for further details."
        )

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("version", "fields", "key"),
    [
        (400, {}, b"{0:"),
        (400, {"acceptStandardJsonOnly": "false"}, b"{0:"),
        (400, {"acceptStandardJsonOnly": "true"}, b'{"0":'),
        (401, {}, b'{"0":'),  # V4_9_4
    ],
)
def test_a_route_is_standard_json_on_request(
    tmp_path: Path, version: int, fields: dict[str, str], key: bytes
) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T"))
        reply = await peer.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T", **fields}, version=version
        )
        assert b'"brokerAddrs":' + key in bytes(reply.body)

    serve(tmp_path, script)


def test_a_slave_gets_its_masters_address(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        reply = await register(peer, told=header(address="10.0.0.2:10911", broker_id=1))
        assert reply.fields == {}
        await register(peer, topic("T"))
        reply = await register(peer, topic("S"), told=header(address="10.0.0.2:10911", broker_id=1))
        assert reply.fields == {
            "masterAddr": "10.0.0.1:10911",
            "haServerAddr": "10.0.0.1:10912",
        }
        assert await topics(peer) == {"T"}  # only masters register topics
        addresses = (await clusters(peer)).broker_addr_table["broker-a"].broker_addrs
        assert addresses == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}

    serve(tmp_path, script)


@answered.by_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
def test_a_slave_that_became_master_has_one_id_only(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, told=header(address="10.0.0.2:10911", broker_id=1))
        await register(peer, told=header(address="10.0.0.2:10911", broker_id=0))
        assert (await clusters(peer)).broker_addr_table["broker-a"].broker_addrs == {
            0: "10.0.0.2:10911"
        }

    serve(tmp_path, script)


def test_the_id_of_a_master_stays_with_the_one_elected_later(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        old, new = "10.0.0.1:10911", "10.0.0.2:10911"

        async def told(address: str, epoch: int, start: str = "") -> Command:
            body = RegisterBrokerBody(
                topic_config_serialize_wrapper=wrapper(topic("T"), topic("U"), state=epoch)
            )
            fields = header(address=address).encode()
            if start:
                fields |= RegistrationOrder(start, 1, Kind.WHOLE, None).encode()
            return await peer.ask(RequestCode.REGISTER_BROKER, fields, body.encode())

        def master() -> str | None:
            return server.routes.brokers["broker-a"].broker_addrs.get(0)

        await told(old, 3)
        await told(new, 4)
        assert master() == new
        behind = await told(old, 3)  # of Java: it knows no refusal
        assert (behind.code, master()) == (ResponseCode.SUCCESS, new)
        assert "masterAddr" not in (behind.fields or {})
        assert old not in server.routes.live
        refused = await told(old, 3, "0123456789abcdef")
        assert (refused.code, master()) == (ResponseCode.SYSTEM_ERROR, new)
        assert "from a later election: 4, this one from 3" in (refused.remark or "")
        await told(old, 5)
        assert master() == old
        server.routes.unregister("DefaultCluster", "broker-a", old, 0)
        await told(new, 1)  # there is nothing to compare with
        assert master() == new

    serve(tmp_path, script)


@answered.by_name_server(RequestCode.GET_BROKER_MEMBER_GROUP)
def test_a_5x_broker_learns_the_members_of_its_group(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer)
        await register(peer, told=header(address="10.0.0.2:10911", broker_id=1))
        for cluster, expected in (
            ("DefaultCluster", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}),
            ("Other", {}),
        ):
            reply = await peer.ask(
                RequestCode.GET_BROKER_MEMBER_GROUP,
                GetBrokerMemberGroupRequestHeader(cluster_name=cluster, broker_name="broker-a"),
            )
            group = GetBrokerMemberGroupResponseBody.decode(reply.body).broker_member_group
            assert group is not None and group.broker_addrs == expected

    serve(tmp_path, script)


@answered.by_name_server(
    RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER
)
def test_write_permission_is_wiped_and_given_back(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T"), topic("U", perm=4))
        reply = await peer.ask(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            WipeWritePermOfBrokerRequestHeader(broker_name="broker-a"),
        )
        assert reply.fields == {"wipeTopicCount": "2"}
        found = await route(peer, "T")
        assert found is not None and found.queue_datas[0].perm == 4
        reply = await peer.ask(
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            AddWritePermOfBrokerRequestHeader(broker_name="broker-a"),
        )
        assert reply.fields == {"addTopicCount": "2"}
        found = await route(peer, "U")
        assert found is not None and found.queue_datas[0].perm == 6
        reply = await peer.ask(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            WipeWritePermOfBrokerRequestHeader(broker_name="nobody"),
        )
        assert reply.fields == {"wipeTopicCount": "0"}

    serve(tmp_path, script)
