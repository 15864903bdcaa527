"""A power cut (ASYNC_FLUSH) takes the end of a queue: consumers get the messages that are left."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.producer.producer import Producer
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.protocol.message import Message, StoredMessage
from tests.client.brokers import BROKER_NAME
from tests.client.clusters import FIRST, GROUP, TOPIC, numbers
from tests.client.scripted import name_server, scripted
from tests.interop.ports import free_port
from tests.waiting import until

_QUEUE = MessageQueue(TOPIC, BROKER_NAME, 0)


def _broker(root: Path, port: int) -> AbstractAsyncContextManager[Broker]:
    settings = {
        **{"listenPort": str(port), "brokerIP1": "127.0.0.1", "brokerName": BROKER_NAME},
        **{"storePathRootDir": str(root), "mappedFileSizeCommitLog": "65536"},
        **{"maxHashSlotNum": "500", "maxIndexNum": "2000"},  # otherwise half a gigabyte is copied
    }
    return Broker(BrokerSettings.load(None, settings))


async def _fill(namesrv: str, bodies: list[bytes]) -> None:
    async with Producer(namesrv, "p") as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body), queue=_QUEUE)


async def _fill_and_truncate(namesrv: str, broker: Broker, root: Path, left: Path) -> None:
    """Send five messages to a queue; `left` gets the store after a power cut, with three."""
    config = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
    await broker.stores.topics.update(config)
    await _fill(namesrv, numbers(3))
    shutil.copytree(root, left, ignore=shutil.ignore_patterns("*.tmp"))
    (left / "abort").write_text("of another boot\n")
    await _fill(namesrv, [b"lost", b"lost, too"])


def _run(port: int, scenario: Callable[[str], Coroutine[None, None, None]]) -> None:
    """Run `scenario` with a name server that has every topic at the broker on `port`."""

    async def main() -> None:
        async with scripted(name_server({BROKER_NAME: f"127.0.0.1:{port}"})) as namesrv:
            await scenario(namesrv)

    asyncio.run(main())


class _Listener:
    """Blocks in each message until `may_continue` is set."""

    def __init__(self) -> None:
        self.may_continue = asyncio.Event()
        self.finished: list[bytes] = []
        self.begun: list[bytes] = []

    async def __call__(self, message: StoredMessage) -> None:
        self.begun.append(message.body)
        await self.may_continue.wait()
        self.finished.append(message.body)


@pytest.mark.parametrize("ordered", [False, True])
def test_pulled_messages_that_a_power_cut_has_left_are_consumed(
    tmp_path: Path, ordered: bool
) -> None:
    """Three of five messages are left when the broker is back; none was finished before."""
    port, old, left = free_port(), tmp_path / "old", tmp_path / "left"

    async def scenario(namesrv: str) -> None:
        listener = _Listener()
        consumer = Consumer(
            namesrv, GROUP, {TOPIC: "*"}, listener=listener,
            consume_from=FIRST, concurrency=1, ordered=ordered,
        )  # fmt: skip
        try:
            async with _broker(old, port) as broker:
                await _fill_and_truncate(namesrv, broker, old, left)
                await consumer.open()
                await until(lambda: bool(listener.begun))
                held = consumer.reader.held[_QUEUE]
                await until(lambda: held.next_offset == 5)
            async with _broker(left, port):
                await until(lambda: held.dropped)
                await _fill(namesrv, [b"new"])
                listener.may_continue.set()
                await until(lambda: {*numbers(3), b"new"} <= set(listener.finished))
                await until(lambda: consumer.reader.held[_QUEUE].commit_offset == 4)
        finally:
            await consumer.close()
        assert listener.finished[-3:] == [b"1", b"2", b"new"]

    _run(port, scenario)


def test_a_poll_returns_pulled_messages_that_a_power_cut_has_left(tmp_path: Path) -> None:
    port, old, left = free_port(), tmp_path / "old", tmp_path / "left"

    async def scenario(namesrv: str) -> None:
        consumer = LitePullConsumer(namesrv, GROUP, {TOPIC: "*"}, consume_from=FIRST, pull_batch=2)
        try:
            async with _broker(old, port) as broker:
                await _fill_and_truncate(namesrv, broker, old, left)
                await consumer.open()
                assert [message.body for message in await consumer.poll()] == numbers(2)
                held = consumer.reader.held[_QUEUE]
                await until(lambda: held.next_offset == 5)
            async with _broker(left, port):
                await until(lambda: held.dropped)
                await _fill(namesrv, [b"new"])
                bodies: set[bytes] = set()
                while not {b"2", b"new"} <= bodies:
                    bodies.update(message.body for message in await consumer.poll())
        finally:
            await consumer.close()
        assert b"lost" not in bodies

    _run(port, scenario)


def test_without_automatic_commits_no_offset_of_a_lost_end_is_committed(tmp_path: Path) -> None:
    """Otherwise polled messages without a commit would not be redelivered after a crash."""
    port, old, left = free_port(), tmp_path / "old", tmp_path / "left"

    async def scenario(namesrv: str) -> None:
        consumer = LitePullConsumer(namesrv, GROUP, auto_commit=False)
        try:
            async with _broker(old, port) as broker:
                await _fill_and_truncate(namesrv, broker, old, left)
                await consumer.open()
                await consumer.assign([_QUEUE])
                await consumer.seek(_QUEUE, 0)
                got: list[StoredMessage] = []
                while len(got) < 5:
                    got += await consumer.poll()
                assert await consumer.poll(0.01) == []
                held = consumer.reader.held[_QUEUE]
                assert held.commit_offset == 5
            async with _broker(left, port):
                await until(lambda: held.dropped)
                await _fill(namesrv, [b"new"])
                assert [message.body for message in await consumer.poll()] == [b"new"]
                assert not await consumer.committed(_QUEUE)
                await consumer.commit()
                assert await consumer.committed(_QUEUE) == 4
        finally:
            await consumer.close()

    _run(port, scenario)
