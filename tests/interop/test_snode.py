"""Java clients, which do not know snodes, use one as their name server."""

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest

from mq.client import Consumer, Producer
from mq.client.admin import Admin
from mq.client.consumer.push.listener import RetryLater
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.broker.app import Broker
from mq.daemons.snode.app import Snode
from mq.protocol.bodies import ConsumeFromWhere, TopicConfig
from mq.protocol.message import Message, StoredMessage
from tests.daemons.snode.world import (
    ENODE,
    OTHER,
    RunningWorld,
    broker_settings,
    snode_settings,
)
from tests.interop import peers
from tests.interop.java_client import JavaClient
from tests.interop.jvm import require_java

pytestmark = pytest.mark.java

QUEUES = 4
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
_numbers = itertools.count()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorld]:
    require_java()
    folder = tmp_path_factory.mktemp("world")
    ports = f"{ENODE}:0;{OTHER}:0"
    with RunningWorld(folder, (ENODE, OTHER), enodePorts=ports) as started:
        yield started


@pytest.fixture(
    scope="module",
    params=list(itertools.product(peers.CLIENT_RELEASES, ("JSON", "ROCKETMQ"))),
    ids="-".join,
)
def java(
    request: pytest.FixtureRequest, running: RunningWorld, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    release, serialization = request.param
    address = running.world.snode.address
    home = tmp_path_factory.mktemp("java")
    with JavaClient(release, address, home, serialization) as client:
        yield client


@pytest.fixture
def topic(running: RunningWorld) -> str:
    name = f"java-{next(_numbers)}"
    running.run(running.world.make_topic(name, QUEUES))
    return name


def expected(tag: str, count: int) -> list[str]:
    return sorted(f"{tag}-{number}" for number in range(count))


@pytest.mark.parametrize("way", ["sync", "async", "oneway", "batch"])
def test_messages_of_java_are_stored_and_consumed_through_the_snode(
    java: JavaClient, topic: str, way: str
) -> None:
    group = f"{topic}-g"
    sent = java.send(topic, way, "t", 8)
    if way in ("sync", "async"):
        assert {one.broker for one in sent} <= {ENODE, OTHER}
        assert len(sent) == 8
    java.consume(topic, group, topic)  # the unique name identifies the messages that it gets
    assert sorted(one.body for one in java.got(topic, 8)) == expected("t", 8)
    java.stop_consumer(topic)


def test_members_share_the_queues_of_both_brokers_and_commit_their_offsets(
    java: JavaClient, running: RunningWorld, topic: str
) -> None:
    group = f"{topic}-g"
    java.send(topic, "sync", "t", 16)
    java.consume("a", group, topic)
    java.got("a", 16)
    java.consume("b", group, topic)
    everything = {(name, queue) for name in (ENODE, OTHER) for queue in range(QUEUES)}

    def shares() -> list[set[tuple[str, int]]]:
        return [
            {(w[1], int(w[2])) for w in java("queues", name) if w[0] == "QUEUE"}
            for name in ("a", "b")
        ]

    deadline = time.monotonic() + 60
    while True:
        first, second = shares()
        if not first & second and first | second == everything and len(first) == QUEUES:
            break
        assert time.monotonic() < deadline, (first, second)
        time.sleep(0.05)

    def committed() -> int:
        found = 0
        for name in (ENODE, OTHER):
            offsets = running.world.snode.offsets
            stored = running.world.brokers[name].stores.offsets
            for queue in range(QUEUES):
                known = offsets.acked(name, topic, group, queue)
                found += max(0, stored.query(group, topic, queue) if known is None else known)
        return found

    java.commit("a", lambda: committed() == 16)
    for name in ("a", "b"):
        java.stop_consumer(name)


def test_ordered_consumers_lock_their_queues_through_a_snode(java: JavaClient, topic: str) -> None:
    for queue in range(2):
        for number in range(4):
            java.send(topic, queue, f"q{queue}n{number}", 1)
    java.consume(topic, f"{topic}-g", topic, "*", "orderly")
    got = java.got(topic, 8)
    assert len(got) == 8
    for name, queue in itertools.product((ENODE, OTHER), range(2)):
        bodies = [one.body for one in got if (one.broker, one.queue_id) == (name, queue)]
        assert bodies == sorted(bodies)
    java.stop_consumer(topic)


def test_tags_are_filtered_through_a_snode(java: JavaClient, topic: str) -> None:
    java.send(topic, "sync", "red", 4)
    java.send(topic, "sync", "blue", 4)
    java.consume(topic, f"{topic}-g", topic, "blue")
    assert sorted(one.body for one in java.got(topic, 4)) == expected("blue", 4)
    java.stop_consumer(topic)


def test_a_pull_consumer_reads_queues_through_a_snode(java: JavaClient, topic: str) -> None:
    java.send(topic, "sync", "t", 8)
    bodies = [one.body for one in java.messages("lite", f"{topic}-g", topic, "*", 8)]
    assert sorted(bodies) == expected("t", 8)


@pytest.mark.parametrize("release", peers.SERVER_RELEASES)
def test_java_brokers_work_behind_a_snode(
    release: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """351 and 355 mean something else there, or nothing: a snode sends other requests to them."""
    require_java()
    folder = tmp_path_factory.mktemp(f"enode-{release}")

    async def through(address: str) -> tuple[set[bytes], int]:
        found: set[bytes] = set()
        again = 0
        async with asyncio.timeout(90), Producer(address, "p") as producer:
            for number in range(8):
                await producer.send(Message("T", b"%d" % number))

            async def listen(message: StoredMessage) -> None:
                nonlocal again
                if message.reconsume_times == 0 and message.body == b"3":
                    raise RetryLater(1)
                again += message.reconsume_times
                found.add(message.body)

            async with Consumer(address, "g", {"T": "*"}, listener=listen, consume_from=FIRST):
                while len(found) < 8:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        return found, again

    with (
        RunningWorld(folder, ()) as running,
        peers.JavaBroker(release, folder, running.world.name_server.address) as broker,
    ):
        running.run(running.world.snode.enodes.refresh())
        with BlockingSession(running.world.name_server.address) as session:
            config = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
            run(Admin(session).create_topic(broker.address, config))
        found, again = asyncio.run(through(running.world.snode.address))
        assert (found, again) == ({b"%d" % number for number in range(8)}, 1)


@pytest.mark.parametrize("release", peers.SERVER_RELEASES)
def test_a_snode_works_with_a_java_name_server_that_does_not_know_snodes(
    release: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    require_java()
    folder = tmp_path_factory.mktemp(f"namesrv-{release}")

    async def main(address: str) -> None:
        settings = broker_settings(folder, ENODE, address)
        async with Broker(settings), Snode(snode_settings(address)) as snode:
            assert snode.enodes.masters.keys() == {ENODE}
            async with asyncio.timeout(60), Producer(snode.address, "p") as producer:
                result = await producer.send(Message("T", b"x"))
            assert result.queue.broker_name == ENODE
            # it does not ask this name server again at once
            assert await snode.registration.register()
            assert snode.registration.unregistered() == [address]

    with peers.JavaNameServer(release, folder) as name_server:
        asyncio.run(main(name_server.address))
