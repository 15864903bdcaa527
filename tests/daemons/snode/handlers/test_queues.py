"""Replies of enodes about queues, through a snode: bounds, locks, retry topics, routes."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.snode import enodes
from mq.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    TopicRouteData,
    UnlockBatchRequestBody,
)
from mq.protocol.bodies.schema import MessageQueue
from mq.protocol.codes import RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from tests import answered
from tests.daemons.broker.acl.guarded import send_fields
from tests.daemons.peer import Peer
from tests.daemons.snode.world import ENODE, OTHER, world
from tests.waiting import until

QUEUE = {"topic": "T", "queueId": "1", "enodeName": ENODE}


@answered.by_snode(
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET
)
def test_the_bounds_of_queues_are_returned(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            for _ in range(3):
                await peer.ask(310, {**send_fields("T", 1), "n": ENODE}, b"x")
            for code, more, offset in (
                (RequestCode.GET_MAX_OFFSET, {}, "3"),
                (RequestCode.GET_MIN_OFFSET, {}, "0"),
                (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": "0"}, "0"),
            ):
                reply = await peer.ask(code, {**QUEUE, **more})
                assert (reply.code, reply.fields["offset"]) == (ResponseCode.SUCCESS, offset)

    asyncio.run(main())


@answered.by_snode(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
def test_a_lock_is_held_until_it_is_released(tmp_path: Path) -> None:
    async def main() -> None:
        queues = {MessageQueue("T", ENODE, 1)}

        async def lock(peer: Peer, client: str) -> set[MessageQueue]:
            body = LockBatchRequestBody(consumer_group="g", client_id=client, mq_set=queues)
            fields = {"enodeName": ENODE}
            reply = await peer.ask(RequestCode.LOCK_BATCH_MQ, fields, body.encode())
            assert reply.code == ResponseCode.SUCCESS
            return LockBatchResponseBody.decode(reply.body).lock_ok_mq_set

        async with world(tmp_path) as one, Peer(one.port) as peer:
            assert await lock(peer, "c1") == queues
            assert await lock(peer, "c2") == set()
            body = UnlockBatchRequestBody(consumer_group="g", client_id="c1", mq_set=queues)
            reply = await peer.ask(RequestCode.UNLOCK_BATCH_MQ, {"enodeName": ENODE}, body.encode())
            assert reply.code == ResponseCode.SUCCESS
            assert await lock(peer, "c2") == queues

    asyncio.run(main())


def test_a_lock_at_a_sought_enode_delays_no_lock_at_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        body = LockBatchRequestBody(
            consumer_group="g", client_id="c", mq_set={MessageQueue("T", ENODE, 1)}
        ).encode()
        async with world(tmp_path) as one, Peer(one.port) as peer:
            monkeypatch.setattr(enodes, "REFRESH_PAUSE", 3600.0)  # it has just refreshed
            for opaque, enode in ((1, "nobody"), (2, ENODE)):
                fields = {"enodeName": enode}
                command = Command(RequestCode.LOCK_BATCH_MQ, fields, body, opaque=opaque)
                peer.writer.write(encode(command))
            reply = await peer.receive()
            assert (reply.opaque, reply.code) == (2, ResponseCode.SUCCESS)

    asyncio.run(main())


def test_locks_at_a_sought_enode_all_wait_for_one_refresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        body = LockBatchRequestBody(
            consumer_group="g", client_id="c", mq_set={MessageQueue("T", "nobody", 1)}
        ).encode()
        async with world(tmp_path) as one, Peer(one.port) as peer:
            monkeypatch.setattr(enodes, "REFRESH_PAUSE", 3600.0)  # it has just refreshed
            for opaque in range(3):
                for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
                    command = Command(code, {"enodeName": "nobody"}, body, opaque=opaque)
                    peer.writer.write(encode(command))
            await until(lambda: len(one.snode.forwarding._late.get("nobody", ())) == 6)

    asyncio.run(main())


@answered.by_snode(SnodeCode.CREATE_RETRY_TOPIC)
def test_a_retry_topic_is_created_at_the_named_enode(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, names=(ENODE, OTHER)) as one, Peer(one.port) as peer:
            fields = {"groupName": "g", "enodeName": OTHER}
            reply = await peer.ask(SnodeCode.CREATE_RETRY_TOPIC, fields)
            assert reply.code == ResponseCode.SUCCESS, reply
            assert one.brokers[OTHER].stores.topics.get("%RETRY%g") is not None
            assert one.brokers[ENODE].stores.topics.get("%RETRY%g") is None
            reply = await peer.ask(SnodeCode.CREATE_RETRY_TOPIC, {**fields, "enodeName": "nobody"})
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            reply = await peer.ask(SnodeCode.CREATE_RETRY_TOPIC, {**fields, "groupName": "a b"})
            assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    asyncio.run(main())


async def route(peer: Peer, topic: str) -> TopicRouteData | int:
    reply = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    if reply.code != ResponseCode.SUCCESS:
        return reply.code
    return TopicRouteData.decode(reply.body)


@answered.by_snode(RequestCode.GET_ROUTEINFO_BY_TOPIC)
def test_in_routes_the_snode_stands_for_brokers_by_its_ports(tmp_path: Path) -> None:
    async def main() -> None:
        ports = f"{ENODE}:0;{OTHER}:0"
        async with world(tmp_path, names=(ENODE, OTHER), enodePorts=ports) as one:
            async with Peer(one.port) as peer:
                await one.make_topic("T")
                shown = await route(peer, "T")
                assert isinstance(shown, TopicRouteData)
                listeners = one.snode.stand_in_listeners
                assert {b.broker_name: b.broker_addrs for b in shown.broker_datas} == {
                    name: {0: f"127.0.0.1:{listeners[name].port}"} for name in (ENODE, OTHER)
                }
                assert {q.broker_name for q in shown.queue_datas} == {ENODE, OTHER}
                assert await route(peer, "unknown") == ResponseCode.TOPIC_NOT_EXIST

    asyncio.run(main())


def test_a_broker_without_a_port_is_in_no_route(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, names=(ENODE, OTHER), defaultEnode=OTHER) as one:
            async with Peer(one.port) as peer:
                await one.make_topic("T")
                shown = await route(peer, "T")
                assert isinstance(shown, TopicRouteData)
                assert [b.broker_addrs for b in shown.broker_datas] == [
                    {0: f"127.0.0.1:{one.port}"}
                ]
                assert [q.broker_name for q in shown.queue_datas] == [OTHER]

    asyncio.run(main())


def test_routes_are_refreshed(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T", queues=2)
            assert isinstance(await route(peer, "T"), TopicRouteData)
            await one.make_topic("T", queues=6)
            await one.snode.enodes.session.fresh_route("T")
            shown = await route(peer, "T")
            assert isinstance(shown, TopicRouteData)
            assert shown.queue_datas[0].write_queue_nums == 6

    asyncio.run(main())
