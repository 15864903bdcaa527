"""Topics and groups created many at a time, and other requests of 5.x tools."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.protocol.bodies import (
    CreateTopicListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests import answered
from tests.daemons.broker.harness import send
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer


def run(root: Path, script: Callable[[Broker, Peer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with broker_on(root) as broker, Peer(broker.port) as peer:
            await script(broker, peer)

    asyncio.run(main())


async def create_topics(peer: Peer, *topics: TopicConfig) -> Command:
    body = CreateTopicListRequestBody(topic_config_list=list(topics)).encode()
    return await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)


def topic(name: str, queues: int = 3, perm: int = 6) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


@answered.by_broker(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, RequestCode.GET_TOPIC_CONFIG)
def test_topics_are_created_with_one_save_or_none_is(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        before = broker.stores.topics.data_version.counter
        reply = await create_topics(peer, topic("One"), topic("Two", queues=5))
        assert reply.code == ResponseCode.SUCCESS
        assert broker.stores.topics.data_version.counter == before + 1
        for name, queues in (("One", 3), ("Two", 5)):
            reply = await peer.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": name})
            assert TopicConfig.decode(reply.body).write_queue_nums == queues
        for bad in (topic("no!"), topic("TBW102"), topic("Four", queues=-1), topic("F", perm=99)):
            reply = await create_topics(peer, topic("Three"), bad)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert broker.stores.topics.get("Three") is None

    async def after(broker: Broker, peer: Peer) -> None:
        found = broker.stores.topics.get("Two")
        assert found is not None and found.read_queue_nums == 5

    run(tmp_path, script)
    run(tmp_path, after)


@answered.by_broker(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
)
def test_groups_are_created_with_one_save_or_none_is(tmp_path: Path) -> None:
    async def create(peer: Peer, *names: str) -> Command:
        groups = [SubscriptionGroupConfig(group_name=name, retry_max_times=7) for name in names]
        body = SubscriptionGroupList(group_config_list=groups).encode()
        return await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)

    async def script(broker: Broker, peer: Peer) -> None:
        assert (await create(peer, "One", "Two")).code == ResponseCode.SUCCESS
        reply = await create(peer, "Three", "no!")
        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert "illegal characters" in (reply.remark or "")

    async def after(broker: Broker, peer: Peer) -> None:
        for name in ("One", "Two"):
            reply = await peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
            assert SubscriptionGroupConfig.decode(reply.body).retry_max_times == 7
        assert "Three" not in broker.stores.groups.table

    run(tmp_path, script)
    run(tmp_path, after)


@answered.by_broker(RequestCode.GET_TIMER_CHECK_POINT)
def test_the_progress_of_the_timer_is_returned_once_it_is_used(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.GET_TIMER_CHECK_POINT)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "no message for its timer" in (reply.remark or "")
        await send(peer, "Later", b"x", properties="TIMER_DELAY_SEC\x0160")
        assert broker.delivery.timer.timer is not None
        await broker.delivery.timer.timer.save()
        reply = await peer.ask(RequestCode.GET_TIMER_CHECK_POINT)
        read_time, position, offset, of_master = struct.unpack(">4q24x", reply.body)
        assert read_time > 1_700_000_000_000
        assert position >= 0 and offset == of_master

    run(tmp_path, script)
