"""A broker that only serves pulls: a real store and listener, and the handlers under test."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filter.table import ConsumerFilters
from mq.daemons.broker.groups import Groups
from mq.daemons.broker.handlers.pull import PullHandlers
from mq.daemons.broker.offsets import ConsumerOffsets
from mq.daemons.broker.registry import Consumers
from mq.daemons.broker.stats import BrokerStats
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.topics import Topics
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.protocol.bodies import TopicConfig
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.message import decode_records
from mq.protocol.tags import tags_code
from tests.daemons.broker.store.stores import put
from tests.daemons.peer import Peer

TOPIC = "orders"
SUSPEND = 2
SUBSCRIPTION = 4

Script = Callable[["PullBroker", Peer], Awaitable[None]]


class PullBroker:
    """The parts by name; the topic `orders` has four queues."""

    def __init__(self, root: Path, overrides: dict[str, str]) -> None:
        path = root / "broker.conf"
        path.write_text("brokerName=broker-a\n")
        small = {
            "mappedFileSizeCommitLog": "4096",
            "mappedFileSizeConsumeQueue": "400",
            "maxHashSlotNum": "50",
            "maxIndexNum": "100",
        }
        settings = {"storePathRootDir": str(root / "store"), "listenPort": "0"}
        self.settings = BrokerSettings.load(path, {**settings, **small, **overrides})
        files = self.settings.store.config_path
        self.topics = Topics(files / "topics.json", lambda: self.settings.broker)
        self.groups = Groups(files / "subscriptionGroup.json", lambda: self.settings.broker)
        self.offsets = ConsumerOffsets(files / "consumerOffset.json")
        self.filters = ConsumerFilters(files / "consumerFilter.json", lambda: self.settings.broker)
        host = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)
        self.store = MessageStore(lambda: self.settings.store, host)
        self._parts = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._parts.enter_async_context(self.store)
        await self.topics.update(
            TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
        )
        self.stats = BrokerStats(lambda: (0, 0))
        self.pulls = PullHandlers(
            lambda: self.settings.broker,
            lambda: self.settings.store,
            self.topics,
            self.groups,
            Consumers(),
            self.filters,
            self.offsets,
            self.store,
            self.stats,
        )
        self._parts.push_async_callback(self.pulls.close)
        self.listener = Listener(
            Dispatcher(self.pulls.handlers(), self.pulls.direct()), "127.0.0.1", 0
        )
        await self._parts.enter_async_context(self.listener)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    @property
    def queue(self) -> ConsumeQueue:
        return self.store.queue(TOPIC, 0)

    async def put(self, *bodies: bytes, tag: str = "") -> None:
        """Store messages in queue 0, in one batch."""
        properties = b"TAGS\x01" + tag.encode() if tag else b""
        code = tags_code(tag)
        await put(self.store, TOPIC, 0, *bodies, properties=properties, tags_code=code)


def serve(tmp_path: Path, script: Script, **settings: str) -> None:
    """Run a script against a broker that serves pulls."""

    async def main() -> None:
        async with PullBroker(tmp_path, settings) as broker, Peer(broker.listener.port) as peer:
            await script(broker, peer)

    asyncio.run(main())


def request(
    offset: int,
    *,
    opaque: int = 1,
    tags: str = "*",
    queue_id: int = 0,
    most: int = 32,
    hold: int | None = None,
    flag: int = 0,
    **others: str,
) -> Command:
    """A pull; ``hold`` (ms) lets it wait."""
    fields = {
        "consumerGroup": "g",
        "topic": TOPIC,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(most),
        "sysFlag": str(SUBSCRIPTION | (SUSPEND if hold is not None else 0)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(hold or 0),
        "subscription": tags,
        "subVersion": "1",
        "expressionType": "TAG",
        **others,
    }
    return Command(RequestCode.PULL_MESSAGE, fields, opaque=opaque, flag=flag)


def start_pull(peer: Peer, command: Command) -> None:
    """Send a pull without waiting for its answer."""
    peer.writer.write(encode(command))


async def pull(peer: Peer, command: Command) -> Command:
    """Send a pull and wait for its answer."""
    start_pull(peer, command)
    reply = await peer.receive()
    assert reply.opaque == command.opaque
    return reply


def outcome(reply: Command) -> tuple[int, int]:
    """(code, next offset)"""
    return reply.code, int(reply.fields["nextBeginOffset"])


def bodies(reply: Command) -> list[bytes]:
    return [bytes(message.body) for message in decode_records(reply.body)]
