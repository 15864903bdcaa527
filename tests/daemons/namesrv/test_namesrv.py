"""A name server in this process, asked over real sockets."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.properties import read_properties
from mq.daemons.registration_body import body_crc32, compress
from mq.daemons.registration_order import Kind, RegistrationOrder
from mq.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    AddWritePermOfBrokerRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from mq.protocol.headers.controller import BrokerHeartbeatRequestHeader
from mq.protocol.headers.kv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from mq.protocol.headers.route import GetRouteInfoRequestHeader
from mq.protocol.headers.topic import (
    DeleteTopicFromNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
)
from tests.daemons.peer import PATIENCE, Peer

Script = Callable[[NameServer, Peer], Awaitable[None]]


def serve(tmp_path: Path, script: Script, **settings: str) -> None:
    """Run a script against a name server on a free port."""

    async def main() -> None:
        overrides = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kvConfig.json")}
        path = tmp_path / "namesrv.conf"
        if not path.exists():
            path.write_text("# mine\n")
        loaded = NamesrvSettings.load(path, overrides | settings)
        async with NameServer(loaded) as server, Peer(server.port) as peer:
            await script(server, peer)

    asyncio.run(main())


def wrapper(
    *topics: TopicConfig, counter: int = 1, state: int | None = None
) -> TopicConfigAndMappingSerializeWrapper:
    return TopicConfigAndMappingSerializeWrapper(
        topic_config_table={t.topic_name or "": t for t in topics},
        data_version=DataVersion(timestamp=1000, counter=counter, state_version=state),
    )


def topic(name: str, queues: int = 4, perm: int = 6, sys_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=sys_flag,
    )


def header(
    name: str = "broker-a",
    address: str = "10.0.0.1:10911",
    broker_id: int = 0,
    cluster: str = "DefaultCluster",
    **more: int | bool,
) -> RegisterBrokerRequestHeader:
    return RegisterBrokerRequestHeader(
        broker_name=name,
        broker_addr=address,
        cluster_name=cluster,
        ha_server_addr="10.0.0.1:10912",
        broker_id=broker_id,
        **more,  # type: ignore[arg-type]
    )


async def register(
    peer: Peer,
    *topics: TopicConfig,
    told: RegisterBrokerRequestHeader | None = None,
    counter: int = 1,
    filter_servers: list[str] | None = None,
) -> Command:
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=wrapper(*topics, counter=counter),
        filter_server_list=filter_servers or [],
    )
    reply = await peer.ask(RequestCode.REGISTER_BROKER, told or header(), body.encode())
    assert reply.code == ResponseCode.SUCCESS, reply
    return reply


async def route(peer: Peer, name: str) -> TopicRouteData | None:
    reply = await peer.ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=name)
    )
    if reply.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert reply.code == ResponseCode.SUCCESS, reply
    return TopicRouteData.decode(reply.body)


async def topics(
    peer: Peer, code: int = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
) -> set[str]:
    return TopicList.decode((await peer.ask(code)).body).topic_list


async def clusters(peer: Peer) -> ClusterInfo:
    return ClusterInfo.decode((await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)


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


def test_an_unknown_topic_is_answered_in_the_words_of_java(tmp_path: Path) -> None:
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
def test_a_route_is_standard_json_for_clients_that_want_it(
    tmp_path: Path, version: int, fields: dict[str, str], key: bytes
) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T"))
        reply = await peer.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T", **fields}, version=version
        )
        assert b'"brokerAddrs":' + key in bytes(reply.body)

    serve(tmp_path, script)


def test_a_slave_is_told_its_master(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        reply = await register(peer, told=header(address="10.0.0.2:10911", broker_id=1))
        assert reply.fields == {}
        await register(peer, topic("T"))
        reply = await register(peer, topic("S"), told=header(address="10.0.0.2:10911", broker_id=1))
        assert reply.fields == {
            "masterAddr": "10.0.0.1:10911",
            "haServerAddr": "10.0.0.1:10912",
        }
        assert await topics(peer) == {"T"}  # topics come from masters only
        addresses = (await clusters(peer)).broker_addr_table["broker-a"].broker_addrs
        assert addresses == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}

    serve(tmp_path, script)


def test_a_slave_that_became_master_stands_at_one_id_only(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, told=header(address="10.0.0.2:10911", broker_id=1))
        await register(peer, told=header(address="10.0.0.2:10911", broker_id=0))
        assert (await clusters(peer)).broker_addr_table["broker-a"].broker_addrs == {
            0: "10.0.0.2:10911"
        }

    serve(tmp_path, script)


def test_the_id_of_a_master_is_left_to_the_one_that_was_elected_later(tmp_path: Path) -> None:
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
        assert "of a later election: 4, and this one is of 3" in (refused.remark or "")
        await told(old, 5)
        assert master() == old
        server.routes.unregister("DefaultCluster", "broker-a", old, 0)
        await told(new, 1)  # nobody is there to compare with
        assert master() == new

    serve(tmp_path, script)


def test_topics_are_taken_again_only_with_another_data_version(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T", 4), counter=1)
        await register(peer, topic("T", 8), counter=1)
        found = await route(peer, "T")
        assert found is not None and found.queue_datas[0].write_queue_nums == 4
        await register(peer, topic("T", 8), counter=2)
        found = await route(peer, "T")
        assert found is not None and found.queue_datas[0].write_queue_nums == 8

    serve(tmp_path, script)


@pytest.mark.parametrize(("setting", "left"), [("false", {"T", "U", "V"}), ("true", {"T", "V"})])
def test_a_topic_deleted_in_the_broker_stays_unless_told_otherwise(
    tmp_path: Path, setting: str, left: set[str]
) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T"), topic("U"), topic("V"), counter=1)
        await register(peer, topic("T"), counter=2)  # one topic alone is news of that topic
        assert await topics(peer) == {"T", "U", "V"}
        await register(peer, topic("T"), topic("V"), counter=3)
        assert await topics(peer) == left

    serve(tmp_path, script, deleteTopicWithBrokerRegistration=setting)


def test_a_compressed_registration_is_read(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        body = compress(
            RegisterBrokerBody(
                topic_config_serialize_wrapper=wrapper(topic("T", 3), topic("U", 5)),
                filter_server_list=["10.0.0.1:3000"],
            )
        )
        told = header(compressed=True, body_crc32=body_crc32(body))
        reply = await peer.ask(RequestCode.REGISTER_BROKER, told, body)
        assert reply.code == ResponseCode.SUCCESS
        found = await route(peer, "T")
        assert found is not None and found.queue_datas[0].read_queue_nums == 3
        assert found.filter_server_table == {"10.0.0.1:10911": ["10.0.0.1:3000"]}

    serve(tmp_path, script)


def test_a_compressed_registration_of_5x_brings_its_mappings(tmp_path: Path) -> None:
    def part(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    body = zlib.compress(
        part(b'{"counter":7,"stateVersion":0,"timestamp":1000}')
        + b"\x00\x00\x00\x01"
        + part(b'T 8 8 6 SINGLE_TAG {"message.type":"NORMAL"}')
        + part(b"[]")
        + b"\x00\x00\x00\x01"
        + part(b'{"bname":"broker-a","currIdMap":{0:1},"epoch":3,"topic":"T","totalQueues":8}')
    )

    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(
            RequestCode.REGISTER_BROKER, header(compressed=True), body, version=479
        )
        assert reply.code == ResponseCode.SUCCESS, reply
        found = await route(peer, "T")
        assert found is not None
        assert found.topic_queue_mapping_by_broker == {
            "broker-a": TopicQueueMappingInfo(
                topic="T", bname="broker-a", total_queues=8, epoch=3, curr_id_map={0: 1}
            )
        }

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"not zlib", "does not inflate"),
        (zlib.compress(b"\x00\x00\x00\x02{}")[:-5], "cut short"),
        (zlib.compress(b"\x00\x00\x00\x63{}"), "is no length"),
        (zlib.compress(b"\xff\xff\xff\xff"), "-1 is no length"),
        (zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x03T 8"), "is not a topic"),
        (None, "inflates to over"),
    ],
)
def test_a_damaged_compressed_registration_is_refused(
    tmp_path: Path, body: bytes | None, reason: str
) -> None:
    if body is None:  # half a second of a core, which each process took that collects tests
        body = zlib.compress(bytes(80 * 1024 * 1024))

    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.REGISTER_BROKER, header(compressed=True), body)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reason in (reply.remark or "")
        assert await topics(peer) == set()

    serve(tmp_path, script)


def test_a_registration_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.REGISTER_BROKER, header(body_crc32=7), b"{}")
        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")

    serve(tmp_path, script)


def test_a_registration_of_a_broker_before_3_0_11_is_the_topics_alone(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, filter_servers=["10.0.0.1:3000"])
        reply = await peer.ask(
            RequestCode.REGISTER_BROKER,
            header(),
            wrapper(topic("T"), counter=2).encode(),
            version=28,
        )
        assert reply.code == ResponseCode.SUCCESS
        found = await route(peer, "T")
        assert found is not None
        assert found.filter_server_table == {"10.0.0.1:10911": ["10.0.0.1:3000"]}

    serve(tmp_path, script)


def test_a_registration_without_a_body_makes_the_broker_known(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await peer.ask(RequestCode.REGISTER_BROKER, header())
        assert set((await clusters(peer)).broker_addr_table) == {"broker-a"}

    serve(tmp_path, script)


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
    """Set when the server has dealt with the close of a peer's connection."""
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


