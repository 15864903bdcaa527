"""Queue locks: a lock counts only while it is certainly ours, also across restarts and hangs."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.consumer.push import ordered
from mq.client.errors import ClientError
from mq.client.machine import clock
from mq.client.offsets.offset_store import OffsetStore
from mq.client.producer.producer import Producer
from mq.client.pull.process_queue import TRUSTED_SECONDS, ProcessQueue, is_locked
from mq.client.reader.queue_locks import QueueLocks
from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.clients import locks as locks_of_broker
from mq.daemons.broker.components import clients as clients_of_broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import FIRST, GROUP, TOPIC, cluster, numbers
from tests.client.gate import gate
from tests.client.scripted import name_server, scripted
from tests.interop.ports import free_port
from tests.waiting import until

QUEUE = MessageQueue(TOPIC, "broker", 0)
OTHER = "127.0.0.1@other"  # a member that takes the lock for itself


class Taken(locks_of_broker.QueueLocks):
    """The locks of a broker at which the other member holds the queue from the start."""

    def __init__(self, lifetime: float) -> None:
        super().__init__(lifetime=lifetime)
        self.lock(GROUP, OTHER, [QUEUE])


def broker(root: Path, port: int, names: str) -> Broker:
    settings = {
        "listenPort": str(port),
        "brokerIP1": "127.0.0.1",
        "brokerName": QUEUE.broker_name,
        "namesrvAddr": names,
        "storePathRootDir": str(root / "store"),
    }
    return Broker(BrokerSettings.load(None, settings))


def run(
    folder: Path, scenario: Callable[[str, AsyncExitStack], Coroutine[object, object, None]]
) -> None:
    async def main() -> None:
        settings = {"listenPort": "0", "kvConfigPath": str(folder / "kv.json")}
        async with NameServer(NamesrvSettings.load(None, settings)) as server:
            async with AsyncExitStack() as parts:
                await scenario(server.address, parts)

    asyncio.run(main())


def test_a_queue_that_another_member_had_continues_where_that_member_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    async def scenario(names: str, parts: AsyncExitStack) -> None:
        port = free_port()
        producer = await parts.enter_async_context(Producer(names))
        admin = Admin(producer.session)
        async with broker(tmp_path, port, names) as first:
            one = TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1)
            await admin.create_topic(first.address, one)
            consumer = await parts.enter_async_context(
                Consumer(
                    names, GROUP, {TOPIC: "*"}, listener=listen, consume_from=FIRST, ordered=True
                )
            )
            await producer.send(Message(TOPIC, b"0"), QUEUE)
            await until(lambda: got == [b"0"])
        monkeypatch.setattr(clients_of_broker, "QueueLocks", Taken)
        async with broker(tmp_path, port, names) as second:
            assert await admin.lock_queues(second.address, GROUP, OTHER, [QUEUE]) == {QUEUE}
            for number in range(1, 5):
                await producer.send(Message(TOPIC, b"%d" % number), QUEUE)
            # By then the consumer has connected, requested its lock and been refused.
            await until(lambda: QUEUE not in consumer.reader.held)
            assert got == [b"0"]
            await admin.update_consumer_offset(second.address, GROUP, TOPIC, 0, 4)
            await admin.unlock_queues(second.address, GROUP, OTHER, [QUEUE])
            await until(lambda: len(got) > 1)
            assert got == [b"0", b"4"]

    run(tmp_path, scenario)


def test_a_revoked_queue_that_another_member_has_locked_is_not_committed(
    tmp_path: Path,
) -> None:
    async def scenario(names: str, parts: AsyncExitStack) -> None:
        began, done = asyncio.Event(), asyncio.Event()
        mine = True

        async def listen(message: StoredMessage) -> None:
            began.set()
            await done.wait()

        def strategy(client_id: str, queues: list[MessageQueue], _: object) -> list[MessageQueue]:
            return list(queues) if mine else []

        port = free_port()
        producer = await parts.enter_async_context(Producer(names))
        admin = Admin(producer.session)
        async with broker(tmp_path, port, names) as first:
            one = TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1)
            await admin.create_topic(first.address, one)
            options = {"listener": listen, "ordered": True, "strategy": strategy}
            consumer = await parts.enter_async_context(
                Consumer(names, GROUP, {TOPIC: "*"}, consume_from=FIRST, **options)  # type: ignore[arg-type]
            )
            for number in range(5):
                await producer.send(Message(TOPIC, b"%d" % number), QUEUE)
            await asyncio.wait_for(began.wait(), 60)
            mine = False
            consumer.reader.wake()
            await until(lambda: QUEUE in consumer.reader._revoked)
        (held,) = consumer.reader._revoked.busy
        async with broker(tmp_path, port, names) as second:
            # The consumer may have locked the queue first, because it tries repeatedly.
            client_id = consumer.session.client_id
            while await admin.lock_queues(second.address, GROUP, OTHER, [QUEUE]) != {QUEUE}:
                await admin.unlock_queues(second.address, GROUP, client_id, [QUEUE])
            await admin.update_consumer_offset(second.address, GROUP, TOPIC, 0, 4)
            await until(lambda: not held.locked)
            done.set()
            await until(lambda: QUEUE not in consumer.reader._revoked)
            assert second.stores.offsets.query(GROUP, TOPIC, 0) == 4

    run(tmp_path, scenario)


AT_ONCE = 5.0  # seconds; an upper bound on any machine, below all timeouts here


def test_locks_are_renewed_at_once_while_the_name_server_hangs() -> None:
    async def scenario() -> None:
        async with cluster(queues=9) as there, gate(there.address) as way:
            async with Session(way.address) as session:
                locks = QueueLocks(session, GROUP)
                held = [ProcessQueue(MessageQueue(TOPIC, "broker-a", n), 0) for n in range(9)]
                await locks.renew(held, OffsetStore(session, GROUP))
                assert all(map(is_locked, held))
                way.blocked = True
                session.outdate_route(TOPIC)
                began = time.monotonic()
                await locks.renew(held, OffsetStore(session, GROUP))
                assert time.monotonic() - began < AT_ONCE
                assert all(map(is_locked, held))

    asyncio.run(scenario())


def test_a_renewal_that_fails_unlocks_nothing_that_is_still_ours() -> None:
    async def scenario() -> None:
        async with cluster(queues=2) as there, gate(there.pair.broker.address) as way:
            broker_name = there.pair.broker.settings.broker.broker_name
            async with scripted(name_server({broker_name: way.address})) as namesrv:
                async with Session(namesrv) as session:
                    locks = QueueLocks(session, GROUP)
                    held = [ProcessQueue(MessageQueue(TOPIC, broker_name, n), 0) for n in (0, 1)]
                    await locks.renew(held, OffsetStore(session, GROUP))
                    way.blocked, session.timeout = True, 0.2
                    await locks.renew(held, OffsetStore(session, GROUP))
                    assert all(map(is_locked, held))  # the broker keeps the locks for a minute

    asyncio.run(scenario())


def test_nothing_is_consumed_while_the_lock_is_not_certainly_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ordered, "LOCK_WAIT_SECONDS", 0.01)
    got: list[bytes] = []
    consumers: list[Consumer] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)
        if message.body == b"1":  # as if no renewal had succeeded for 30 s
            (held,) = [h for q, h in consumers[0].reader.held.items() if q.topic == TOPIC]
            held.locked_at -= TRUSTED_SECONDS

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(b"1", b"2")
            consumers.append(there.consumer(listener=listen, ordered=True))
            async with consumers[0] as consumer:
                await until(lambda: got == [b"1"])
                (held,) = [h for q, h in consumer.reader.held.items() if q.topic == TOPIC]
                await until(lambda: held.is_idle)
                assert got == [b"1"]
                await consumer.reader._locks.renew([held], consumer.reader.offsets)
                await until(lambda: got == [b"1", b"2"])

    asyncio.run(scenario())


@pytest.mark.parametrize("further", [True, False])
def test_a_queue_whose_lock_lapsed_continues_where_another_member_stopped(
    further: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[bytes] = []
    consumers: list[Consumer] = []
    lapsed, may_end = asyncio.Event(), asyncio.Event()

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)
        # as if the process had been stopped for a minute
        if message.body == b"1" and not lapsed.is_set():
            (held,) = [h for q, h in consumers[0].reader.held.items() if q.topic == TOPIC]
            held.locked_at -= 2 * TRUSTED_SECONDS
            lapsed.set()
            await may_end.wait()

    async def scenario() -> None:
        async with cluster(queues=1) as there:
            await there.send(*numbers(5))
            consumers.append(there.consumer(listener=listen, ordered=True))
            async with consumers[0] as consumer:
                await lapsed.wait()
                broker = there.pair.broker.address
                if further:  # by a member that has given it up since
                    await there.admin.update_consumer_offset(broker, GROUP, TOPIC, 0, 4)
                    with pytest.raises(ClientError, match="lapsed and cannot be renewed now"):
                        await consumer.commit()
                else:
                    await consumer.commit()
                offset = await there.admin.query_consumer_offset(broker, GROUP, TOPIC, 0)
                assert offset == (4 if further else 1)
                may_end.set()
                await until(lambda: got[-1] == b"4")
        expected = [b"0", b"1", b"4"] if further else numbers(5)
        assert got == expected

    asyncio.run(scenario())


@pytest.mark.parametrize("jump", [3600, -3600])
def test_the_age_of_a_lock_does_not_depend_on_the_wall_clock(
    jump: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with cluster(queues=1) as there:
            async with there.consumer(listener=print, ordered=True) as consumer:
                held = consumer.reader.held
                await until(lambda: any(queue.topic == TOPIC for queue in held))
                [queue] = [one for queue, one in held.items() if queue.topic == TOPIC]
                now = time.time
                with monkeypatch.context() as patch:
                    patch.setattr(clock, "time", lambda: now() + jump)
                    assert is_locked(queue)
                    queue.locked_at -= TRUSTED_SECONDS
                    assert not is_locked(queue)

    asyncio.run(scenario())
