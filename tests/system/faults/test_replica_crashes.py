"""A SYNC_MASTER and its slave, either killed at random moments while several processes send.

`make test-long` kills 30 times, MQ_CRASH_ROUNDS says another number.
"""

import random
import time
from pathlib import Path

import pytest

from tests.interop.ports import free_port
from tests.system.daemon import BrokerProcess
from tests.system.faults.crashing import ROUNDS, SETTINGS
from tests.system.ledger import SenderProcess, audit
from tests.system.pairs import assert_equal, caught_up

SENDERS = 2


@pytest.mark.longer
@pytest.mark.timeout(120 + 10 * ROUNDS)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_slave_equals_its_master_however_often_either_is_killed(
    tmp_path: Path, flush: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    port = free_port()
    settings = {**SETTINGS, "brokerName": "broker-a", "flushDiskType": flush}
    master = BrokerProcess(
        tmp_path / "master",
        {**settings, "listenPort": str(port), "brokerRole": "SYNC_MASTER", "slaveTimeout": "1000"},
    )
    of_slave = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": f"127.0.0.1:{port + 1}"}
    slave = BrokerProcess(
        tmp_path / "slave", {**settings, **of_slave, "listenPort": str(free_port())}
    )
    master.start()
    slave.start()
    address_file = tmp_path / "address"
    address_file.write_text(master.address)
    senders = [SenderProcess(tmp_path, number, address_file) for number in range(SENDERS)]
    for sender in senders:
        sender.start()
    try:
        for number in range(ROUNDS):
            time.sleep(chance.uniform(0.3, 1.5))  # the moment of the kill is varied
            victim = (slave, master)[number % 2]
            victim.kill()
            victim.start()
        time.sleep(1.0)
    finally:
        for sender in senders:
            sender.stop()
    caught_up(slave.address, master.address)
    result = audit(tmp_path, master.address)
    assert slave.stop() == 0
    assert master.stop() == 0
    print(f"{len(result.acknowledged)} acknowledged, {sum(result.stored.values())} stored")
    assert len(result.acknowledged) > 20 * ROUNDS
    result.check()
    assert_equal(tmp_path / "slave", tmp_path / "master")
