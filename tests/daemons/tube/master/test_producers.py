"""Producers at a master: brokers by a checksum, topics with heartbeats."""

from pathlib import Path
from typing import Any

import pytest

from mq.daemons.tube.master import core
from mq.daemons.tube.master.groups import Refused
from mq.protocol.tube import messages as m
from mq.protocol.tube.codes import Method
from tests.daemons.tube.loops import in_loop
from tests.daemons.tube.master.masters import Peer, running


async def register(peer: Peer, **fields: Any) -> Any:
    fields = {"clientId": "p1", "hostName": "h", "brokerCheckSum": -1, **fields}
    return await peer.ask(Method.PRODUCER_REGISTER_P2M, m.RegisterRequestP2M(**fields))


async def beat(peer: Peer, **fields: Any) -> Any:
    fields = {"clientId": "p1", "hostName": "h", "brokerCheckSum": -1, **fields}
    return await peer.ask(Method.PRODUCER_HEARTBEAT_P2M, m.HeartRequestP2M(**fields))


@in_loop
async def test_a_producer_is_told_of_brokers_and_then_of_topics(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=3, stores=2, brokers=2)
        answer = await register(cluster.peer)
        assert answer.success
        assert list(answer.brokerInfos) == ["1:127.0.0.1:9001", "2:127.0.0.1:9002"]
        assert answer.appdConfig.maxMsgSize == 1 << 20
        told = await beat(cluster.peer, topicList=["demo", "other"])
        assert list(told.topicInfos) == ["demo#1:3:2,2:3:2#1048576"]
        assert list(told.brokerInfos) == list(answer.brokerInfos)
        again = await beat(
            cluster.peer, topicList=["demo"], brokerCheckSum=told.brokerCheckSum,
            appdConfig=m.ApprovedClientConfig(configId=told.appdConfig.configId),
        )  # fmt: skip
        assert list(again.brokerInfos) == []
        assert list(again.topicInfos) == list(told.topicInfos)
        assert not again.appdConfig.HasField("maxMsgSize")


@in_loop
async def test_the_list_of_brokers_has_another_checksum_when_it_is_another(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        before = (await register(cluster.peer)).brokerCheckSum
        ip: dict[str, object] = {"brokerId": 7, "brokerIp": "10.0.0.7"}
        await cluster.changed("admin_add_broker_configure", **ip)
        answer = await beat(cluster.peer, brokerCheckSum=before)
        assert answer.brokerCheckSum > before
        assert list(answer.brokerInfos) == ["7:10.0.0.7: "]  # of the usual port


@in_loop
async def test_a_topic_that_takes_no_messages_is_not_told(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await register(cluster.peer)
        assert list((await beat(cluster.peer, topicList=["demo"])).topicInfos)
        await cluster.changed("admin_set_broker_read_or_write", brokerId=1, acceptPublish="false")
        await cluster.serve()
        assert not list((await beat(cluster.peer, topicList=["demo"])).topicInfos)
        rows = (await cluster.web("admin_query_broker_configure"))["data"]
        assert rows[0]["manageStatus"] == "only-read"


@in_loop
async def test_who_is_silent_or_closes_has_to_register_again(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        assert (await beat(cluster.peer)).errCode == 411
        await register(cluster.peer)
        assert (await beat(cluster.peer, topicList=["demo"])).success
        assert cluster.core.producers.of("demo") == ["p1"]
        close = m.CloseRequestP2M(clientId="p1")
        assert (await cluster.peer.ask(Method.PRODUCER_CLOSE_P2M, close)).success
        assert cluster.core.producers.of("demo") == []
        assert (await beat(cluster.peer)).errCode == 411
        await register(cluster.peer)
        now = cluster.core.now
        cluster.core.now = lambda: now() + 31  # type: ignore[method-assign]
        cluster.core.expire()
        assert len(cluster.core.producers) == 0
        assert (await beat(cluster.peer)).errCode == 411


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"clientId": ""}, "clientId"),
        ({"hostName": "x" * 257}, "hostName"),
        ({"topicList": ["__offset_history__"]}, "System Topic"),
        ({"topicList": ["1x"]}, "topicName"),
        ({"topicList": [f"topic{number}" for number in range(1025)]}, "1025"),
    ],
)
@in_loop
async def test_nonsense_is_refused(tmp_path: Path, fields: dict[str, Any], text: str) -> None:
    async with running(tmp_path) as cluster:
        answer = await register(cluster.peer, **fields)
        assert (answer.success, answer.errCode, answer.brokerCheckSum) == (False, 400, -1)
        assert text in answer.errMsg


@in_loop
async def test_there_are_so_many_producers_at_most(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        cluster.core.producers.most = 1
        assert (await register(cluster.peer)).success
        assert (await register(cluster.peer)).success
        assert (await register(cluster.peer, clientId="p2")).errCode == 503


def test_producers_name_so_many_topics_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MOST_TOPICS", 3)
    kept = core.Producers()
    kept.book("p1", frozenset({"a", "b"}))
    with pytest.raises(Refused):
        kept.book("p2", frozenset({"a", "b"}))
    kept.book("p1", frozenset({"a"}))
    kept.book("p2", frozenset({"a", "b"}))
    kept.remove("p2")
    kept.book("p3", frozenset({"b", "c"}))
    assert kept.of("b") == ["p3"]
