"""Options of group members, the same as Java's, with our own daemons."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from mq.client.consumer.consumer import Consumer
from mq.client.consumer.lite_pull_consumer import LitePullConsumer
from mq.client.consumer.send_back import retry_copy
from mq.client.errors import MQError
from mq.client.options import Intervals
from mq.client.producer.producer import Producer
from mq.client.transport import heartbeat
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster, numbers
from tests.interop.ports import free_port
from tests.waiting import until


class Listener:
    def __init__(self) -> None:
        self.got: list[bytes] = []

    async def __call__(self, message: StoredMessage) -> None:
        self.got.append(message.body)


def test_a_consumer_of_a_missing_topic_warns_and_consumes_it_once_it_exists(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mq.client.reader.reader.LONGEST_AGAIN_SECONDS", 0.2)
    listener = Listener()

    async def scenario() -> None:
        async with cluster() as there:
            async with Consumer(
                there.address, GROUP, {"later": "*"}, listener=listener, consume_from=FIRST
            ):
                await there.producer.send(Message("later", b"1"))
                await until(lambda: listener.got == [b"1"])

    asyncio.run(scenario())
    assert "waits for a topic: topic later: no name server knows it" in caplog.text


def test_a_consumer_starts_without_a_name_server_and_consumes_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mq.client.reader.reader.LONGEST_AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(heartbeat, "CHECK_SECONDS", 0.1)
    listener = Listener()

    async def scenario() -> None:
        port = free_port()
        where = f"127.0.0.1:{port}"
        async with Consumer(where, GROUP, {TOPIC: "*"}, listener=listener, consume_from=FIRST):
            async with (
                Standalone(tmp_path, name_server_port=port, broker_port=0),
                Producer(where) as producer,
            ):
                await producer.send(Message(TOPIC, b"1"))
                await until(lambda: listener.got == [b"1"])

    asyncio.run(scenario())
    assert "Connection refused" in caplog.text


def test_a_consumer_reports_all_queues_and_its_own_when_they_change() -> None:
    heard: dict[str, list[tuple[str, int, int]]] = {"a": [], "b": []}

    def note(name: str) -> object:
        def hear(topic: str, everything: list[MessageQueue], mine: list[MessageQueue]) -> None:
            if topic == TOPIC:
                heard[name].append((topic, len(everything), len(mine)))
                raise KeyError("a bug") if len(heard[name]) > 1 else asyncio.CancelledError

        return hear

    async def scenario() -> None:
        async with cluster(queues=4) as there:
            options = {"listener": Listener(), "on_assigned": note("a")}
            async with there.consumer(**options) as first:
                await until(lambda: len(heard["a"]) == 1)
                second = LitePullConsumer(
                    there.address,
                    GROUP,
                    {TOPIC: "*"},
                    on_assigned=note("b"),  # type: ignore[arg-type]
                )
                async with second:
                    await until(lambda: len(heard["a"]) == 2 and len(heard["b"]) == 1)
                    await first.reader.rebalance()
                await until(lambda: len(heard["a"]) == 3)

    asyncio.run(scenario())
    assert heard == {"a": [(TOPIC, 4, 4), (TOPIC, 4, 2), (TOPIC, 4, 4)], "b": [(TOPIC, 4, 2)]}


class UserStore:
    """A user's own store of offsets, whose first query and first commit fail."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.kept: dict[MessageQueue, int] = {}
        self.remembered: dict[MessageQueue, int] = {}
        self.calls: Counter[str] = Counter()

    async def committed(self, queue: MessageQueue) -> int | None:
        self.calls["committed"] += 1
        if self.calls["committed"] == 1:
            raise self.error
        return self.kept.get(queue)

    def update(self, queue: MessageQueue, offset: int) -> None:
        self.remembered[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        self.remembered.pop(queue, None)

    async def commit(self, queues: Iterable[MessageQueue], *, again: bool = False) -> list[MQError]:
        self.calls["commit"] += 1
        if self.calls["commit"] == 1:
            raise self.error
        for queue in queues:
            self.kept[queue] = self.remembered[queue]
        return []


@pytest.mark.parametrize("error", [OSError("the database is away"), asyncio.CancelledError()])
def test_the_user_can_provide_the_offset_store(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.client.reader.reader.REBALANCE_AGAIN_SECONDS", 0.02)
    store = UserStore(error)
    queue = MessageQueue(TOPIC, "broker-a", 0)

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(5))
            store.kept[queue] = 3
            listener = Listener()
            options = {"offsets": store, "intervals": Intervals(offsets=0.05)}
            async with there.consumer(listener=listener, concurrency=1, **options):
                await until(lambda: store.kept[queue] == 5)
            assert listener.got == [b"3", b"4"]

    asyncio.run(scenario())


def test_broadcasting_commits_no_offset_at_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            listener = Listener()
            await there.send(*numbers(3))
            options = {"broadcasting": True, "offset_directory": tmp_path}
            async with there.consumer(listener=listener, **options):
                await until(lambda: len(listener.got) == 3)
                await there.send(b"3")
                await until(lambda: len(listener.got) == 4)
            offsets = await there.admin.all_consumer_offsets(there.pair.broker.address)
            assert f"{TOPIC}@{GROUP}" not in offsets

    asyncio.run(scenario())


def test_a_consumed_message_has_the_bounds_of_its_queue() -> None:
    seen: dict[bytes, tuple[str, str]] = {}

    async def listen(message: StoredMessage) -> None:
        properties = message.properties
        seen[message.body] = properties["MIN_OFFSET"], properties["MAX_OFFSET"]
        assert "MAX_OFFSET" not in retry_copy(GROUP, message, 16).all_properties()

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(3))
            async with there.consumer(listener=listen):
                await until(lambda: len(seen) == 3)

    asyncio.run(scenario())
    assert seen == dict.fromkeys(numbers(3), ("0", "3"))
