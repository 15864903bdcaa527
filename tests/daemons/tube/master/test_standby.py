"""A set of masters: one is active, others refuse, and a new active one has all acknowledged
changes.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.controller.etcd import Etcd, EtcdError, Txn
from mq.daemons.tube.master.app import Master
from mq.daemons.tube.master.records import Props, TopicDeploy, TopicStatus
from mq.daemons.tube.master.requests.brokers import forget_removed
from mq.daemons.tube.master.storage import MOST_CHANGES
from mq.protocol.tube import messages as m
from mq.protocol.tube.codes import Method
from mq.protocol.tube.errors import RemoteFailure
from tests.daemons.controller.etcd_server import EtcdServer
from tests.daemons.tube.loops import in_loop
from tests.daemons.tube.master.masters import TOKEN, Masters, get, peer_of, settings
from tests.waiting import until


@asynccontextmanager
async def several(
    tmp: Path, etcd: EtcdServer, group: str, count: int = 2
) -> AsyncIterator[list[Masters]]:
    """Masters of a set, the first of which is active."""
    async with AsyncExitStack() as stack:
        found: list[Masters] = []
        for number in range(count):
            more = {"masterGroup": group, "etcdEndpoints": etcd.url, "leaderLeaseSeconds": 2}
            master = Master(settings(tmp / str(number), **more))
            await stack.enter_async_context(master)
            peer = await stack.enter_async_context(peer_of(master))
            found.append(Masters(master, peer))
            await until(lambda: found[0].master.is_active)
        yield found


async def deploy(active: Masters, topics: list[TopicDeploy]) -> None:
    for start in range(0, len(topics), MOST_CHANGES):
        some = {(one.kind, one.key): one for one in topics[start : start + MOST_CHANGES]}
        await active.core.catalog.change(lambda some=some: some)  # type: ignore[misc]


def add_topic(name: str) -> dict[str, Any]:
    return {"topicName": name, "brokerId": 1, "numPartitions": 2}


@in_loop
async def test_a_standby_sends_clients_and_administrators_on(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    async with several(tmp_path, etcd, "sends-on") as (active, standby):
        await active.with_topic()
        standby_leader = standby.master.leadership
        assert standby_leader is not None
        await until(lambda: standby_leader.leader == active.master.address)
        with pytest.raises(RemoteFailure) as refused:
            await standby.peer.consume("c1")
        assert refused.value.name == "StandbyException"
        assert refused.value.text == (
            f"{standby.master.address} is not master now. the connecting client id is c1"
        )
        # Earlier checks have precedence.
        bad = m.RegisterRequestC2M(clientId="", groupName="group", hostName="h")
        answer = await standby.peer.ask(Method.CONSUMER_REGISTER_C2M, bad)
        assert answer.errCode == 400
        asked: dict[str, object] = {"topicName": "demo", "confModAuthToken": TOKEN}
        port = standby.master.web_port
        status, headers, _ = await get(port, "admin_query_topic_info", asked)
        assert status == 302
        assert headers["Location"] == (
            f"http://127.0.0.1:{active.master.web_port}/webapi.htm?method=admin_query_topic_info"
            f"&topicName=demo&confModAuthToken={TOKEN}"
        )
        assert "standby" in standby.master.status_text()


@in_loop
async def test_what_was_answered_the_next_active_one_knows(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    async with several(tmp_path, etcd, "failover") as (active, standby):
        await active.with_topic(partitions=2)
        await active.peer.consume("c1")
        held = (await active.settle("c1"))["c1"]
        await active.changed("admin_add_new_topic_record", **add_topic("last"))
        assert active.master.leadership is not None
        await active.master.__aexit__()
        await until(lambda: standby.master.is_active)
        assert standby.core.catalog.deployed_topics() == {"demo", "last", "__offset_history__"}
        # All nodes are unknown: they register again, with their partitions, and nothing moves.
        assert (await standby.peer.beat("c1")).errCode == 411
        report = [f"c1@group#{one}" for one in sorted(held)]
        assert (await standby.peer.consume("c1", subscribeInfo=report)).success
        await standby.serve()
        assert await standby.settle("c1") == {"c1": held}
        assert standby.core.events_made == 0
        await standby.changed("admin_add_new_topic_record", **add_topic("more"))


@in_loop
async def test_one_that_is_not_active_any_more_changes_nothing(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    async with several(tmp_path, etcd, "fenced") as (old, new):
        await old.with_topic()
        # As after a pause of the whole process: it still considers itself active, wrongly.
        mine = old.master.leadership
        assert mine is not None
        mine._stay = mine._try = asyncio.Event().wait  # type: ignore[assignment, method-assign]
        created = mine._created
        await mine._etcd.revoke(mine._lease)
        await until(lambda: new.master.is_active)
        await new.changed("admin_add_new_topic_record", **add_topic("of_new"))
        mine._created, mine._ready, mine._until = created, True, float("inf")
        assert old.master.is_active
        answer = await old.web("admin_add_new_topic_record", **add_topic("of_old"))
        assert [row["errCode"] for row in answer["data"]] == [511]
        assert not old.master.is_active
        await new.core.catalog.load()
        assert "of_old" not in new.core.catalog.deployed_topics()


@in_loop
async def test_a_write_without_an_answer_is_refused_and_looked_at_again(
    tmp_path: Path, etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with several(tmp_path, etcd, "doubt", 1) as (active,):
        await active.with_topic()
        real = Etcd.change_if

        async def lost(self: Etcd, values: Any, *more: Any) -> Txn:
            await real(self, values, *more)
            raise EtcdError("no answer")

        monkeypatch.setattr(Etcd, "change_if", lost)
        answer = await active.web("admin_add_new_topic_record", **add_topic("lost"))
        monkeypatch.undo()
        assert answer["data"][0]["errCode"] == 501
        await until(lambda: active.core.catalog.is_known)
        assert "lost" in active.core.catalog.deployed_topics()
        await active.changed("admin_add_new_topic_record", **add_topic("next"))


@in_loop
async def test_nobody_is_active_without_etcd(tmp_path: Path) -> None:
    more = {"masterGroup": "alone", "etcdEndpoints": "http://127.0.0.1:1"}
    async with Master(settings(tmp_path, **more)) as master, peer_of(master) as peer:
        with pytest.raises(RemoteFailure, match="StandbyException"):
            await peer.consume("c1")
        _, _, body = await get(master.web_port, "admin_query_sub_info", {})
        assert json.loads(body)["errCode"] == 503


@in_loop
async def test_a_broker_of_more_topics_than_etcd_changes_at_once_can_be_deleted(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    async with several(tmp_path, etcd, "many-topics", 1) as (active,):
        await active.with_topic()
        props = Props(accept_publish=False, accept_subscribe=False)
        topics = [TopicDeploy(1, f"topic_{number}", props=props) for number in range(260)]
        await deploy(active, topics)
        closed = {"acceptPublish": "false", "acceptSubscribe": "false"}
        await active.changed("admin_modify_topic_info", topicName="demo", brokerId=1, **closed)
        await active.changed("admin_offline_broker_configure", brokerId=1)
        await active.changed("admin_delete_broker_configure", brokerId=1, isReservedData="true")
        assert active.core.catalog.broker(1) is None
        assert active.core.catalog.of_broker(1) == []


@in_loop
async def test_more_removed_topics_than_etcd_changes_at_once_are_forgotten(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    async with several(tmp_path, etcd, "many-removed", 1) as (active,):
        await active.with_topic()
        status = TopicStatus.SOFT_REMOVE
        topics = [TopicDeploy(1, f"topic_{number}", status=status) for number in range(160)]
        await deploy(active, topics)
        catalog, names = active.core.catalog, [one.topic for one in topics]
        forget_removed(active.core, 1, names)
        await until(lambda: len(catalog.of_broker(1)) == 62)
        forget_removed(active.core, 1, names)
        await until(lambda: len(catalog.of_broker(1)) == 2)
