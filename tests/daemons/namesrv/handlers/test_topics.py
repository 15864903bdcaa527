"""Topics: listed, deleted, registered one at a time."""

from pathlib import Path

import pytest

from mq.daemons.namesrv.app import NameServer
from mq.protocol.bodies import (
    QueueData,
    TopicList,
    TopicRouteData,
)
from mq.protocol.codes import RequestCode
from mq.protocol.headers.topic import (
    DeleteTopicFromNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
)
from tests import answered
from tests.daemons.namesrv.servers import header, register, route, serve, topic, topics
from tests.daemons.peer import Peer


@pytest.mark.parametrize(("setting", "left"), [("false", {"T", "U", "V"}), ("true", {"T", "V"})])
def test_a_topic_deleted_at_the_broker_stays_by_default(
    tmp_path: Path, setting: str, left: set[str]
) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        await register(peer, topic("T"), topic("U"), topic("V"), counter=1)
        await register(peer, topic("T"), counter=2)  # one topic alone says nothing about others
        assert await topics(peer) == {"T", "U", "V"}
        await register(peer, topic("T"), topic("V"), counter=3)
        assert await topics(peer) == left

    serve(tmp_path, script, deleteTopicWithBrokerRegistration=setting)


@answered.by_name_server(
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
)
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


@answered.by_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV)
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


@answered.by_name_server(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
def test_a_topic_registered_alone_by_a_5x_broker_is_added(tmp_path: Path) -> None:
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
