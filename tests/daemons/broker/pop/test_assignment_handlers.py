"""Queues that the broker assigns, and the request modes of groups."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mq.protocol import fastjson
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests import answered
from tests.daemons.broker.harness import create_topic
from tests.daemons.broker.pop.consumers import GROUP, TOPIC
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer


def run(
    root: Path, script: Callable[[list[Peer]], Awaitable[None]], clients: int = 2, **settings: str
) -> None:
    """A broker with a topic of four queues, and so many members of the group."""

    async def main() -> None:
        async with broker_on(root, **settings) as broker:
            peers = [Peer(broker.port) for _ in range(clients + 1)]
            for peer in peers:
                await peer.__aenter__()
            await create_topic(peers[0], TOPIC, 4)
            for number, peer in enumerate(peers[1:]):
                await beat(peer, f"client-{number}")
            await script(peers)
            for peer in peers:
                await peer.close()

    asyncio.run(main())


async def beat(peer: Peer, client: str) -> None:
    group = {"groupName": GROUP, "consumeType": "CONSUME_POP", "messageModel": "CLUSTERING"}
    subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1}
    data = {**group, "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
    body = {
        "clientID": client,
        "consumerDataSet": [{**data, "subscriptionDataSet": [subscription]}],
        "producerDataSet": [],
    }
    reply = await peer.ask(RequestCode.HEART_BEAT, None, json.dumps(body).encode())
    assert reply.code == ResponseCode.SUCCESS


async def set_mode(peer: Peer, mode: str, share: int = 0, topic: str = TOPIC) -> Command:
    body = {"topic": topic, "consumerGroup": GROUP, "mode": mode, "popShareQueueNum": share}
    return await peer.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps(body).encode())


async def assigned(
    peer: Peer, client: int, strategy: str = "AVG", model: str = "CLUSTERING", topic: str = TOPIC
) -> tuple[set[str], list[int]] | None:
    """Modes and queue ids; None for no result."""
    body = {"topic": topic, "consumerGroup": GROUP, "clientId": f"client-{client}"}
    body |= {"strategyName": strategy, "messageModel": model}
    reply = await peer.ask(RequestCode.QUERY_ASSIGNMENT, None, json.dumps(body).encode())
    assert reply.code == ResponseCode.SUCCESS, reply
    plain: Any = fastjson.loads(reply.body)
    found = plain.get("messageQueueAssignments")
    if found is None:
        return None
    modes = {one["mode"] for one in found}
    return modes, sorted(one["messageQueue"]["queueId"] for one in found)


def test_queues_are_shared_by_the_strategy_that_is_named(tmp_path: Path) -> None:
    async def script(peers: list[Peer]) -> None:
        assert await assigned(peers[0], 0) == ({"PULL"}, [0, 1])
        assert await assigned(peers[0], 1) == ({"PULL"}, [2, 3])
        assert await assigned(peers[0], 1, "AVG_BY_CIRCLE") == ({"PULL"}, [1, 3])
        assert await assigned(peers[0], 0, model="BROADCASTING") == ({"PULL"}, [0, 1, 2, 3])
        assert await assigned(peers[0], 0, "OTHER") is None
        assert await assigned(peers[0], 0, topic="Nowhere") is None

    run(tmp_path, script)


@answered.by_broker(RequestCode.QUERY_ASSIGNMENT)
def test_with_pop_each_client_gets_all_queues_or_those_of_some_others_too(tmp_path: Path) -> None:
    async def script(peers: list[Peer]) -> None:
        assert (await set_mode(peers[0], "POP")).code == ResponseCode.SUCCESS
        assert await assigned(peers[0], 0) == ({"POP"}, [-1])
        assert (await set_mode(peers[0], "POP", share=1)).code == ResponseCode.SUCCESS
        assert await assigned(peers[0], 0) == ({"POP"}, [0, 1, 2])
        assert await assigned(peers[0], 2) == ({"POP"}, [0, 1, 3])
        assert await assigned(peers[0], 7) == (set(), [])

    run(tmp_path, script, clients=3)


def test_of_more_clients_than_queues_each_gets_one(tmp_path: Path) -> None:
    async def script(peers: list[Peer]) -> None:
        await create_topic(peers[0], TOPIC, 2)
        assert (await set_mode(peers[0], "POP", share=1)).code == ResponseCode.SUCCESS
        shares = [await assigned(peers[0], client) for client in range(5)]
        assert shares == [({"POP"}, [n % 2]) for n in range(5)]

    run(tmp_path, script, clients=5)


def test_without_server_load_balancer_every_client_gets_all_queues(tmp_path: Path) -> None:
    async def script(peers: list[Peer]) -> None:
        assert await assigned(peers[0], 0) == ({"PULL"}, [0, 1, 2, 3])

    run(tmp_path, script, serverLoadBalancerEnable="false")


@answered.by_broker(RequestCode.SET_MESSAGE_REQUEST_MODE, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
def test_modes_are_kept_over_a_restart_in_the_file_of_java(tmp_path: Path) -> None:
    async def before(peers: list[Peer]) -> None:
        assert (await set_mode(peers[0], "POP", share=2)).code == ResponseCode.SUCCESS

    async def after(peers: list[Peer]) -> None:
        reply = await peers[0].ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert fastjson.loads(reply.body) == {
            "messageRequestModeMap": {
                TOPIC: {
                    GROUP: {
                        "consumerGroup": GROUP,
                        "mode": "POP",
                        "popShareQueueNum": 2,
                        "topic": TOPIC,
                    }
                }
            }
        }

    run(tmp_path, before)
    saved = (tmp_path / "config" / "messageRequestMode.json").read_bytes()
    assert b'"messageRequestModeMap"' in saved
    run(tmp_path, after)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("Nowhere", ResponseCode.TOPIC_NOT_EXIST),
        ("%RETRY%G", ResponseCode.NO_PERMISSION),
    ],
)
def test_an_invalid_mode_is_refused(tmp_path: Path, topic: str, code: ResponseCode) -> None:
    async def script(peers: list[Peer]) -> None:
        assert (await set_mode(peers[0], "POP", topic=topic)).code == code
        reply = await peers[0].ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, b"{")
        assert reply.code == ResponseCode.SYSTEM_ERROR

    run(tmp_path, script)
