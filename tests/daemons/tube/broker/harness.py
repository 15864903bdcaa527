"""A broker in this process, and an RPC client for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message

from mq.client.tube.connection import TubeConnection
from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.broker.config import BrokerSettings
from mq.protocol.tube.codes import Method
from mq.protocol.tube.messages import (
    CommitOffsetRequestC2B,
    CommitOffsetResponseB2C,
    GetMessageRequestC2B,
    GetMessageResponseB2C,
    HeartBeatRequestC2B,
    HeartBeatResponseB2C,
    RegisterRequestC2B,
    RegisterResponseB2C,
    SendMessageRequestP2B,
    SendMessageResponseB2P,
    parse,
)

PATIENCE = 30.0
CLIENT = "group_127.0.0.1-1-1-1-Pull"
M = TypeVar("M", bound=Message)
T = TypeVar("T")


def overrides(folder: Path, **changes: Any) -> dict[str, str]:
    return {
        "port": "0",
        "webPort": "-1",
        "brokerId": "1",
        "primaryPath": str(folder / "store"),
        "topicList": "demo:3:2",
        **{name: str(value) for name, value in changes.items()},
    }


class Client:
    """Requests of producers and consumers, with default fields."""

    def __init__(self, connection: TubeConnection) -> None:
        self.connection = connection

    async def ask(self, method: Method, request: Message, kind: type[M]) -> M:
        body = request.SerializePartialToString()
        return parse(kind, await self.connection.call(method, body, PATIENCE))

    async def send(self, data: bytes, **changes: Any) -> SendMessageResponseB2P:
        fields: dict[str, Any] = {
            "clientId": "127.0.0.1-1-1-1-x", "topicName": "demo", "partitionId": 0, "data": data,
            "flag": 0, "checkSum": -1, "sentAddr": 0x7F000001,
        }  # fmt: skip
        request = SendMessageRequestP2B(**(fields | changes))
        return await self.ask(Method.SEND_MESSAGE_P2B, request, SendMessageResponseB2P)

    async def register(self, **changes: Any) -> RegisterResponseB2C:
        fields: dict[str, Any] = {
            "opType": 31, "clientId": CLIENT, "groupName": "group", "topicName": "demo",
            "partitionId": 0, "readStatus": 0,
        }  # fmt: skip
        request = RegisterRequestC2B(**(fields | changes))
        return await self.ask(Method.CONSUMER_REGISTER_C2B, request, RegisterResponseB2C)

    async def unregister(self, **changes: Any) -> RegisterResponseB2C:
        return await self.register(**({"opType": 32} | changes))

    async def get(self, **changes: Any) -> GetMessageResponseB2C:
        fields: dict[str, Any] = {
            "clientId": CLIENT, "groupName": "group", "topicName": "demo", "partitionId": 0,
            "lastPackConsumed": True, "manualCommitOffset": False,
        }  # fmt: skip
        request = GetMessageRequestC2B(**(fields | changes))
        return await self.ask(Method.GET_MESSAGES_C2B, request, GetMessageResponseB2C)

    async def commit(self, **changes: Any) -> CommitOffsetResponseB2C:
        fields: dict[str, Any] = {
            "clientId": CLIENT, "groupName": "group", "topicName": "demo", "partitionId": 0,
        }  # fmt: skip
        request = CommitOffsetRequestC2B(**(fields | changes))
        return await self.ask(Method.CONSUMER_COMMIT_C2B, request, CommitOffsetResponseB2C)

    async def heartbeat(self, *partitions: str, **changes: Any) -> HeartBeatResponseB2C:
        fields: dict[str, Any] = {"clientId": CLIENT, "groupName": "group", "readStatus": 0}
        request = HeartBeatRequestC2B(**(fields | changes), partitionInfo=partitions)
        return await self.ask(Method.CONSUMER_HEARTBEAT_C2B, request, HeartBeatResponseB2C)


@asynccontextmanager
async def serving(folder: Path, **changes: Any) -> AsyncIterator[tuple[Broker, Client]]:
    """A broker without a master, whose topic demo has two stores of three partitions."""
    settings = BrokerSettings.load(None, overrides(folder, **changes))
    async with Broker(settings) as broker, connected(broker) as client:
        yield broker, client


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Client]:
    connection = TubeConnection(f"127.0.0.1:{broker.port}")
    try:
        yield Client(connection)
    finally:
        connection.close()


def run(folder: Path, check: Callable[[Broker, Client], Awaitable[T]], **changes: Any) -> T:
    """The result of a check of a broker."""

    async def main() -> T:
        async with asyncio.timeout(PATIENCE), serving(folder, **changes) as (broker, client):
            return await check(broker, client)

    return asyncio.run(main())


def bodies(answer: GetMessageResponseB2C) -> list[bytes]:
    return [message.payLoadData for message in answer.messages]
