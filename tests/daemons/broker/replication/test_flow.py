"""A slave is sent a limited number of bytes each second (haFlowControlEnable), and everything in
the end.
"""

import asyncio
import time
from pathlib import Path

from mq.daemons.broker.replication.slave_connection import SLICES, FlowControl
from mq.daemons.broker.store_config import MessageStoreConfig
from tests.daemons.broker.replication.filling import fill
from tests.daemons.broker.replication.pair import ScriptedSlave, content, end_of, master
from tests.waiting import until

A_SLICE = 40_000
LIMITED = {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": str(A_SLICE * SLICES)}


def test_each_slice_of_a_second_has_its_part_of_the_bytes() -> None:
    store = MessageStoreConfig(max_ha_transfer_byte_in_second=10 * SLICES)
    flow = FlowControl()
    assert flow.room(store, 100.0) == 10
    flow.took(7)
    assert flow.room(store, 100.01) == 3
    flow.took(5)  # already read by a thread
    assert flow.room(store, 100.02) == 0
    assert 0 < flow.seconds_left(100.02) <= 1 / SLICES
    assert flow.room(store, 100.02 + 1 / SLICES) == 10


def test_a_slave_is_sent_no_more_than_the_limit_in_a_second(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, **LIMITED) as first:
            async with ScriptedSlave(first.ha_master.port) as slave:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                got, began = b"", time.monotonic()
                await fill(first, 60)
                while len(got) < end_of(first):
                    offset, piece = await slave.frame()
                    assert offset == len(got) and len(piece) <= A_SLICE
                    got += piece
                took = time.monotonic() - began
                assert got == content(first.stores.messages.log)
        assert len(got) > 4 * A_SLICE
        assert took > (len(got) / A_SLICE - 2) / SLICES

    asyncio.run(main())


def test_a_slave_that_disconnects_while_throttled_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        slow = {**LIMITED, "maxHaTransferByteInSecond": str(SLICES)}
        async with master(tmp_path, **slow) as first:
            await fill(first, 3)
            async with ScriptedSlave(first.ha_master.port) as slave:
                slave.say(0)
                await slave.frame()
            await until(lambda: not first.ha_master.slaves)

    asyncio.run(main())


def test_the_limit_is_lifted_while_the_master_runs(tmp_path: Path) -> None:
    async def main() -> None:
        slow = {**LIMITED, "maxHaTransferByteInSecond": str(SLICES)}  # an hour for what is there
        async with master(tmp_path, **slow) as first:
            async with ScriptedSlave(first.ha_master.port) as slave:
                slave.say(0)
                await until(lambda: first.ha_master.nearest() == 0)
                await fill(first, 60)
                await slave.frame()
                first.settings.update({"haFlowControlEnable": "false"})
                got = 1
                while got < end_of(first):
                    got += len((await slave.frame())[1])

    asyncio.run(main())
