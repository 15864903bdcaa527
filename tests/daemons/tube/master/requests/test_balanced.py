"""Consumers that balance their partitions among themselves (requests 20 to 22)."""

from pathlib import Path
from typing import Any

import pytest

from mq.protocol.tube import messages as m
from mq.protocol.tube.codes import Method
from tests.daemons.tube.loops import in_loop
from tests.daemons.tube.master.masters import Peer, running


async def register(peer: Peer, who: str = "c1", **fields: Any) -> Any:
    usual = {"groupName": "group", "hostName": "h", "sourceCount": 2, "nodeId": 0}
    fields = {**usual, "topicList": ["demo"], **fields}
    request = m.RegisterRequestC2MV2(clientId=who, **fields)
    return await peer.ask(Method.CONSUMER_REGISTER_V2_C2M, request)


async def beat(peer: Peer, who: str = "c1", **fields: Any) -> Any:
    request = m.HeartRequestC2MV2(clientId=who, groupName="group", **fields)
    return await peer.ask(Method.CONSUMER_HEARTBEAT_V2_C2M, request)


async def meta(peer: Peer, brokers: int = -2, topics: int = -2) -> Any:
    request = m.GetPartMetaRequestC2M(
        clientId="c1", groupName="group", brokerConfigId=brokers, topicMetaInfoId=topics
    )
    return await peer.ask(Method.CONSUMER_GET_PART_META_C2M, request)


@in_loop
async def test_metadata_comes_when_its_id_is_another(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic(partitions=3, stores=2)
        answer = await register(cluster.peer)
        assert answer.errCode == 200
        assert list(answer.brokerConfigList) == ["1:127.0.0.1:9001"]
        told = await meta(cluster.peer)
        assert list(told.topicMetaInfoList) == ["demo#1:2:3:1"]
        assert list(told.brokerConfigList) == ["1:127.0.0.1:9001"]
        again = await meta(cluster.peer, told.brokerConfigId, told.topicMetaInfoId)
        assert not again.topicMetaInfoList
        assert not again.brokerConfigList
        await cluster.changed("admin_set_broker_read_or_write", brokerId=1, acceptSubscribe="false")
        await cluster.serve()
        cluster.round()
        other = await meta(cluster.peer, told.brokerConfigId, told.topicMetaInfoId)
        assert list(other.topicMetaInfoList) == ["demo#1:2:3:0"]


@in_loop
async def test_no_round_gives_such_a_group_anything(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await register(cluster.peer)
        cluster.round()
        group = cluster.core.groups.get("group")
        assert group is not None
        assert list(group.events.pending()) == []


@in_loop
async def test_what_a_member_has_taken_is_shown(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await register(cluster.peer)
        report = m.ClientSubRepInfo(
            brokerConfigId=-2, topicMetaInfoId=-2, reportSubInfo=True, partSubInfo=["demo#1:0,1:2"]
        )
        assert (await beat(cluster.peer, subRepInfo=report)).errCode == 200
        detail = await cluster.web("admin_query_consume_group_detail", groupName="group")
        assert [part["partId"] for part in detail["data"][0]["parInfo"]] == [0, 2]
        assert detail["isBandConsume"] == "client-reb"


@pytest.mark.parametrize(
    ("other", "code"),
    [({"sourceCount": 3}, 429), ({"nodeId": 0}, 430), ({"nodeId": 2}, 400), ({"nodeId": -1}, 400)],
)
@in_loop
async def test_members_have_to_agree(tmp_path: Path, other: dict[str, Any], code: int) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        assert (await register(cluster.peer)).errCode == 200
        assert (await register(cluster.peer, "c2", **{"nodeId": 1, **other})).errCode == code
        assert (await register(cluster.peer, "c2", nodeId=1)).errCode == 200
        assert (await cluster.peer.consume("c3")).errCode == 424


@in_loop
async def test_who_is_not_known_has_to_register(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        assert (await beat(cluster.peer)).errCode == 411
        assert (await meta(cluster.peer)).errCode == 411
        await register(cluster.peer)
        assert (await beat(cluster.peer, "c2")).errCode == 411


@in_loop
async def test_orders_of_administrators_come_with_heartbeats(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic()
        await register(cluster.peer)
        await cluster.changed("admin_set_client_balance_group_consume_from_max", groupName="group")
        tasks = (await beat(cluster.peer)).opsTaskInfo
        assert tasks.csmFrmMaxOffsetCtrlId > 0
        known = m.OpsTaskInfo(csmFrmMaxOffsetCtrlId=tasks.csmFrmMaxOffsetCtrlId)
        again = (await beat(cluster.peer, opsTaskInfo=known)).opsTaskInfo
        assert not again.HasField("csmFrmMaxOffsetCtrlId")


@in_loop
async def test_a_topic_that_is_gone_is_told_of_once(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.with_topic("demo")
        await cluster.with_topic("other")
        await register(cluster.peer, topicList=["demo", "other"])
        told = await meta(cluster.peer)
        assert len(told.topicMetaInfoList) == 2
        await cluster.core.catalog.change(lambda: {("topic", "1-other"): None})
        cluster.round()
        once = await meta(cluster.peer, topics=told.topicMetaInfoId)
        assert [text.partition("#")[0] for text in once.topicMetaInfoList] == ["demo"]
        cluster.round()
        assert not (await meta(cluster.peer, topics=once.topicMetaInfoId)).topicMetaInfoList
