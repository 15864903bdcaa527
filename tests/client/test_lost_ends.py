"""Consumers of a queue whose end a power cut (ASYNC_FLUSH) has taken get what is left of it."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from mq.client.consumer import Consumer
from mq.client.lite_pull_consumer import LitePullConsumer
from mq.client.producer import Producer
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
        **{"maxHashSlotNum": "500", "maxIndexNum": "2000"},  # half a gigabyte to copy, else
    }
    return Broker(BrokerSettings.load(None, settings))


async def _fill(namesrv: str, bodies: list[bytes]) -> None:
    async with Producer(namesrv, "p") as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body), queue=_QUEUE)


async def _fill_to_be_cut(namesrv: str, broker: Broker, root: Path, left: Path) -> None:
    """Five messages in a broker's queue; `left` is what a power cut leaves of it, with three."""
    config = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
    await broker.stores.topics.update(config)
    await _fill(namesrv, numbers(3))
    shutil.copytree(root, left, ignore=shutil.ignore_patterns("*.tmp"))
    (left / "abort").write_text("of another boot\n")
    await _fill(namesrv, [b"lost", b"lost, too"])


def _run(port: int, scenario: Callable[[str], Coroutine[None, None, None]]) -> None:
    """Run it with a name server that sends everything to the broker on `port`."""

    async def main() -> None:
        async with scripted(name_server({BROKER_NAME: f"127.0.0.1:{port}"})) as namesrv:
            await scenario(namesrv)

    asyncio.run(main())


class _Listener:
    """Is slow with the first message: waits there until `goes_on` is set."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.finished: list[bytes] = []
        self.begun: list[bytes] = []

    async def __call__(self, message: StoredMessage) -> None:
        self.begun.append(message.body)
        await self.goes_on.wait()
        self.finished.append(message.body)


@pytest.mark.parametrize("ordered", [False, True])
def test_messages_in_hand_that_a_power_cut_has_left_are_consumed(
    tmp_path: Path, ordered: bool
) -> None:
    """Three of five are left when the broker is there again; none was finished before."""
    port, old, left = free_port(), tmp_path / "old", tmp_path / "left"

    async def scenario(namesrv: str) -> None:
        listener = _Listener()
        consumer = Consumer(
            namesrv, GROUP, {TOPIC: "*"}, listener=listener,
            consume_from=FIRST, concurrency=1, ordered=ordered,
        )  # fmt: skip
        try:
            async with _broker(old, port) as broker:
                await _fill_to_be_cut(namesrv, broker, old, left)
                await consumer.open()
                await until(lambda: bool(listener.begun))
                held = consumer.reader.held[_QUEUE]
                await until(lambda: held.next_offset == 5)
            async with _broker(left, port):
                await until(lambda: held.dropped)
                await _fill(namesrv, [b"new"])
                listener.goes_on.set()
                await until(lambda: {*numbers(3), b"new"} <= set(listener.finished))
                await until(lambda: consumer.reader.held[_QUEUE].commit_offset == 4)
        finally:
            await consumer.close()
        assert listener.finished[-3:] == [b"1", b"2", b"new"]

    _run(port, scenario)


def test_a_poll_gives_what_a_power_cut_has_left_though_it_was_pulled_before(tmp_path: Path) -> None:
    port, old, left = free_port(), tmp_path / "old", tmp_path / "left"

    async def scenario(namesrv: str) -> None:
        consumer = LitePullConsumer(namesrv, GROUP, {TOPIC: "*"}, consume_from=FIRST, pull_batch=2)
        try:
            async with _broker(old, port) as broker:
                await _fill_to_be_cut(namesrv, broker, old, left)
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


def test_nothing_is_committed_of_a_lost_end_for_who_commits_by_himself(tmp_path: Path) -> None:
    """What was polled and not committed would not have come again behind a crash."""
    port, old, left = free_port(), tmp_path / "old", tmp_path / "left"

    async def scenario(namesrv: str) -> None:
        consumer = LitePullConsumer(namesrv, GROUP, auto_commit=False)
        try:
            async with _broker(old, port) as broker:
                await _fill_to_be_cut(namesrv, broker, old, left)
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
