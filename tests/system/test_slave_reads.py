"""Consumers of a pair whose master is killed: they continue at the slave, and return."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.errors import MQError
from mq.client.producer.producer import Producer
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.bodies import ConsumeFromWhere, MessageQueue, TopicConfig
from mq.protocol.message import Message, StoredMessage
from tests.interop.ports import free_port
from tests.system.daemon import BrokerProcess
from tests.waiting import until

TOPIC, GROUP = "orders", "billing"
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
PATIENCE = 30.0
SOON = 1.0  # seconds: the required time
LATE = 4.0  # what a machine busy with other tests may add


@dataclass
class Pair:
    """A name server in this process, a master and its slave as processes, on fixed ports."""

    server: NameServer
    master: BrokerProcess
    slave: BrokerProcess
    session: Session
    got: list[tuple[bytes, float]] = field(default_factory=list)

    async def listen(self, message: StoredMessage) -> None:
        self.got.append((message.body, time.monotonic()))

    @property
    def bodies(self) -> set[bytes]:
        return {body for body, _ in self.got}

    def consumer(self, **options: object) -> Consumer:
        settings = {"consume_from": FIRST, "listener": self.listen, **options}
        return Consumer(self.server.address, GROUP, {TOPIC: "*"}, **settings)  # type: ignore[arg-type]

    async def slave_has_all(self) -> None:
        """Wait until its log is as long as the master's, and it knows the topic."""
        admin = Admin(self.session)
        async with asyncio.timeout(PATIENCE):
            while True:
                ends = [
                    (await admin.broker_runtime_info(address))["commitLogMaxOffset"]
                    for address in (self.master.address, self.slave.address)
                ]
                topics = await admin.topic_configs(self.slave.address)
                if ends[0] == ends[1] and TOPIC in topics.topic_config_table:
                    return
                await asyncio.sleep(0.05)


Script = Callable[[Pair], Awaitable[None]]


def with_pair(tmp_path: Path, script: Script, **settings: str) -> None:
    async def main() -> None:
        own = NamesrvSettings.load(
            None, {"listenPort": "0", "kvConfigPath": str(tmp_path / "kvConfig.json")}
        )
        with ExitStack() as processes:
            async with NameServer(own) as server, Session(server.address) as session:
                common = {"namesrvAddr": server.address, "brokerName": "pair", **settings}
                brokers: list[BrokerProcess] = []
                for name, role in (
                    ("master", {"brokerRole": "ASYNC_MASTER"}),
                    ("slave", {"brokerRole": "SLAVE", "brokerId": "1"}),
                ):
                    port = str(free_port())
                    broker = BrokerProcess(tmp_path / name, {**common, **role, "listenPort": port})
                    processes.callback(broker.kill)
                    await asyncio.to_thread(broker.start)
                    brokers.append(broker)
                await until(lambda: len(server.routes.live) == 2)
                pair = Pair(server, brokers[0], brokers[1], session)
                config = TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
                await Admin(session).create_topic(brokers[0].address, config)
                await script(pair)

    asyncio.run(main())


def numbers(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]


def test_a_slave_registers_its_address_and_no_topics(tmp_path: Path) -> None:
    async def script(pair: Pair) -> None:
        route = await Admin(pair.session).topic_route(TOPIC)
        [broker] = route.broker_datas
        assert broker.broker_addrs == {0: pair.master.address, 1: pair.slave.address}
        assert len(route.queue_datas) == 1

    with_pair(tmp_path, script)


def test_consumers_continue_at_the_slave_within_a_second_and_return(tmp_path: Path) -> None:
    async def script(pair: Pair) -> None:
        async with Producer(pair.session) as producer:
            for body in numbers(0, 100):
                await producer.send(Message(TOPIC, body))
            await pair.slave_has_all()
            # A slow listener with small batches: most messages are pulled from the slave.
            options = {"pull_batch": 1, "concurrency": 1}

            async def slowly(message: StoredMessage) -> None:
                await pair.listen(message)
                await asyncio.sleep(0.005)

            limits = {"listener": slowly, **options}
            async with pair.consumer(**limits) as consumer:
                await until(lambda: len(pair.got) >= 10)
                killed = time.monotonic()
                await asyncio.to_thread(pair.master.kill)
                await until(lambda: pair.bodies == set(numbers(0, 100)))
                times = sorted(at for _, at in pair.got if at > killed)
                gaps = [b - a for a, b in zip([killed, *times], times, strict=False)]
                assert max(gaps) < SOON + LATE
                with pytest.raises(MQError):
                    await producer.send(Message(TOPIC, b"nobody takes it"))
                await consumer.commit()
                await asyncio.to_thread(pair.master.start)
                began = time.monotonic()
                async with asyncio.timeout(PATIENCE):
                    while True:
                        try:
                            await producer.send(Message(TOPIC, b"back"))
                            break
                        except MQError:
                            await asyncio.sleep(0.1)
                await until(lambda: b"back" in pair.bodies)
                assert time.monotonic() - began < 10  # a route alone is refreshed after 30

    with_pair(tmp_path, script)


def test_a_pull_at_the_end_of_a_dead_masters_queue_waits_at_the_slave(tmp_path: Path) -> None:
    async def script(pair: Pair) -> None:
        async with Producer(pair.session) as producer:
            sent = await producer.send(Message(TOPIC, b"first"), MessageQueue(TOPIC, "pair", 0))
            await pair.slave_has_all()
            async with PullConsumer(pair.session, GROUP) as consumer:
                queue = sent.queue
                await consumer.pull(queue, 0)
                await asyncio.to_thread(pair.master.kill)
                begin = time.monotonic()
                result = await consumer.pull(queue, 0)
                assert [message.body for message in result.messages] == [b"first"]
                assert time.monotonic() - begin < SOON + LATE
                assert result.suggested_broker_id == 0
                result = await consumer.pull(queue, 1, wait=0.5)
                assert (result.status.name, result.next_offset) == ("NO_NEW", 1)
                assert time.monotonic() - begin > 0.4

    with_pair(tmp_path, script)


def test_a_member_that_joins_while_the_master_is_dead_continues_at_the_groups_offsets(
    tmp_path: Path,
) -> None:
    async def script(pair: Pair) -> None:
        async with Producer(pair.session) as producer:
            for body in numbers(0, 40):
                await producer.send(Message(TOPIC, body))
        async with pair.consumer() as consumer:
            await until(lambda: len(pair.bodies) == 40)
            await consumer.commit()
        admin = Admin(pair.session)

        async def copied() -> None:
            async with asyncio.timeout(PATIENCE):
                while True:
                    offsets = await admin.all_consumer_offsets(pair.slave.address)
                    if sum(offsets.get(f"{TOPIC}@{GROUP}", {}).values()) == 40:
                        return
                    await asyncio.sleep(0.1)

        await copied()
        await pair.slave_has_all()
        await asyncio.to_thread(pair.master.kill)
        pair.got.clear()
        async with pair.consumer() as consumer:
            await until(lambda: len([q for q in consumer.assigned if q.topic == TOPIC]) == 4)
            await asyncio.sleep(0.5)
            assert pair.got == []

    with_pair(tmp_path, script)
