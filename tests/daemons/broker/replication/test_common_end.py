"""A slave whose log is not its master's: it truncates records that its master never had, or
refuses.
"""

import asyncio
import shutil
from pathlib import Path

import pytest

from mq.daemons.broker.replication.common_end import Bounds, common_end
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.replica.replica import NotReplicated
from tests.daemons.broker.replication.pair import (
    LOG_FILE,
    caught_up,
    content,
    end_of,
    entries,
    master,
    pair,
    send,
    slave_of,
)
from tests.daemons.peer import Peer
from tests.interop.ports import free_port
from tests.waiting import until


async def fill(port: int, text: str, count: int = 20) -> None:
    async with Peer(port) as peer:
        for number in range(count):
            await send(peer, f"{text} {number} ".encode() * 200, queue_id=number % 4,
                       properties=f"KEYS\x01{text}-{number}")  # fmt: skip


def test_records_that_the_master_has_lost_are_truncated_and_kept(tmp_path: Path) -> None:
    """A power failure lost the master's end, which its slave has; then it accepted other
    messages."""

    async def main() -> None:
        async with pair(tmp_path) as (first, slave):
            await fill(first.port, "common", 40)
            await caught_up(slave, first)
            common = end_of(first)
        shutil.copytree(tmp_path / "master", tmp_path / "as-it-was")
        async with pair(tmp_path) as (first, slave):
            await fill(first.port, "lost", 60)
            await caught_up(slave, first)
            lost = content(first.stores.messages.log, common)
        shutil.rmtree(tmp_path / "master")
        (tmp_path / "as-it-was").rename(tmp_path / "master")
        async with master(tmp_path) as first:
            await fill(first.port, "new", 30)
            async with slave_of(tmp_path, first) as slave:
                await caught_up(slave, first)
                assert content(slave.stores.messages.log) == content(first.stores.messages.log)
                assert entries(slave) == entries(first)
                store = slave.stores.messages
                assert not query_by_key(store, "Orders", "lost-3", 5, 0, 1 << 62)[2]
                assert query_by_key(store, "Orders", "new-3", 5, 0, 1 << 62)[2]
                kept = b"".join(
                    path.read_bytes() for path in sorted((tmp_path / "slave/damaged").iterdir())
                )
                assert lost[:10_000] in kept and lost[-5_000:] in kept
            async with slave_of(tmp_path, first) as slave:  # and the next start finds it whole
                assert not slave.stores.messages.report.damages
                await fill(first.port, "more", 5)
                await caught_up(slave, first)
                assert entries(slave) == entries(first)

    asyncio.run(main())


def test_a_shorter_master_is_followed_from_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as (first, slave):
            await fill(first.port, "common", 10)
            await caught_up(slave, first)
        shutil.copytree(tmp_path / "master", tmp_path / "as-it-was")
        async with pair(tmp_path) as (first, slave):
            await fill(first.port, "lost", 3)
            await caught_up(slave, first)
        shutil.rmtree(tmp_path / "master")
        (tmp_path / "as-it-was").rename(tmp_path / "master")
        async with pair(tmp_path) as (first, slave):
            await caught_up(slave, first)
            assert entries(slave) == entries(first)
            await fill(first.port, "new", 3)
            await caught_up(slave, first)
            assert content(slave.stores.messages.log) == content(first.stores.messages.log)

    asyncio.run(main())


