"""Requests of one peer are executed in the order sent, though some of them take longer to read."""

import asyncio
import json
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.dispatch import LARGE_BODY
from mq.protocol.bodies import (
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.frame import encode
from tests.daemons.broker.acl.guarded import MINE, SigningPeer, serve
from tests.daemons.peer import PATIENCE

GROUP = "mine_group"
QUEUES = {MessageQueue("mine", "broker-a", number) for number in range(500)}
ONE = {MessageQueue("mine", "broker-a", 0)}

with_and_without_access_control = pytest.mark.parametrize("acl", [False, True])


def lock(client: str, queues: set[MessageQueue]) -> Command:
    body = LockBatchRequestBody(consumer_group=GROUP, client_id=client, mq_set=queues)
    return Command(RequestCode.LOCK_BATCH_MQ, {}, body.encode())


def unlock(client: str, queues: set[MessageQueue]) -> Command:
    body = UnlockBatchRequestBody(consumer_group=GROUP, client_id=client, mq_set=queues)
    return Command(RequestCode.UNLOCK_BATCH_MQ, {}, body.encode())


def heartbeat(subscriptions: int) -> Command:
    group = {
        "groupName": GROUP,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [
            {"topic": "mine", "subString": f"tag-{number}", "subVersion": number}
            for number in range(subscriptions)
        ],
    }
    told = {"clientID": "c", "consumerDataSet": [group], "producerDataSet": []}
    return Command(RequestCode.HEART_BEAT, {}, json.dumps(told).encode())


LARGE_HEARTBEAT = heartbeat(500)
LEAVE = Command(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": GROUP})


def tell(peer: SigningPeer, *requests: Command, flag: int = 0) -> None:
    """Send them in one write, numbered from 501 on."""
    frames = b""
    for opaque, asked in enumerate(requests, 501):
        fields, body = peer.sign(asked.fields, bytes(asked.body)), bytes(asked.body)
        frames += encode(Command(asked.code, fields, body, opaque=opaque, flag=flag))
    peer.writer.write(frames)


async def answers(peer: SigningPeer, *requests: Command) -> list[Command]:
    """The replies to requests that were sent in one write, in the order of the replies."""
    tell(peer, *requests)
    found: list[Command] = []
    while len(found) < len(requests):
        command = await peer.receive()
        if command.is_response:
            assert command.code == 0, command.remark
            found.append(command)
    return found


def held(reply: Command) -> set[MessageQueue]:
    return LockBatchResponseBody.decode(reply.body).lock_ok_mq_set


@with_and_without_access_control
def test_a_queue_released_after_a_large_renewal_is_free(tmp_path: Path, acl: bool) -> None:
    async def script(broker: Broker) -> None:
        assert len(lock("a", QUEUES).body) > LARGE_BODY
        async with SigningPeer(broker, MINE) as first, SigningPeer(broker, MINE) as second:
            replies = await answers(first, lock("a", QUEUES), unlock("a", ONE))
            assert [reply.opaque for reply in replies] == [501, 502]
            (reply,) = await answers(second, lock("b", ONE))
            assert held(reply) == ONE

    serve(tmp_path, script, acl)


def test_a_queue_locked_after_a_large_release_has_one_holder(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, MINE) as first, SigningPeer(broker, MINE) as second:
            requests = lock("a", QUEUES), unlock("a", QUEUES), lock("a", ONE)
            replies = await answers(first, *requests)
            assert held(replies[2]) == ONE
            (reply,) = await answers(second, lock("b", QUEUES))
            assert held(reply) == QUEUES - ONE

    serve(tmp_path, script, acl=False)


def test_queues_released_after_a_large_renewal_are_free_though_the_connection_ends(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, MINE) as gone:
            tell(gone, lock("a", QUEUES), unlock("a", QUEUES), flag=ONE_WAY)
            await gone.writer.drain()
        async with asyncio.timeout(PATIENCE):
            while broker.listener.channels:  # noqa: ASYNC110 - turn by turn
                await asyncio.sleep(0)
        await broker.listener.dispatcher.finish(PATIENCE)
        async with SigningPeer(broker, MINE) as second:
            (reply,) = await answers(second, lock("b", QUEUES))
            assert held(reply) == QUEUES

    serve(tmp_path, script, acl=False)


@with_and_without_access_control
def test_a_member_that_leaves_a_group_after_a_large_heartbeat_has_left(
    tmp_path: Path, acl: bool
) -> None:
    async def script(broker: Broker) -> None:
        assert len(LARGE_HEARTBEAT.body) > LARGE_BODY
        async with SigningPeer(broker, MINE) as peer:
            replies = await answers(peer, LARGE_HEARTBEAT, LEAVE)
            assert [reply.opaque for reply in replies] == [501, 502]
            assert GROUP not in broker.clients.consumers.groups

    serve(tmp_path, script, acl)


def test_the_last_of_two_heartbeats_in_a_row_counts(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, MINE) as peer:
            replies = await answers(peer, LARGE_HEARTBEAT, LEAVE, heartbeat(1))
            assert [reply.opaque for reply in replies] == [501, 502, 503]
            members = await peer.ask(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}
            )
            ids = GetConsumerListByGroupResponseBody.decode(members.body).consumer_id_list
            assert ids == ["c"]

    serve(tmp_path, script, acl=False)


def test_a_heartbeat_that_waits_when_its_connection_ends_makes_no_member(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, MINE) as gone:
            tell(gone, LARGE_HEARTBEAT, heartbeat(1), flag=ONE_WAY)
            await gone.writer.drain()
        async with asyncio.timeout(PATIENCE):
            while broker.listener.channels:  # noqa: ASYNC110 - turn by turn
                await asyncio.sleep(0)
        await broker.listener.dispatcher.finish(PATIENCE)
        assert not broker.clients.consumers.groups

    serve(tmp_path, script, acl=False)


def test_after_all_replies_no_data_about_the_order_is_kept(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, MINE) as peer:
            await answers(peer, lock("a", QUEUES), unlock("a", ONE), LARGE_HEARTBEAT, LEAVE)
            await peer.ask(99999)
            (channel,) = broker.listener.channels
            assert not [name for name in channel.attributes if name.startswith("turn")]

    serve(tmp_path, script, acl=False)
