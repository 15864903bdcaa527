"""Sets under controllers of this project whose master is killed again and again, while others send
and a group reads. Any controller may be killed as well.
"""

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemons.controller.etcd_server import EtcdServer
from tests.system.controlled_set import NAME, controller, leader_of, member
from tests.system.daemon import NameServerProcess
from tests.system.dying_masters import Rounds

pytestmark = [pytest.mark.longer, pytest.mark.timeout(2400)]

ROUNDS = 300 if os.environ.get("MQ_TEST_LONG") else 3
# In every round of this number the leader of the controllers is killed with the master. The other
# one becomes leader after its lease, and waits for heartbeats of brokers.
EACH = 5 if os.environ.get("MQ_TEST_LONG") else ROUNDS
# From kill -9 of the master to the next acknowledged send: half a second on a quiet machine.
MOST_SECONDS = 10.0
MOST_SECONDS_OF_BOTH = 30.0


def test_no_acknowledged_message_is_lost_when_masters_are_killed(tmp_path: Path) -> None:
    with ExitStack() as parts:
        etcd = parts.enter_context(EtcdServer(tmp_path)).url
        names = parts.enter_context(NameServerProcess(tmp_path / "names")).address
        controllers = [parts.enter_context(controller(tmp_path, number, etcd)) for number in (1, 2)]
        where = [one.address for one in controllers]
        members = [
            member(tmp_path, number, ";".join(where), minInSyncReplicas="2", namesrvAddr=names)
            for number in (1, 2, 3)
        ]
        for one in members:
            parts.enter_context(one)

        async def kill_the_leader(number: int) -> None:
            if number % EACH == EACH - 1:
                address = await leader_of(where)
                leader = next(one for one in controllers if one.address == address)
                await asyncio.to_thread(leader.kill)
                await asyncio.to_thread(leader.start)

        rounds = Rounds(tmp_path, NAME, members, where)
        asyncio.run(rounds.play(ROUNDS, names, kill_the_leader))
        assert [one.stop() for one in members] == [0, 0, 0]
    alone = [gap for number, gap in enumerate(rounds.figures.gaps) if number % EACH != EACH - 1]
    print(f"{rounds.figures}; {max(alone):.2f} s where no controller died")
    assert max(alone) < MOST_SECONDS, rounds.figures.gaps
    assert max(rounds.figures.gaps) < MOST_SECONDS_OF_BOTH, rounds.figures.gaps
