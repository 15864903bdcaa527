"""A broker that leaves the routes and returns: clients soon use it again."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.errors import MQError, RouteNotFound
from mq.client.producer.producer import Producer
from mq.client.routing.route_changes import RouteChanges
from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.bodies import BrokerData, MessageQueue, TopicConfig, TopicRouteData
from mq.protocol.message import Message, StoredMessage
from tests.client.clusters import FIRST, GROUP, TOPIC
from tests.interop.ports import free_port
from tests.waiting import until

SOON = 15.0  # seconds; the periodic route refresh and rebalance happen only every 30 s and 20 s


def broker(root: Path, name: str, port: int, names: str, **more: str) -> Broker:
    settings = {
        "listenPort": str(port),
        "brokerIP1": "127.0.0.1",
        "brokerName": name,
        "namesrvAddr": names,
        "storePathRootDir": str(root / name),
        **more,
    }
    return Broker(BrokerSettings.load(None, settings))


def test_a_returned_broker_is_soon_used_for_sends_and_pulls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.client.routing.route_changes.CHECK_SECONDS", 0.2, raising=False)
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    async def scenario(server: NameServer, parts: AsyncExitStack) -> None:
        names, port = server.address, free_port()
        steady = await parts.enter_async_context(broker(tmp_path, "steady", free_port(), names))
        session = await parts.enter_async_context(Session(names))
        async with broker(tmp_path, "absent", port, names) as absent:
            for each in (steady, absent):
                await Admin(session).create_topic(each.address, TopicConfig(topic_name=TOPIC))
            consumer = await parts.enter_async_context(
                Consumer(names, GROUP, {TOPIC: "*"}, listener=listen, consume_from=FIRST)
            )
            producer = await parts.enter_async_context(Producer(names))
            await producer.send(Message(TOPIC, b"before"), MessageQueue(TOPIC, "absent", 0))
            await until(lambda: got == [b"before"])
        # As a route check and a rebalance do while the broker is unavailable.
        for each_session in (consumer.session, producer.session):
            route = await each_session.fresh_route(TOPIC)
            assert [data.broker_name for data in route.broker_datas] == ["steady"]
        await consumer.reader.rebalance()
        assert {queue.broker_name for queue in consumer.assigned if queue.topic == TOPIC} == {
            "steady"
        }
        async with broker(tmp_path, "absent", port, names):
            async with asyncio.timeout(SOON):
                while not any(queue.broker_name == "absent" for queue in await queues(producer)):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await producer.send(Message(TOPIC, b"after"), MessageQueue(TOPIC, "absent", 0))
            await until(lambda: b"after" in got, SOON)

    async def queues(producer: Producer) -> list[MessageQueue]:
        return list(await producer.prepare(TOPIC))

    async def main() -> None:
        settings = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
        async with NameServer(NamesrvSettings.load(None, settings)) as server:
            async with AsyncExitStack() as parts:
                await scenario(server, parts)

    asyncio.run(main())


def test_a_send_to_a_broker_missing_from_the_route_refreshes_the_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.client.routing.route_changes.CHECK_SECONDS", 60.0)

    async def scenario(names: str, parts: AsyncExitStack) -> None:
        port = free_port()
        steady = await parts.enter_async_context(broker(tmp_path, "steady", free_port(), names))
        producer = await parts.enter_async_context(Producer(names))
        message, queue = Message(TOPIC, b"1"), MessageQueue(TOPIC, "absent", 0)
        async with broker(tmp_path, "absent", port, names) as absent:
            for each in (steady, absent):
                await Admin(producer.session).create_topic(
                    each.address, TopicConfig(topic_name=TOPIC)
                )
            await producer.send(message, queue)
        await producer.session.fresh_route(TOPIC)
        while "absent" in {each.broker_name for each in await producer.prepare(TOPIC)}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # up to a second, until it checks for a newer route
        with pytest.raises(RouteNotFound, match="no master absent"):
            await producer.send(message, queue)
        async with broker(tmp_path, "absent", port, names):
            async with asyncio.timeout(SOON):
                while not await sent(producer, message, queue):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    async def sent(producer: Producer, message: Message, queue: MessageQueue) -> bool:
        try:
            await producer.send(message, queue)
        except RouteNotFound:
            return False
        return True

    async def main() -> None:
        settings = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
        async with NameServer(NamesrvSettings.load(None, settings)) as server:
            async with AsyncExitStack() as parts:
                await scenario(server.address, parts)

    asyncio.run(main())


def test_a_send_to_a_set_without_a_master_refreshes_the_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.client.routing.route_changes.CHECK_SECONDS", 60.0)

    async def scenario(names: str, parts: AsyncExitStack) -> None:
        slave = {"brokerRole": "SLAVE", "brokerId": "1", "storePathRootDir": str(tmp_path / "s")}
        await parts.enter_async_context(broker(tmp_path, "set", free_port(), names, **slave))
        producer = await parts.enter_async_context(Producer(names))
        session, config = producer.session, TopicConfig(topic_name=TOPIC)
        async with broker(tmp_path, "set", free_port(), names) as first:
            await Admin(session).create_topic(first.address, config)
            await producer.send(Message(TOPIC, b"before"))
        async with asyncio.timeout(SOON):
            while 0 in (await session.fresh_route(TOPIC)).broker_datas[0].broker_addrs:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not await sent(producer)
        async with broker(tmp_path, "set", free_port(), names):  # another address
            async with asyncio.timeout(SOON):
                while not await sent(producer):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    async def sent(producer: Producer) -> bool:
        try:
            await producer.send(Message(TOPIC, b"after"))
        except MQError:
            return False
        return True

    async def main() -> None:
        settings = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
        async with NameServer(NamesrvSettings.load(None, settings)) as server:
            async with AsyncExitStack() as parts:
                await scenario(server.address, parts)

    asyncio.run(main())


def test_a_reachable_broker_is_used_although_a_name_server_does_not_know_it_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.client.routing.route_changes.KEEP_SECONDS", 1.0)

    async def scenario(knows_all: NameServer, partial: NameServer, parts: AsyncExitStack) -> None:
        both = f"{knows_all.address};{partial.address}"
        well = await parts.enter_async_context(broker(tmp_path, "well", free_port(), both))
        other = await parts.enter_async_context(
            broker(tmp_path, "other", free_port(), knows_all.address)
        )
        producer = await parts.enter_async_context(Producer(both))
        for each in (well, other):
            await Admin(producer.session).create_topic(each.address, TopicConfig(topic_name=TOPIC))
        message, queue = Message(TOPIC, b"1"), MessageQueue(TOPIC, "other", 0)
        await producer.send(message, queue)
        producer.session.set_name_servers(partial.address)
        for _ in range(2):
            route = await producer.session.fresh_route(TOPIC)
            assert [data.broker_name for data in route.broker_datas] == ["well"]
            await asyncio.sleep(0.1)
        await producer.prepare(TOPIC)
        await producer.send(message, queue)
        # Not forever: the name server may be right.
        async with asyncio.timeout(60):
            with pytest.raises(RouteNotFound, match="no master other"):
                while True:
                    await producer.send(message, queue)
                    await producer.session.fresh_route(TOPIC)
                    await asyncio.sleep(0.1)

    async def main() -> None:
        files = [str(tmp_path / f"kv-{number}.json") for number in (1, 2)]
        settings = [{"listenPort": "0", "kvConfigPath": file} for file in files]
        async with AsyncExitStack() as parts:
            first, second = [
                await parts.enter_async_context(NameServer(NamesrvSettings.load(None, each)))
                for each in settings
            ]
            await scenario(first, second, parts)

    asyncio.run(main())


def route_of(**addresses: str) -> TopicRouteData:
    by_id = {int(name[1:]): address for name, address in addresses.items()}
    broker = BrokerData(cluster="c", broker_name="a", broker_addrs=by_id)
    return TopicRouteData(queue_datas=[], broker_datas=[broker], filter_server_table={})


@pytest.mark.parametrize("connected", [True, False])
def test_a_master_that_has_left_its_set_counts_as_missing(connected: bool) -> None:
    changes = RouteChanges()
    both, slave = route_of(_0="master", _1="slave"), route_of(_1="slave")
    gained: list[str] = []
    changes.on_gain.append(gained.append)
    kept = changes.compare(TOPIC, both, slave, lambda address: connected and address == "master")
    assert kept == (both if connected else slave)
    assert changes.misses(TOPIC) and not gained
    assert changes.compare(TOPIC, slave, both, lambda _: False) == both
    assert not changes.misses(TOPIC)
    assert gained == [TOPIC]


def test_a_master_that_has_become_a_slave_is_not_kept_as_master() -> None:
    changes = RouteChanges()
    before, now = route_of(_0="first", _1="second"), route_of(_1="first")
    assert changes.compare(TOPIC, before, now, lambda _: True) == now
