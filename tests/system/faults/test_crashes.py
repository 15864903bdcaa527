"""A broker that is killed at random moments while several processes send.

`make test-long` kills it 30 times, MQ_CRASH_ROUNDS says another number.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.system.daemon import BrokerProcess
from tests.system.faults.crashing import ROUNDS, SETTINGS
from tests.system.ledger import SenderProcess, audit

SENDERS = 3
# With fewer acknowledged messages a kill could hardly lose any.
EACH_ROUND = 101


@pytest.mark.longer
@pytest.mark.timeout(120 + 60 * ROUNDS)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_no_acknowledged_message_is_lost_or_doubled_by_kill_9(tmp_path: Path, flush: str) -> None:
    """Without a machine crash that holds for an asynchronous flush, too."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path / "store", {**SETTINGS, "flushDiskType": flush})
    broker.start()
    address_file = tmp_path / "address"
    address_file.write_text(broker.address)
    senders = [SenderProcess(tmp_path, number, address_file) for number in range(SENDERS)]
    for sender in senders:
        sender.start()
    try:
        for _ in range(ROUNDS):
            wanted = acknowledged(senders) + EACH_ROUND
            time.sleep(chance.uniform(0.3, 1.5))  # the moment of the kill is varied
            while acknowledged(senders) < wanted:  # the machine is slow, or busy
                time.sleep(chance.uniform(0, 0.1))
            broker.kill()
            broker.start()
            address_file.write_text(broker.address)
    finally:
        for sender in senders:
            sender.stop()
    broker.kill()
    broker.start()
    result = audit(tmp_path, broker.address)
    assert broker.stop() == 0
    print(f"{len(result.acknowledged)} acknowledged, {sum(result.stored.values())} stored")
    assert len(result.acknowledged) >= EACH_ROUND * ROUNDS
    result.check()


def acknowledged(senders: Sequence[SenderProcess]) -> int:
    """The number of acknowledged messages of all senders."""
    return sum(sender.acknowledged for sender in senders)
