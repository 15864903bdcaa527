"""Heartbeats: a restarted broker learns of its clients at once."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

from mq.client.consumer.consumer import Consumer
from mq.client.producer.producer import Producer
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.message import Message, StoredMessage
from tests.interop.ports import free_port
from tests.waiting import until

PATIENCE = 20.0


def broker_on(root: Path, name_server: str, port: int) -> Broker:
    settings = {
        "listenPort": str(port),
        "brokerIP1": "127.0.0.1",
        "namesrvAddr": name_server,
        "storePathRootDir": str(root / "store"),
    }
    return Broker(BrokerSettings.load(None, settings))


def test_a_restarted_broker_learns_of_its_clients_before_their_next_heartbeat(
    tmp_path: Path,
) -> None:
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(bytes(message.body))

    async def script() -> None:
        files = {"kvConfigPath": str(tmp_path / "kv.json"), "listenPort": "0"}
        async with NameServer(NamesrvSettings.load(None, files)) as name_server:
            where = name_server.address
            async with AsyncExitStack() as first, Producer(where, "senders") as producer:
                port = free_port()  # no connection can take it during the restart
                broker = await first.enter_async_context(broker_on(tmp_path, where, port))
                await producer.send(Message("orders", b"one"))
                await until(
                    lambda: "senders" in broker.clients.producers.groups,
                    what="the producer is known",
                )
                async with Consumer(where, "readers", {"orders": "*"}, listener=listen):
                    await first.aclose()
                    async with broker_on(tmp_path, where, port) as again:
                        began = time.monotonic()
                        await until(
                            lambda: "senders" in again.clients.producers.groups,
                            what="the producer is known again",
                        )
                        await until(
                            lambda: "readers" in again.clients.consumers.groups,
                            what="the consumer is known again",
                        )
                        assert time.monotonic() - began < PATIENCE
                        await producer.send(Message("orders", b"two"))
                        await until(lambda: b"two" in got, what="the message is delivered")

    asyncio.run(script())
