"""The Java push consumer of 5.5.0 in pop mode against our broker."""

import asyncio
import time
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.protocol.bodies import TopicConfig
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.tools import our_daemons, warm_tool

pytestmark = pytest.mark.java

RELEASE = "5.5.0"
TOPIC = "PoppedByJava"
GROUP = "JavaPopGroup"


async def make_topic(namesrv: str, broker: str) -> None:
    async with Session(namesrv) as session:
        config = TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
        await Admin(session).create_topic(broker, config)


async def produce(namesrv: str, bodies: list[str], tag: str = "a") -> None:
    async with Producer(namesrv, group="P") as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body.encode(), tags=tag))


async def waiting_pops(broker: str) -> int:
    """The number of suspended pops at our broker."""
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}
    async with Session("127.0.0.1:1") as session:
        reply = await session.invoke(broker, Command(RequestCode.POLLING_INFO, fields))
        return int(reply.fields["pollingNum"])


def test_a_java_consumer_pops_acknowledges_and_gets_failed_messages_again(
    tmp_path: Path,
) -> None:
    require_java()
    with our_daemons(tmp_path) as (namesrv, broker):
        asyncio.run(make_topic(namesrv, broker))
        names = ("-b", broker, "-t", TOPIC, "-g", GROUP)
        tool = warm_tool(RELEASE)
        told = tool("setConsumeMode", "-n", namesrv, *names, "-m", "POP", "-q", "0")
        assert "success" in told
        asyncio.run(produce(namesrv, [f"old-{n}" for n in range(8)]))
        with peers.JavaProgram(
            RELEASE, "Pop.java", namesrv, GROUP, TOPIC, "a || b", tmp=tmp_path
        ) as consumer:
            lines = consumer.wait_for_line("GOT old-", count=8, timeout=60)
            assert sorted(line for line in lines if "GOT old-" in line) == [
                f"GOT old-{n} 0 true {TOPIC}" for n in range(8)
            ]
            # From here on its pops are suspended at the broker: messages arrive at once.
            deadline = time.monotonic() + 60
            while asyncio.run(waiting_pops(broker)) == 0:
                assert time.monotonic() < deadline, "the consumer does not pop"
            asyncio.run(produce(namesrv, ["other"], tag="c"))
            asyncio.run(produce(namesrv, ["later-1", "later-2", "new"], tag="b"))
            consumer.wait_for_line("GOT new 0 true")
            for number in (1, 2):
                consumer.wait_for_line(f"GOT later-{number} 0 true {TOPIC}")
                # It hides them for 10 s (popDelayLevel), then they arrive as retries.
                consumer.wait_for_line(f"GOT later-{number} 1 true {TOPIC}", timeout=40)
            got = [line for line in consumer.lines if line.startswith("GOT ")]
            assert len(got) == len(set(got)) == 8 + 3 + 2
