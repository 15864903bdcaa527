"""Snodes and their broker that are killed at random moments while processes send.

`make test-long` kills 30 times, MQ_CRASH_ROUNDS sets another number.
"""

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from mq.client import Consumer
from mq.protocol.bodies import ConsumeFromWhere
from tests.system.daemon import BrokerProcess, DaemonProcess, NameServerProcess, SnodeProcess
from tests.system.faults.crashing import SETTINGS
from tests.system.ledger import TOPIC, SenderProcess, audit, identity_of

ROUNDS = int(os.environ.get("MQ_CRASH_ROUNDS", 30 if os.environ.get("MQ_TEST_LONG") else 3))
SENDERS = 2


async def consumed(address: str, wanted: set[str]) -> set[str]:
    """The messages that a group gets through the snode at an address, until it has the expected
    ones.
    """
    found: set[str] = set()
    start = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with (
        asyncio.timeout(120),
        Consumer(address, "auditors", {TOPIC: "*"}, consume_from=start) as consumer,
    ):
        async for message in consumer:
            found.add(identity_of(message.body))
            if wanted <= found:
                break
    return found


@pytest.mark.timeout(180 + 15 * ROUNDS)
def test_messages_acknowledged_through_a_snode_survive_kill_9_of_it_and_of_the_broker(
    tmp_path: Path,
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    address_file = tmp_path / "address"
    (tmp_path / "namesrv").mkdir()
    with NameServerProcess(tmp_path / "namesrv") as name_server:
        broker = BrokerProcess(tmp_path / "store", {**SETTINGS, "namesrvAddr": name_server.address})
        snode = SnodeProcess(tmp_path / "snode.log", name_server.address)
        with broker, snode:
            address_file.write_text(snode.address)
            senders = [SenderProcess(tmp_path, number, address_file) for number in range(SENDERS)]
            for sender in senders:
                sender.start()
            try:
                for number in range(ROUNDS):
                    time.sleep(chance.uniform(0.5, 1.5))  # the moment of the kill is varied
                    victim: DaemonProcess = (snode, broker)[number % 2]
                    victim.kill()
                    victim.start()
                    address_file.write_text(snode.address)
                    before = sum(sender.acknowledged for sender in senders)
                    deadline = time.monotonic() + 60
                    while sum(sender.acknowledged for sender in senders) < before + 100:
                        assert time.monotonic() < deadline, "nothing is acknowledged any more"
                        time.sleep(0.02)
            finally:
                for sender in senders:
                    sender.stop()
            result = audit(tmp_path, broker.address)
            print(f"{len(result.acknowledged)} acknowledged, {sum(result.stored.values())} stored")
            result.check()
            found = asyncio.run(consumed(snode.address, result.acknowledged))
            assert result.acknowledged <= found <= result.sent
            assert snode.stop() == 0
