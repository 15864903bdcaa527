"""Hides, shows and recreates a topic at a broker, and makes clients notice that soon."""

import asyncio

import pytest

from mq.client.pull import missing_topics
from mq.protocol.bodies import ConsumeFromWhere, MessageQueue, TopicConfig
from mq.protocol.message import StoredMessage
from tests.client.clusters import TOPIC, Cluster

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
CONFIG = TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1)


def shorten_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_topics, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.pull.pulling.PULL_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("mq.client.pull.pulling.LONG_POLL_SECONDS", 0.2)
    monkeypatch.setattr("mq.client.reader.reader.REBALANCE_AGAIN_SECONDS", 0.05)


async def hide(there: Cluster) -> None:
    """Remove the topic's configuration from the broker, as if its table were late."""
    await there.pair.broker.stores.topics.delete(TOPIC)


async def show(there: Cluster) -> None:
    await there.pair.broker.stores.topics.update(CONFIG)


async def remake(there: Cluster, *bodies: bytes, tag: str | None = None) -> None:
    await there.admin.create_topic(there.pair.broker.address, CONFIG)
    await there.send(*bodies, tag=tag)


class Listener:
    """Blocks in each message until the test sets `may_continue`."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.may_continue = asyncio.Event()

    async def __call__(self, message: StoredMessage) -> None:
        self.got.append(message.body)
        await self.may_continue.wait()
