"""Slaves of ours and of Java's: the tables that they copy, and the consumers that read there."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.consumer.consumer import Consumer
from mq.client.errors import MQError
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.protocol.bodies import ConsumeFromWhere, SubscriptionGroupConfig, TopicConfig
from mq.protocol.message import Message, StoredMessage
from tests.interop.faults.pairs import SLAVE, java, namesrv, ours
from tests.interop.java_client import JavaClient
from tests.interop.jvm import require_java
from tests.interop.peers import JavaNameServer
from tests.system.pairs import caught_up
from tests.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

TOPIC, GROUP = "roles", "roles-g"
PATIENCE = 60.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def prepare(names: str, master: str, count: int) -> None:
    """A topic with messages, a group with a non-default setting, and its offset."""
    async with Session(names) as session, Producer(session) as producer:
        admin = Admin(session)
        config = TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
        await admin.create_topic(master, config)
        group = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=7)
        await admin.update_subscription_group(master, group)
        sent = 0
        async with asyncio.timeout(PATIENCE):
            while sent < count:
                try:
                    await producer.send(Message(TOPIC, b"%d" % sent))
                    sent += 1
                except MQError:
                    await asyncio.sleep(0.2)
        await admin.update_consumer_offset(master, GROUP, TOPIC, 2, 1)


def has_copies(address: str) -> bool:
    async def ask() -> bool:
        async with Session("127.0.0.1:1", timeout=10) as session:
            admin = Admin(session)
            topics = (await admin.topic_configs(address)).topic_config_table
            groups = (await admin.subscription_groups(address)).subscription_group_table
            offsets = await admin.all_consumer_offsets(address)
            return (
                TOPIC in topics
                and topics[TOPIC].read_queue_nums == 4
                and GROUP in groups
                and groups[GROUP].retry_max_times == 7
                and offsets.get(f"{TOPIC}@{GROUP}", {}).get(2) == 1
            )

    return asyncio.run(ask())


# A 5.x slave copies every minute, the first time after a minute.
COPIES_LATE = ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.long)]


@pytest.mark.parametrize("release", COPIES_LATE)
def test_a_java_slave_copies_what_our_master_has(release: str, tmp_path: Path) -> None:
    require_java()
    with namesrv(tmp_path) as names, ours(tmp_path / "master", names) as master:
        asyncio.run(prepare(names, master.address, 4))
        with java(release, tmp_path, names, tmp_path / "slave", **SLAVE) as slave:
            deadline = time.monotonic() + 100
            while not has_copies(slave.address):
                assert time.monotonic() < deadline
                time.sleep(0.2)


def test_a_java_slave_of_5_has_the_log_of_our_master(tmp_path: Path) -> None:
    require_java()
    with namesrv(tmp_path) as names, ours(tmp_path / "master", names) as master:
        asyncio.run(prepare(names, master.address, 4))
        with java("5.5.0", tmp_path, names, tmp_path / "slave", **SLAVE) as slave:
            caught_up(slave.address, master.address)


@pytest.mark.parametrize("release", COPIES_LATE)
def test_our_slave_copies_what_a_java_master_has(release: str, tmp_path: Path) -> None:
    require_java()
    with namesrv(tmp_path) as names, java(release, tmp_path, names, tmp_path / "master") as master:
        asyncio.run(prepare(names, master.address, 4))
        with ours(tmp_path / "slave", names, **SLAVE) as slave:
            wait_until(lambda: has_copies(slave.address))
            assert "cannot copy" not in slave.log


@pytest.mark.parametrize("release", [pytest.param("4.9.8", marks=pytest.mark.long), "5.5.0"])
def test_java_consumers_continue_at_our_slave_when_our_master_dies(
    release: str, tmp_path: Path
) -> None:
    require_java()
    with namesrv(tmp_path) as names, ours(tmp_path / "master", names) as master:
        asyncio.run(prepare(names, master.address, 4))
        with (
            ours(tmp_path / "slave", names, **SLAVE) as slave,
            JavaClient(release, names, tmp_path) as client,
        ):
            wait_until(lambda: has_copies(slave.address))
            client.consume("c", "readers", TOPIC)
            client.got("c", 4)
            client.send(TOPIC, count=40)
            caught_up(slave.address, master.address)
            client.got("c", 44)
            master.kill()
            wait_until(lambda: master.address not in route(names))
            client.consume("late", "others", TOPIC)
            assert len(client.got("late", 44)) == 44


def route(names: str) -> list[str]:
    async def ask() -> list[str]:
        async with Session(names) as session:
            brokers = (await Admin(session).topic_route(TOPIC)).broker_datas
            return [address for broker in brokers for address in broker.broker_addrs.values()]

    return asyncio.run(ask())


@pytest.mark.parametrize("release", COPIES_LATE)
def test_our_consumer_continues_at_a_java_slave_when_the_java_master_dies(
    release: str, tmp_path: Path
) -> None:
    require_java()
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)
        await asyncio.sleep(0.01)

    async def consume(names: str, kill: Callable[[], object]) -> None:
        options = {"consume_from": FIRST, "listener": listen}
        options |= {"pull_batch": 1, "concurrency": 1}
        async with Consumer(names, "readers", {TOPIC: "*"}, **options):  # type: ignore[arg-type]
            async with asyncio.timeout(PATIENCE):
                while len(got) < 5:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(kill)
                while len(set(got)) < 60:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    with namesrv(tmp_path) as names, java(release, tmp_path, names, tmp_path / "master") as master:
        asyncio.run(prepare(names, master.address, 60))
        with java(release, tmp_path, names, tmp_path / "slave", **SLAVE) as slave:
            caught_up(slave.address, master.address)
            wait_until(lambda: has_copies(slave.address))
            asyncio.run(consume(names, master.kill))


def test_our_slave_finds_its_master_through_a_java_name_server(tmp_path: Path) -> None:
    require_java()
    with (
        JavaNameServer("4.9.7", tmp_path) as names,
        ours(tmp_path / "master", names.address) as master,
    ):
        asyncio.run(prepare(names.address, master.address, 4))
        with ours(tmp_path / "slave", names.address, **SLAVE) as slave:
            wait_until(lambda: has_copies(slave.address))
            caught_up(slave.address, master.address)
            assert route(names.address) == [master.address, slave.address]
