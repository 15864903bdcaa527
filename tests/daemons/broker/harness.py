"""A broker's parts on a real listener and a real store, without its app: what handlers need."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from mq.daemons.broker.aside import SetAside
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.day_totals import DayTotals
from mq.daemons.broker.delay import DelayedMessages
from mq.daemons.broker.filter.table import ConsumerFilters
from mq.daemons.broker.groups import Groups
from mq.daemons.broker.handlers import (
    client,
    config,
    connection,
    group,
    lock,
    offset,
    query,
    relay,
    topic,
)
from mq.daemons.broker.handlers.indirect_send import IndirectSends
from mq.daemons.broker.handlers.send import SendHandlers
from mq.daemons.broker.locks import QueueLocks
from mq.daemons.broker.offsets import ConsumerOffsets
from mq.daemons.broker.registry import Consumers, Producers
from mq.daemons.broker.stat_items import StatItems, totals
from mq.daemons.broker.stats import BrokerStats
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.targets import SendTargets
from mq.daemons.broker.topics import Topics
from mq.daemons.broker.transactions.service import Transactions
from mq.daemons.broker.writer import MessageWriter
from mq.daemons.dispatch import Dispatcher, merge
from mq.daemons.listener import Listener
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.headers.topic import CreateTopicRequestHeader
from tests.daemons.peer import Peer

Script = Callable[["Harness", Peer], Awaitable[None]]


class Harness:
    """The parts by name; `port` is the listener's."""

    def __init__(self, root: Path, overrides: Mapping[str, str]) -> None:
        path = root / "broker.conf"
        path.write_text("brokerName=broker-a\n")
        self.settings = BrokerSettings.load(
            path, {"storePathRootDir": str(root / "store"), "listenPort": "0", **overrides}
        )
        files = self.settings.store.config_path
        self.topics = Topics(files / "topics.json", lambda: self.settings.broker)
        self.groups = Groups(files / "subscriptionGroup.json", lambda: self.settings.broker)
        self.offsets = ConsumerOffsets(files / "consumerOffset.json")
        self.filters = ConsumerFilters(files / "consumerFilter.json", lambda: self.settings.broker)
        self.consumers = Consumers()
        self.producers = Producers()
        self.locks = QueueLocks()
        self.announcements = 0
        host = bytes((127, 0, 0, 1)) + struct.pack(">i", 10911)
        self.store = MessageStore(lambda: self.settings.store, host)
        self._parts = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._parts.enter_async_context(self.store)
        appender = self.store.appender
        stats = BrokerStats(lambda: (appender.messages, appender.size))
        targets = SendTargets(lambda: self.settings.broker, self.topics, self.groups, self.store)
        writer = MessageWriter(lambda: self.settings.store, self.store, self.topics)
        delay_path = self.settings.store.config_path / "delayOffset.json"
        delayed = DelayedMessages(delay_path, self.store, writer, SetAside(self.store))
        sends = SendHandlers(
            lambda: self.settings.broker,
            lambda: self.settings.store,
            targets,
            self.store.appender,
            IndirectSends(
                lambda: self.settings.broker,
                self.topics,
                self.groups,
                self.store,
                writer,
                Transactions(self.store, writer, self.offsets, self.topics),
            ),
        )
        tables = merge(
            sends.handlers(),
            client.handlers(
                self.consumers,
                self.producers,
                self.filters,
                self.groups,
                self.topics,
                lambda: self.settings.broker,
            ),
            lock.handlers(self.locks),
            offset.handlers(lambda: self.settings.store, self.offsets, delayed, self.store),
            topic.handlers(self.settings, self.topics, self.offsets, self.store, self._announced),
            group.handlers(
                self.settings,
                self.groups,
                self.topics,
                self.offsets,
                self.consumers,
                self.store,
                stats,
            ),
            connection.handlers(self.consumers, self.producers),
            relay.handlers(self.settings, self.topics, self.offsets, self.consumers, self.store),
            query.handlers(lambda: self.settings.store, self.consumers, self.filters, self.store),
            config.handlers(
                self.settings,
                self.topics,
                self.store,
                stats,
                DayTotals(stats),
                delayed,
                StatItems(
                    lambda: totals(self.store.queues, stats, lambda: self.settings.broker),
                    lambda: self.settings.broker,
                ),
            ),
        )
        self.listener = Listener(Dispatcher(tables), "127.0.0.1", 0)
        await self._parts.enter_async_context(self.listener)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._parts.aclose()

    async def _announced(self) -> None:
        self.announcements += 1

    @property
    def port(self) -> int:
        return self.listener.port


def serve(tmp_path: Path, script: Script, **settings: str) -> None:
    """Run a script against the parts of a broker."""

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