@pytest.mark.parametrize("is_known", [True, False])
def test_a_slave_whose_whole_log_the_master_has_lost_starts_again(
    tmp_path: Path, is_known: bool
) -> None:
    """An empty slave starts with its master's last file. If a power failure loses that file, the
    master is only sure of what came before: unless it knows its recovered end, the slave's log
    may be another master's.
    """
    port = {"listenPort": str(free_port())}  # a record has the address of the broker that stored it

    async def main() -> None:
        async with master(tmp_path, **port) as first:
            await fill(first.port, "common", 10)
            kept = end_of(first)
            assert kept < LOG_FILE
        shutil.copytree(tmp_path / "master", tmp_path / "as-it-was")
        async with master(tmp_path, **port) as first:
            await fill(first.port, "lost", 40)
            async with slave_of(tmp_path, first) as slave:
                await caught_up(slave, first)
                lost = slave.stores.messages.log
                assert kept < lost.minimum
                lost_bytes = content(lost)
        shutil.rmtree(tmp_path / "master")
        (tmp_path / "as-it-was").rename(tmp_path / "master")
        if is_known:
            checkpoint = Checkpoint(tmp_path / "master" / "checkpoint")
            checkpoint.load()
            checkpoint.recovered_end = kept  # as a start after a power failure records it
            checkpoint.save()
        async with master(tmp_path, **port) as first, slave_of(tmp_path, first) as slave:
            follower = slave.replication.slave
            assert follower is not None
            await until(lambda: "another master" in follower.problem)  # it has less than the slave
            await fill(first.port, "new", 60)
            if not is_known:
                await until(lambda: f"ends at {end_of(first)}" in follower.problem)
                assert content(slave.stores.messages.log) == lost_bytes
                return
            await caught_up(slave, first)
            begin = slave.stores.messages.log.minimum
            assert content(slave.stores.messages.log) == content(first.stores.messages.log, begin)
            cut = b"".join(path.read_bytes() for path in (tmp_path / "slave/damaged").iterdir())
            assert lost_bytes[-5_000:] in cut

    asyncio.run(main())


def test_a_store_of_another_master_is_refused_and_unchanged(tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path / "other") as other, slave_of(tmp_path, other) as slave:
            await fill(other.port, "theirs")
            await caught_up(slave, other)
            theirs = content(slave.stores.messages.log)
        async with master(tmp_path) as first:
            await fill(first.port, "ours", 30)
            async with slave_of(tmp_path, first) as slave:
                replication = slave.replication.slave
                assert replication is not None
                await until(lambda: bool(replication.problem))
                assert "this store belongs to another master" in replication.problem
                assert content(slave.stores.messages.log) == theirs
                assert not (tmp_path / "slave" / "damaged").exists()

    asyncio.run(main())


def test_a_slave_whose_next_file_the_master_has_deleted_reports_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as (first, slave):
            await fill(first.port, "old", 3)
            await caught_up(slave, first)
        async with master(tmp_path) as first:
            await fill(first.port, "new", 80)
            first.stores.messages.log.remove_first()
            async with slave_of(tmp_path, first) as slave:
                replication = slave.replication.slave
                assert replication is not None
                await until(lambda: bool(replication.problem))
                assert "the master's log starts at 65536" in replication.problem
                assert "move" in replication.problem

    asyncio.run(main())


@pytest.mark.parametrize("size", ["32768", "131072"])
def test_a_log_with_files_of_another_size_is_refused(tmp_path: Path, size: str) -> None:
    async def main() -> None:
        async with master(tmp_path) as first:
            slave = slave_of(tmp_path, first, mappedFileSizeCommitLog=size)
            async with slave:
                await fill(first.port, "large", 60)
                replication = slave.replication.slave
                assert replication is not None
                await until(lambda: "mappedFileSizeCommitLog" in replication.problem)

    asyncio.run(main())


def test_whatever_is_common_is_found(tmp_path: Path) -> None:
    """Each record in turn as the last that both have."""

    class Cut:
        """A master that has lost its log from an offset on, and may have other bytes there."""

        def __init__(self, log: object, end: int, rest: bytes | None) -> None:
            self.log, self.end, self.rest = log, end, rest

        async def record_at(self, physical: int) -> bytes | None:
            if physical >= self.end:
                return self.rest
            return bytes(self.log.record_at(physical))  # type: ignore[attr-defined]

        async def bounds(self) -> Bounds:
            return Bounds(0, self.end if self.rest is None else self.end + len(self.rest))

    async def main() -> None:
        async with master(tmp_path) as first:
            await fill(first.port, "x", 40)
            store = first.stores.messages
            starts = sorted(
                entry[0]
                for queue in store.queues
                for index in range(queue.readable)
                if (entry := queue.entry(index)) is not None
            )
            for number, start in enumerate(starts):
                for rest in (None, b"another" * 100):
                    cut = Cut(store.log, start, rest)
                    if number == 0:
                        with pytest.raises(NotReplicated, match="another master"):
                            await common_end(store, cut)
                        continue
                    record = store.log.record_at(starts[number - 1])
                    assert record is not None
                    assert await common_end(store, cut) == starts[number - 1] + len(record)

    asyncio.run(main())
