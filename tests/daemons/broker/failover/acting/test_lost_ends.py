"""A master that returns without the end of its log, and a slave that has it."""

import asyncio
import shutil
from pathlib import Path

from tests.daemons.broker.failover.acting.sets import acts, cluster, have, is_copied, sees, send
from tests.daemons.broker.replication.pair import caught_up

SHORT = {"messageDelayLevel": "1s 2s 3s"}


def test_deliveries_that_a_master_lost_are_repeated_although_its_slave_knows_them(
    tmp_path: Path,
) -> None:
    """The slave's copy says that it was delivered, but in the master's log it is still waiting."""

    async def script() -> None:
        async with cluster(tmp_path) as brokers:
            async with brokers.master(**SHORT) as master:
                await send(master, b"delayed", DELAY="1")
            shutil.copytree(tmp_path / "master", tmp_path / "kept")
            async with brokers.slave(1, **SHORT) as slave:
                async with brokers.master(**SHORT) as master:
                    await have(master, 1)
                    await is_copied(slave, master)
                    assert slave.delivery.delayed.offsets == {1: 1}
                await acts(slave)
                # A power failure lost the later records.
                shutil.rmtree(tmp_path / "master")
                shutil.copytree(tmp_path / "kept", tmp_path / "master")
                async with brokers.master(**SHORT) as master:
                    await sees(slave, master)
                    assert await have(master, 1) == [b"delayed"]

    asyncio.run(script())


def test_messages_after_a_lost_end_are_delivered_by_a_slave_whose_copy_was_past_it(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        async with cluster(tmp_path) as brokers, brokers.other() as other:
            await send(other, b"topic")
            async with brokers.master(**SHORT) as master:
                await send(master, b"first")
            shutil.copytree(tmp_path / "master", tmp_path / "kept")
            async with brokers.slave(1, **SHORT) as slave:
                async with brokers.master(**SHORT) as master:
                    await send(master, b"lost", DELAY="1")
                    await have(master, 2)
                    await is_copied(slave, master)
                    assert slave.delivery.delayed.offsets == {1: 1}
                await acts(slave)
                shutil.rmtree(tmp_path / "master")
                shutil.copytree(tmp_path / "kept", tmp_path / "master")
                end_copying()  # as if the master died before it is asked
                async with brokers.master(**SHORT) as master:
                    await caught_up(slave, master)
                    await send(master, b"delayed", DELAY="1")
                    await caught_up(slave, master)
                assert await have(other, 2) == [b"delayed", b"topic"]

    asyncio.run(script())


def end_copying() -> None:
    for task in asyncio.all_tasks():
        if task.get_name() == "copies of the master's metadata":
            task.cancel()
