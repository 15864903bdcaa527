"""A TubeMQ broker, and its master, that are killed at random moments while producers send.

`make test-long` kills 30 times, MQ_CRASH_ROUNDS says another number.
"""

import asyncio
import itertools
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mq.client.errors import MQError
from mq.client.tube.consumer import TubeConsumer
from mq.client.tube.options import ConsumeFrom
from mq.client.tube.producer import TubeProducer
from tests.interop.tube.servers import cluster

ROUNDS = int(os.environ.get("MQ_CRASH_ROUNDS", 30 if os.environ.get("MQ_TEST_LONG") else 2))
TOPIC = "ledger"
PARTITIONS = 4
LANES = 24
# With fewer acknowledged messages a kill could hardly lose any.
EACH_ROUND = 200
# Small files, so that every round rolls them.
SMALL = {"maxSegmentSize": "100000", "maxIndexSegmentSize": "14000"}


@dataclass
class Ledger:
    """The messages sent and acknowledged: "lane-number", consecutive for each lane."""

    sent: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    one_more: asyncio.Event = field(default_factory=asyncio.Event)

    async def keep(self, producer: TubeProducer, lane: int) -> None:
        for number in itertools.count():
            identity = f"{lane}-{number}"
            self.sent.add(identity)
            try:
                await producer.send(TOPIC, identity.encode().ljust(300, b"."))
            except MQError:
                await asyncio.sleep(0.02)  # without asking a dead broker in a loop
            else:
                self.acknowledged.add(identity)
                self.one_more.set()

    async def grown(self, by: int) -> None:
        wanted = len(self.acknowledged) + by
        while len(self.acknowledged) < wanted:
            self.one_more.clear()
            await self.one_more.wait()


async def read_all(master: str, wanted: set[str]) -> dict[str, list[str]]:
    """The messages of each partition, from the first on, until all expected ones were there."""
    found: dict[str, list[str]] = defaultdict(list)
    missing = set(wanted)
    async with (
        TubeConsumer(
            master, "auditor", TOPIC, consume_from=ConsumeFrom.FIRST, heartbeat_interval=0.3
        ) as consumer,
        asyncio.timeout(60),
    ):
        while missing:
            batch = await consumer.get_message()
            identities = [one.body.rstrip(b".").decode() for one in batch.messages]
            found[batch.partition_key] += identities
            missing.difference_update(identities)
            await consumer.confirm(batch)
    return found


def check(ledger: Ledger, found: dict[str, list[str]]) -> None:
    """Check that each acknowledged message exists once, others at most once, and those of a lane in
    order.
    """
    counts = Counter(itertools.chain.from_iterable(found.values()))
    assert not ledger.acknowledged - counts.keys()
    assert not counts.keys() - ledger.sent
    assert not {identity for identity, count in counts.items() if count > 1}
    for identities in found.values():
        last: dict[str, int] = {}
        for identity in identities:
            lane, _, number = identity.partition("-")
            assert last.get(lane, -1) < int(number)
            last[lane] = int(number)


async def kill_and_send(master: str, kill: Callable[[random.Random], None]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    ledger = Ledger()
    async with TubeProducer(master, TOPIC, heartbeat_interval=0.3) as producer:
        lanes = [asyncio.create_task(ledger.keep(producer, lane)) for lane in range(LANES)]
        try:
            for _ in range(ROUNDS):
                async with asyncio.timeout(60):
                    await ledger.grown(chance.randrange(EACH_ROUND, 3 * EACH_ROUND))
                await asyncio.to_thread(kill, chance)
        finally:
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
    await asyncio.to_thread(kill, chance)
    found = await read_all(master, ledger.acknowledged)
    print(f"{len(ledger.acknowledged)} acknowledged, {len(ledger.sent)} sent")
    check(ledger, found)


@pytest.mark.longer
@pytest.mark.timeout(120 + 60 * ROUNDS)
@pytest.mark.parametrize("mode", ["os", "sync"])
def test_no_acknowledged_message_is_lost_or_doubled_by_kill_9_of_the_broker(
    tmp_path: Path, mode: str
) -> None:
    with cluster(tmp_path, flushMode=mode, **SMALL) as (master, broker):
        master.create_topic(TOPIC, PARTITIONS)

        def kill(chance: random.Random) -> None:
            broker.kill()
            broker.start()

        asyncio.run(kill_and_send(master.address, kill))


@pytest.mark.longer
@pytest.mark.timeout(120 + 60 * ROUNDS)
def test_no_acknowledged_message_is_lost_by_kill_9_of_master_and_broker_in_any_order(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, **SMALL) as (master, broker):
        master.create_topic(TOPIC, PARTITIONS)

        def kill(chance: random.Random) -> None:
            killed = chance.sample([master, broker], chance.choice([1, 2]))
            for daemon in killed:
                daemon.kill()
            for daemon in chance.sample(killed, len(killed)):
                daemon.start()

        asyncio.run(kill_and_send(master.address, kill))
