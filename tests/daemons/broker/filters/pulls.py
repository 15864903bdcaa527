"""A group that pulls through a filter."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.protocol import message
from mq.protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.daemons.broker.harness import send
from tests.daemons.peer import Peer

TOPIC, GROUP = "Numbers", "readers"
Script = Callable[[Broker, Peer], Awaitable[None]]
SUSPEND, SUBSCRIPTION = 2, 4


def serve(tmp_path: Path, script: Script, **settings: str) -> None:
    async def main() -> None:
        overrides = {
            "storePathRootDir": str(tmp_path / "store"),
            "listenPort": "0",
            "brokerIP1": "127.0.0.1",
            "enablePropertyFilter": "true",
            "defaultTopicQueueNums": "1",
            **settings,
        }
        async with (
            Broker(BrokerSettings.load(None, overrides)) as broker,
            Peer(broker.port) as peer,
        ):
            await script(broker, peer)

    asyncio.run(main())


async def beat(peer: Peer, *subscriptions: SubscriptionData) -> None:
    group = ConsumerData(group_name=GROUP, subscription_data_set=list(subscriptions))
    heartbeat = HeartbeatData(client_id="client", consumer_data_set=[group])
    reply = await peer.ask(RequestCode.HEART_BEAT, body=heartbeat.encode())
    assert reply.code == ResponseCode.SUCCESS, reply


async def pull(peer: Peer, offset: int = 0, /, **more: str) -> tuple[Command, list[str]]:
    reply = await peer.ask(RequestCode.PULL_MESSAGE, pull_fields(offset, **more))
    return reply, [record.body.decode() for record in message.decode_records(reply.body)]


async def fill(peer: Peer, count: int = 10, start: int = 0) -> None:
    for n in range(start, start + count):
        await send(peer, TOPIC, b"%d" % n, properties=f"a\x01{n}\x02TAGS\x01odd\x02b\x01x")


def pull_fields(offset: int = 0, **more: str) -> dict[str, str]:
    """A pull; with `subscription` it contains the expression, otherwise that of the heartbeat is
    used.
    """
    flags = int(more.pop("flags", "0")) | (SUBSCRIPTION if "subscription" in more else 0)
    return {
        **{"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": str(offset)},
        **{"maxMsgNums": "32", "sysFlag": str(flags), "commitOffset": "0"},
        **{"suspendTimeoutMillis": "8000", "subVersion": "1", **more},
    }


def subscription(expression: str, kind: str = "SQL92", version: int = 1) -> SubscriptionData:
    return SubscriptionData(
        topic=TOPIC, sub_string=expression, expression_type=kind, sub_version=version
    )
