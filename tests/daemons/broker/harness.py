"""A broker's components with a real listener and a real store, created as by its app.

There are no name servers, and no periodic task runs.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from mq.daemons.broker.components.clients import make_clients
from mq.daemons.broker.components.delivery import open_delivery
from mq.daemons.broker.components.listeners import serve as serve_requests
from mq.daemons.broker.components.services import make_services
from mq.daemons.broker.components.stats import make_stats
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.stores import open_stores
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.supervision import Tasks
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.headers.topic import CreateTopicRequestHeader
from tests.daemons.peer import Peer

Script = Callable[["Harness", Peer], Awaitable[None]]


class Harness:
    """The components by name; `port` is the listener's."""

    def __init__(self, root: Path, overrides: Mapping[str, str]) -> None:
        path = root / "broker.conf"
        path.write_text("brokerName=broker-a\n")
        self.settings = BrokerSettings.load(
            path, {"storePathRootDir": str(root / "store"), "listenPort": "0", **overrides}
        )
        self.announcements = 0
        self._parts = AsyncExitStack()

    async def __aenter__(self) -> Self:
        settings, parts, tasks = self.settings, self._parts, Tasks()
        host = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)
        self.stores = await open_stores(settings, host, parts)
        self.clients = make_clients(settings, "127.0.0.1:10911", self.stores)
        self.stats = make_stats(settings, self.stores, self.clients)
        self.delivery = open_delivery(settings, self.stores, self.clients, tasks, parts)
        await parts.enter_async_context(tasks)
        self.services = make_services(
            settings, self.stores, self.clients, self.stats, self.delivery, self, tasks
        )
        parts.push_async_callback(self.services.end_reads)
        groups = (self.stats, self.services, self.stores, self.delivery, self.clients)
        dispatcher = Dispatcher({})
        serve_requests(settings, groups, self.services, dispatcher, Dispatcher({}))
        self.listener = Listener(dispatcher, "127.0.0.1", 0)
        await parts.enter_async_context(self.listener)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    # as NameServers: there are none

    async def queues_of(self, topic: str) -> list[MessageQueue] | None:
        return None

    async def announced(self) -> None:
        self.announcements += 1

    @property
    def port(self) -> int:
        return self.listener.port


def serve(tmp_path: Path, script: Script, **settings: str) -> None:
    """Run a script against the components of a broker."""

    async def main() -> None:
        async with Harness(tmp_path, settings) as broker, Peer(broker.port) as peer:
            await script(broker, peer)

    asyncio.run(main())


async def create_topic(peer: Peer, name: str, queues: int = 4) -> None:
    header = CreateTopicRequestHeader(
        topic=name,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert reply.code == ResponseCode.SUCCESS, reply


async def send(
    peer: Peer, topic_name: str, body: bytes, queue_id: int = 0, properties: str = ""
) -> str:
    """Store a message; returns its offset id."""
    reply = await peer.ask(
        RequestCode.SEND_MESSAGE_V2,
        {
            **{"a": "P", "b": topic_name, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0"},
            **{"g": "1700000000000", "h": "0", "i": properties, "j": "0", "k": "false"},
            **{"m": "false"},
        },
        body,
    )
    assert reply.code == ResponseCode.SUCCESS, reply
    return reply.fields["msgId"]
