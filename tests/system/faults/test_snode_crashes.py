"""Snodes that are killed repeatedly, while others send through them to a group."""

import asyncio
import os
import re
from collections import defaultdict
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest

from mq.client import Producer, PushConsumer, Session
from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.protocol.bodies import ConsumeFromWhere, TopicConfig
from mq.protocol.message import Message, StoredMessage
from tests.interop.ports import free_port
from tests.system.daemon import BrokerProcess, DaemonProcess, NameServerProcess

pytestmark = [pytest.mark.longer, pytest.mark.timeout(1200)]

KILLS = 60 if os.environ.get("MQ_TEST_LONG") else 4
TOPIC = "Orders"
QUEUES = 4
LANES = 8
# The messages sent between two kills at least.
ACKNOWLEDGED = 200


class SnodeProcess(DaemonProcess):
    """`mq snode` on loopback, on the same port after each start."""

    word = "snode"
    ready = re.compile(r"The snode\[[^,]+, ([0-9.:]+)\] boot success")

    def __init__(self, folder: Path, name: str, namesrv: str, **settings: str) -> None:
        super().__init__(
            folder / f"{name}.log",
            {
                "snodeIP1": "127.0.0.1",
                "listenPort": str(free_port()),
                "snodeName": name,
                "namesrvAddr": namesrv,
                "metricsEnable": "false",
                **settings,
            },
        )


class Ledger:
    """The acknowledged messages, and those that the group received."""

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self.failed = 0
        self.given: set[bytes] = set()
        self.offsets: dict[int, list[int]] = defaultdict(list)
        self.news = asyncio.Event()

    async def listen(self, message: StoredMessage) -> None:
        self.given.add(bytes(message.body))
        self.offsets[message.queue_id].append(message.queue_offset)
        self.news.set()

    async def send(self, producer: Producer, lane: int, stop: asyncio.Event) -> None:
        """Send one message after the other."""
        queues = await producer.prepare(TOPIC)
        number = 0
        while not stop.is_set():
            body = b"%d-%d" % (lane, number)
            number += 1
            try:
                await producer.send(Message(TOPIC, body), queues[lane % QUEUES])
            except MQError:
                self.failed += 1
                await asyncio.sleep(0.05)
            else:
                self.acknowledged.add(body)
                self.news.set()

    async def until(self, condition: object) -> None:
        assert callable(condition)
        async with asyncio.timeout(90):
            while not condition():
                self.news.clear()
                await self.news.wait()

    def check(self) -> str:
        """Check that no message is missing, and each queue was received in order. Returns a
        remark."""
        assert self.acknowledged - self.given == set()
        again = 0
        for offsets in self.offsets.values():
            seen: set[int] = set()
            first_time = [o for o in offsets if not (o in seen or seen.add(o))]  # type: ignore[func-returns-value]
            assert first_time == list(range(len(first_time)))
            again += len(offsets) - len(first_time)
        return f"{len(self.acknowledged)} acknowledged, {self.failed} failed, {again} came again"


async def play(namesrv: str, broker: BrokerProcess, victims: list[DaemonProcess]) -> Ledger:
    """Kill one victim after the other."""
    ledger = Ledger()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(Session(namesrv))
        config = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        await Admin(session).create_topic(broker.address, config)
        await stack.enter_async_context(
            PushConsumer(
                namesrv,
                "billing",
                {TOPIC: "*"},
                listener=ledger.listen,
                ordered=True,
                consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            )
        )
        producer = await stack.enter_async_context(Producer(namesrv, snode=True, timeout=2.0))
        stop = asyncio.Event()
        lanes = [asyncio.create_task(ledger.send(producer, n, stop)) for n in range(LANES)]
        for number in range(KILLS):
            goal = len(ledger.acknowledged) + ACKNOWLEDGED
            await ledger.until(lambda goal=goal: len(ledger.acknowledged) >= goal)
            given = len(ledger.given)
            await ledger.until(lambda given=given: len(ledger.given) > given)
            victim = victims[number % len(victims)]
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)
        goal = len(ledger.acknowledged) + ACKNOWLEDGED
        await ledger.until(lambda: len(ledger.acknowledged) >= goal)
        stop.set()
        await asyncio.gather(*lanes)
        await ledger.until(lambda: ledger.acknowledged <= ledger.given)
    return ledger


@pytest.mark.parametrize(
    ("count", "enode_dies"), [(1, False), (2, False), (2, True)], ids=["one", "two", "and enode"]
)
def test_no_acknowledged_message_is_lost_when_snodes_are_killed(
    tmp_path: Path, count: int, enode_dies: bool
) -> None:
    with ExitStack() as parts:
        namesrv = parts.enter_context(NameServerProcess(tmp_path / "names")).address
        settings = {
            "namesrvAddr": namesrv,
            "brokerName": "enode",
            "listenPort": str(free_port()),
            "haListenPort": str(free_port()),
        }
        broker = parts.enter_context(BrokerProcess(tmp_path / "store", settings))
        snodes = [SnodeProcess(tmp_path, f"snode-{number}", namesrv) for number in range(count)]
        for snode in snodes:
            parts.enter_context(snode)
        victims = [*snodes, broker] if enode_dies else snodes
        ledger = asyncio.run(play(namesrv, broker, list(victims)))
        print(ledger.check())
        assert [snode.stop() for snode in snodes] == [0] * count
