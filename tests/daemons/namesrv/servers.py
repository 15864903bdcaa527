"""Name servers in this process for tests, and the requests of brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.bodies import (
    ClusterInfo,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    RegisterBrokerRequestHeader,
)
from mq.protocol.headers.route import GetRouteInfoRequestHeader
from tests.daemons.peer import Peer

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