def test_a_late_farewell_of_an_old_address_leaves_the_new_broker(tmp_path: Path) -> None:
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


def test_what_an_old_connection_brings_behind_a_new_one_changes_nothing(tmp_path: Path) -> None:
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
        assert late.remark == "registration 2 comes behind 3"
        unfounded = await told(5, Kind.INCREMENT, "C", base=4)
        assert unfounded.code == ResponseCode.SYSTEM_ERROR
        assert "register as a whole" in (unfounded.remark or "")
        assert await topics(peer) == {"A", "B"}
        assert (await told(6, Kind.INCREMENT, "C", base=3)).code == ResponseCode.SUCCESS
        assert await topics(peer) == {"A", "B", "C"}
        bad = header().encode() | {"registrationStart": "s", "registrationKind": "all"}
        malformed = await peer.ask(RequestCode.REGISTER_BROKER, bad)
        assert malformed.code == ResponseCode.SYSTEM_ERROR
        assert "registration fields are malformed" in (malformed.remark or "")

    serve(tmp_path, script)


def test_the_data_version_says_whether_to_register_again(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        asked = QueryDataVersionRequestHeader(
            broker_name="broker-a",
            broker_addr="10.0.0.1:10911",
            cluster_name="DefaultCluster",
            broker_id=0,
        )
        version = DataVersion(timestamp=1000, counter=1)
        reply = await peer.ask(RequestCode.QUERY_DATA_VERSION, asked, version.encode())
        assert (reply.fields, bytes(reply.body)) == ({"changed": "true"}, b"")
        await register(peer, topic("T"))
        reply = await peer.ask(RequestCode.QUERY_DATA_VERSION, asked, version.encode())
        assert reply.fields == {"changed": "false"}
        assert orjson.loads(reply.body) == {"timestamp": 1000, "counter": 1}
        version.counter = 2
        reply = await peer.ask(RequestCode.QUERY_DATA_VERSION, asked, version.encode())
        assert reply.fields == {"changed": "true"}

    serve(tmp_path, script)


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


def test_topics_are_listed_by_cluster_system_and_unit(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        plain, unit, sub, both = (topic(f"T{flag}", sys_flag=flag) for flag in range(4))
        await register(peer, plain, unit, sub, both)
        await register(peer, topic("O"), told=header("broker-b", "10.0.0.2:10911", 0, "Other"))
        reply = await peer.ask(
            RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader(cluster="Other")
        )
        assert TopicList.decode(reply.body).topic_list == {"O"}
        reply = await peer.ask(
            RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader(cluster="None")
        )
        assert TopicList.decode(reply.body).topic_list == set()
        reply = await peer.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        assert TopicList.decode(reply.body) == TopicList(
            topic_list={"DefaultCluster", "broker-a", "Other", "broker-b"},
            broker_addr="10.0.0.1:10911",
        )
        assert await topics(peer, RequestCode.GET_UNIT_TOPIC_LIST) == {"T1", "T3"}
        assert await topics(peer, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == {"T2", "T3"}
        assert await topics(peer, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {"T2"}

    serve(tmp_path, script)


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T"), topic("U"))
        await register(peer, topic("T"), told=header("broker-b", "10.0.0.2:10911", 0, "Other"))
        await peer.ask(
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            DeleteTopicFromNamesrvRequestHeader(topic="T", cluster_name="Other"),
        )
        found = await route(peer, "T")
        assert found is not None and [q.broker_name for q in found.queue_datas] == ["broker-a"]
        await peer.ask(
            RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequestHeader(topic="T")
        )
        assert await topics(peer) == {"U"}

    serve(tmp_path, script)


def test_a_topic_told_alone_by_a_5x_broker_is_taken_in(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T"))
        told = TopicRouteData(
            queue_datas=[
                QueueData(broker_name="broker-a", write_queue_nums=2, read_queue_nums=2, perm=6),
                QueueData(broker_name="stranger", write_queue_nums=2, read_queue_nums=2, perm=6),
            ]
        )
        await peer.ask(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RegisterTopicRequestHeader(topic="N"),
            told.encode(),
        )
        found = await route(peer, "N")
        assert found is not None and [q.broker_name for q in found.queue_datas] == ["broker-a"]

    serve(tmp_path, script)


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


def test_kv_values_are_kept_over_a_restart(tmp_path: Path) -> None:
    async def write(server: NameServer, peer: Peer) -> None:
        for key, value in (("a", "1"), ("b", "2"), ("c", "3")):
            reply = await peer.ask(
                RequestCode.PUT_KV_CONFIG,
                PutKVConfigRequestHeader(namespace="N", key=key, value=value),
            )
            assert reply.code == ResponseCode.SUCCESS
        await peer.ask(
            RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace="N", key="b")
        )

    async def read(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(
            RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="N", key="a")
        )
        assert reply.fields == {"value": "1"}
        reply = await peer.ask(
            RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="N", key="b")
        )
        assert (reply.code, reply.remark) == (
            ResponseCode.QUERY_NOT_FOUND,
            "No config item, Namespace: N Key: b",
        )
        reply = await peer.ask(
            RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader(namespace="N")
        )
        assert KVTable.decode(reply.body).table == {"a": "1", "c": "3"}
        reply = await peer.ask(
            RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader(namespace="M")
        )
        assert (reply.code, reply.remark) == (
            ResponseCode.QUERY_NOT_FOUND,
            "No config item, Namespace: M",
        )

    serve(tmp_path, write)
    serve(tmp_path, read)
    (tmp_path / "kvConfig.json").write_bytes(b'{"configTable":{"N"')  # torn: .bak is read
    serve(tmp_path, lambda server, peer: _has_values(server, peer))


async def _has_values(server: NameServer, peer: Peer) -> None:
    reply = await peer.ask(
        RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="N", key="a")
    )
    assert reply.fields == {"value": "1"}


def test_a_kv_value_that_cannot_be_saved_is_refused_and_not_kept(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json.tmp").mkdir()

    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(
            RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace="N", key="a", value="1")
        )
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark == "the KV configuration cannot be saved: Is a directory"
        reply = await peer.ask(
            RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="N", key="a")
        )
        assert reply.code == ResponseCode.QUERY_NOT_FOUND

    serve(tmp_path, script)


@pytest.mark.parametrize(("enabled", "conf"), [("false", None), ("true", "broker-a:4")])
def test_ordered_topics_reach_brokers_and_routes(
    tmp_path: Path, enabled: str, conf: str | None
) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        assert bytes((await register(peer, topic("T"))).body) == b""
        await peer.ask(
            RequestCode.PUT_KV_CONFIG,
            PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4"),
        )
        reply = await register(peer, topic("T"))
        assert KVTable.decode(reply.body).table == {"T": "broker-a:4"}
        found = await route(peer, "T")
        assert found is not None and found.order_topic_conf == conf

    serve(tmp_path, script, orderMessageEnable=enabled)


def test_settings_are_shown_and_changed_by_the_allow_list(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
        assert reply.code == ResponseCode.SUCCESS
        reply = await peer.ask(RequestCode.GET_NAMESRV_CONFIG)
        shown = read_properties(bytes(reply.body).decode())
        assert shown["orderMessageEnable"] == "true"
        assert shown["kvConfigPath"] == str(tmp_path / "kvConfig.json")
        assert (tmp_path / "namesrv.conf").read_text() == "# mine\norderMessageEnable=true\n"
        for body, code, remark in (
            (b"kvConfigPath=/tmp/x", ResponseCode.NO_PERMISSION, "kvConfigPath cannot be changed"),
            (b"listenPort=1", ResponseCode.NO_PERMISSION, "listenPort cannot be changed"),
            (b"nonsense=1", ResponseCode.SYSTEM_ERROR, "nonsense is not a setting"),
            (b"brokerExpiredTimeout=0", ResponseCode.SYSTEM_ERROR, "must be at least 1"),
            (b"orderMessageEnable=\xff", ResponseCode.SYSTEM_ERROR, "utf-8"),
            (b"a=b\n" * 70_000, ResponseCode.SYSTEM_ERROR, "280000 bytes, over 262144"),
        ):
            reply = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
            assert reply.code == code
            assert remark in (reply.remark or "")

    serve(tmp_path, script)


def test_an_unknown_code_and_a_bad_header_are_answered_and_the_server_goes_on(
    tmp_path: Path,
) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(99999)
        assert (reply.code, reply.remark) == (
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            "request type 99999 not supported",
        )
        reply = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "topic is missing" in (reply.remark or "")
        reply = await peer.ask(RequestCode.REGISTER_BROKER, header(), b"[")
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert await topics(peer) == set()

    serve(tmp_path, script)


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        settings = NamesrvSettings.load(
            None,
            {"listenPort": str(server.port), "kvConfigPath": str(tmp_path / "other.json")},
        )
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.port}"):
            async with NameServer(settings):
                pass

    serve(tmp_path, script)
