"""Groups with members of ours, to which a snode pushes, and members of Java, which pull."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client import Producer, PushConsumer
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.message import Message, StoredMessage
from tests.daemons.snode.world import ENODE, OTHER, RunningWorld
from tests.interop import peers
from tests.interop.java_client import JavaClient
from tests.interop.jvm import require_java

pytestmark = pytest.mark.java

TOPIC, GROUP = "Shared", "billing"
QUEUES = 4
COUNT = 240


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningWorld]:
    require_java()
    ports = f"{ENODE}:0;{OTHER}:0"
    with RunningWorld(tmp_path, (ENODE, OTHER), enodePorts=ports) as started:
        yield started


@pytest.mark.parametrize("release", peers.CLIENT_RELEASES)
def test_a_member_with_a_push_session_shares_a_group_with_a_pulling_java_member(
    running: RunningWorld, release: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    got: list[bytes] = []

    async def listen(message: StoredMessage) -> None:
        got.append(message.body)

    async def send() -> None:
        async with Producer(running.world.name_server.address, snode=True) as producer:
            for number in range(COUNT):
                await producer.send(Message(TOPIC, b"%d" % number))

    running.run(running.world.make_topic(TOPIC, QUEUES))
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer(
        running.world.name_server.address, GROUP, {TOPIC: "*"}, listener=listen, consume_from=first
    )
    home = tmp_path_factory.mktemp("java")
    with JavaClient(release, running.world.snode.address, home, "JSON") as java:
        java.consume("j", GROUP, TOPIC)
        running.run(consumer.open())
        ours: set[tuple[str, int]] = set()
        deadline = time.monotonic() + 60
        while True:
            ours = {(q.broker_name, q.queue_id) for q in consumer.assigned if q.topic == TOPIC}
            theirs = {(w[1], int(w[2])) for w in java("queues", "j") if w[0] == "QUEUE"}
            if len(ours) == len(theirs) == QUEUES and not ours & theirs:
                break
            assert time.monotonic() < deadline, (ours, theirs)
            time.sleep(0.05)
        running.run(send())
        pulled = [one.body for one in java.got("j", COUNT // 2)]
        while len(got) < COUNT // 2:
            assert time.monotonic() < deadline + 60
            time.sleep(0.05)
        everything = Counter([*pulled, *(body.decode() for body in got)])
        assert everything == Counter(map(str, range(COUNT)))
        assert running.world.snode.push.counts["pushed"] == COUNT // 2
        java.stop_consumer("j")
    running.run(consumer.close())
