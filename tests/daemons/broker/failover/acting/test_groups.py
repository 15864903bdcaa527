"""Offsets of groups when a master returns whose slave was acting master."""

import asyncio
import threading
from pathlib import Path

import pytest

from mq.daemons.broker.failover.acting.service import TICK
from mq.daemons.state_file import write_atomically
from tests.daemons.broker.failover.acting.commits import commit
from tests.daemons.broker.failover.acting.sets import (
    LONG,
    SET,
    acts,
    bodies,
    cluster,
    have,
    is_copied,
    sees,
    send,
)
from tests.daemons.namesrv.servers import header, register
from tests.daemons.peer import Peer
from tests.waiting import until


def test_a_group_reset_before_its_master_went_down_stays_reset(tmp_path: Path) -> None:
    """The slave's copy is older, and ahead."""

    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave() as slave:
            async with brokers.master() as master:
                for number in range(4):
                    await send(master, b"%d" % number)
                    await send(master, b"%d" % number, queue_id=1)
                await commit(master, 3)
                await is_copied(slave, master)
                await commit(master, 1)
            await acts(slave)
            slave.stores.offsets.commit("G", "Orders", 1, 2)
            async with brokers.master() as master:
                await sees(slave, master)
                assert master.stores.offsets.queues("G", "Orders") == {0: 1, 1: 2}

    asyncio.run(script())


def test_a_master_learns_of_a_restarted_slave_that_is_not_acting_yet(
    tmp_path: Path,
) -> None:
    short = {"messageDelayLevel": "1s"}

    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            await send(other, b"topic")
            async with brokers.slave(1, **short) as slave:
                async with brokers.master(**LONG) as master:
                    await send(master, b"first")
                    await send(master, b"delayed", DELAY="1")
                    await is_copied(slave, master)
                await acts(slave)
                await commit(slave, 1)
                await have(other, 2)
            async with (
                Peer(brokers.names.port) as peer,
                brokers.slave(1, namesrvAddr="127.0.0.1:1", **short) as slave,
            ):
                await register(peer, told=header(SET, slave.address, 1, enable_acting_master=True))
                async with brokers.master(**short) as master:
                    assert not slave.acting.master.began  # type: ignore[union-attr]
                    assert master.delivery.delayed.offsets == {1: 1}
                    assert master.stores.offsets.query("G", "Orders", 0) == 1
            assert bodies(other) == [b"delayed", b"topic"]

    asyncio.run(script())


def test_a_slave_does_not_start_acting_while_it_applies_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last save would count as a copy, and nothing would be reported to the master."""
    goes_on, writes = threading.Event(), threading.Event()

    def write_slowly(path: Path, data: bytes) -> None:
        if "slave-1" in str(path):
            writes.set()
            goes_on.wait(20)
        write_atomically(path, data)

    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.slave() as slave:
            async with brokers.master() as master:
                for number in range(4):
                    await send(master, b"%d" % number)
                await is_copied(slave, master)
                await commit(master, 1)
                monkeypatch.setattr(
                    "mq.daemons.broker.offsets.offset_table.write_atomically", write_slowly
                )
                synchronize = slave.metadata.synchronize
                assert synchronize is not None
                copying = asyncio.ensure_future(synchronize.round(master.address))
                await until(writes.is_set)
            await sees(slave)
            await asyncio.sleep(2 * TICK)
            goes_on.set()
            await copying
            await acts(slave)
            await commit(slave, 3)
            async with brokers.master() as master:
                assert master.stores.offsets.query("G", "Orders", 0) == 3

    asyncio.run(script())
