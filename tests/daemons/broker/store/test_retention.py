"""When log files are deleted, and which other files follow."""

import asyncio
import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import files
from mq.daemons.broker.store import retention
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.daemons.broker.store.retention import Retention, used_ratio
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.store.stores import bodies, put, settings, with_store

HOUR = 3600
# Seconds since 1970 at which it is four, and five, o'clock here.
FOUR = time.mktime((2023, 11, 15, 4, 30, 0, 0, 0, -1))
FIVE = FOUR + HOUR
PER_FILE = 4  # messages of 900 bytes in a log file of 4096


class Disk:
    """A store's cleaner with a clock and a disk that the test sets."""

    def __init__(self, store: MessageStore, **changes: Any) -> None:
        self.now = FIVE
        self.used = 10  # percent
        self.queues_used = 10
        self.settings: MessageStoreConfig = replace(
            settings(store.root), delete_commit_log_files_interval=0, **changes
        )
        self.retention = Retention(
            lambda: self.settings,
            store.root,
            store.log,
            store.queues,
            store.key_index,
            store.appender,
            store.checkpointer,
            clock=lambda: self.now,
            ratio=lambda path: self.queues_used if path.name == "consumequeue" else self.used,
        )

    def change(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)


async def fill(store: MessageStore, files: int, hours_old: float = 100) -> None:
    """Whole log files of messages, each with a key; all but the last were written long ago."""
    for number in range(files * PER_FILE):
        await put(store, "orders", 0, b"x" * 900, keys=(f"k{number}",))
    await store.checkpointer.checkpoint()
    for file in store.log.files:
        os.utime(file.path, (FIVE - hours_old * HOUR,) * 2)


def starts(store: MessageStore) -> list[int]:
    return [file.start for file in store.log.files]


def test_expired_files_are_deleted_at_their_hour_except_the_last(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 4)
        disk = Disk(store, delete_when="04;16")
        assert await disk.retention.clean() == 0
        disk.now = FOUR
        assert await disk.retention.clean() == 3
        assert starts(store) == [3 * 4096]
        assert min(os.listdir(tmp_path / "commitlog")) == f"{3 * 4096:020d}"
        assert await disk.retention.clean() == 0
        assert disk.retention.deleted_files == 3

    with_store(tmp_path, work)


@pytest.mark.parametrize("fails", [False, True])
def test_no_file_is_deleted_before_its_queues_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A power failure could lose the last entries, and nothing would show the assigned queue
    offsets.
    """

    async def work(store: MessageStore) -> None:
        for _ in range(4 * PER_FILE):
            await put(store, "orders", 0, b"x" * 900)
        await store.flusher.drain()
        assert store.checkpointer.safe_offset == 0
        disk = Disk(store, file_reserved_time=0)
        disk.now = time.time() + HOUR

        def no_room(*_: object) -> int:
            raise OSError(errno.ENOSPC, "no room")

        if fails:
            monkeypatch.setattr(ConsumeQueue, "persist", no_room)
        assert await disk.retention.clean(manual=True) == (0 if fails else 3)
        assert (store.checkpointer.safe_offset >= 3 * 4096) is not fails
        monkeypatch.undo()

    with_store(tmp_path, work)


@pytest.mark.parametrize("rounds", [2, 5])
def test_rounds_at_the_same_time_delete_no_more_than_one_would(tmp_path: Path, rounds: int) -> None:
    """An administrator's request runs together with the task, and both wait for the same
    checkpoint.
    """

    async def work(store: MessageStore) -> None:
        for _ in range(2 * PER_FILE):
            await put(store, "orders", 0, b"x" * 900)
        await store.flusher.drain()
        assert (starts(store), store.checkpointer.safe_offset) == ([0, 4096], 0)
        disk = Disk(store, file_reserved_time=0)
        disk.now = time.time() + HOUR
        cleaning = [disk.retention.clean(manual=True) for _ in range(rounds)]
        assert sorted(await asyncio.gather(*cleaning)) == [0] * (rounds - 1) + [1]
        assert starts(store) == [4096]

    with_store(tmp_path, work)


def test_no_file_is_deleted_before_the_deletion_of_the_previous_one_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure that restored the first file and not the second would leave a gap in the
    log."""

    async def work(store: MessageStore) -> None:
        await fill(store, 4)
        disk = Disk(store)
        disk.now = FOUR

        def fail(_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(files, "sync_folder", fail)
            for _ in range(3):
                with pytest.raises(OSError, match="Input/output"):
                    await disk.retention.clean()
            assert len(store.log.files) == 3
        assert await disk.retention.clean() == 2
        assert disk.retention.deleted_files == 3

    with_store(tmp_path, work)


@pytest.mark.parametrize("hours", ["4", "4;16", "16; 04", "004"])
def test_hours_are_compared_as_numbers(tmp_path: Path, hours: str) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 4)
        disk = Disk(store, delete_when=hours)
        assert await disk.retention.clean() == 0
        disk.now = FOUR
        assert await disk.retention.clean() == 3

    with_store(tmp_path, work)


def test_a_request_to_delete_counts_for_twenty_rounds_of_ten_files(tmp_path: Path) -> None:
    """CleanCommitLogService.executeDeleteFilesManually of Java."""

    async def work(store: MessageStore) -> None:
        await fill(store, 215)
        disk = Disk(store)
        assert await disk.retention.clean() == 0
        assert await disk.retention.clean(manual=True) == 10
        assert [await disk.retention.clean() for _ in range(20)] == [10] * 19 + [0]
        assert len(store.log.files) == 15

    with_store(tmp_path, work)


def test_deletion_stops_at_the_first_file_that_is_young(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 4)
        os.utime(store.log.files[1].path, (FOUR - 71 * HOUR,) * 2)
        disk = Disk(store)
        disk.now = FOUR
        assert await disk.retention.clean() == 1
        disk.change(file_reserved_time=70)
        assert await disk.retention.clean() == 2

    with_store(tmp_path, work)


@pytest.mark.parametrize(
    ("used", "hours_old", "deleted"),
    [(75, 100, 0), (76, 100, 3), (76, 1, 0), (85, 1, 0), (86, 1, 3)],
)
def test_a_full_disk_does_not_wait_for_the_hour_and_a_fuller_one_not_for_the_age(
    tmp_path: Path, used: int, hours_old: float, deleted: int
) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 4, hours_old)
        disk = Disk(store)
        disk.used = used
        assert await disk.retention.clean() == deleted

    with_store(tmp_path, work)


def test_no_young_file_is_deleted_if_force_is_disabled(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 4, hours_old=1)
        disk = Disk(store, clean_file_forcibly_enable=False)
        disk.used = 99
        assert await disk.retention.clean() == 0

    with_store(tmp_path, work)


def test_a_request_to_delete_counts_at_any_hour(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 3)
        assert await Disk(store).retention.clean(manual=True) == 2

    with_store(tmp_path, work)


def test_a_round_deletes_at_most_ten_files(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 13)
        disk = Disk(store)
        assert [await disk.retention.clean(manual=True) for _ in range(3)] == [10, 2, 0]

    with_store(tmp_path, work)


def test_what_is_not_yet_on_the_disk_is_kept(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 3)
        store.log.flushed = 5000
        assert await Disk(store).retention.clean(manual=True) == 1
        store.log.flushed = store.log.written

    with_store(tmp_path, work)


def test_queue_and_index_files_follow_and_the_minimum_moves(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 12)  # 48 messages; 20 in a queue file, 29 keys in an index file
        disk = Disk(store)
        await put(store, "quiet", 0, b"young")
        while await disk.retention.clean(manual=True):
            pass
        queue = store.queue("orders", 0)
        minimum = store.min_offset("orders", 0)
        assert starts(store) == [11 * 4096, 12 * 4096]  # the last is not flushed
        entry = store.entries.at("orders", 0, minimum)
        assert entry is not None and entry[0] == store.min_physical_offset
        assert sorted(os.listdir(queue.files.folder)) == [f"{800:020d}"]
        assert store.key_index is not None
        assert store.key_index.files[0].end_offset >= store.min_physical_offset
        assert query_by_key(store, "orders", "k0", 32, 0, 1 << 62)[2] == []
        assert len(query_by_key(store, "orders", "k47", 32, 0, 1 << 62)[2]) == 1
        assert (store.min_offset("quiet", 0), bodies(store, "quiet", 0)) == (0, [b"young"])

    with_store(tmp_path, work, items=30)

    async def reopened(store: MessageStore) -> None:
        assert not store.report.crashed and not store.report.damages
        assert store.min_offset("orders", 0) > 0
        assert store.max_offset("orders", 0) == 48
        assert len(bodies(store, "orders", 0)) == 48 - store.min_offset("orders", 0)

    with_store(tmp_path, reopened, items=30)


def test_a_queue_whose_messages_have_all_expired_keeps_its_offsets(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "quiet", 0, *[b"old"] * 5)
        await fill(store, 3)
        await Disk(store).retention.clean(manual=True)
        assert (store.min_offset("quiet", 0), store.max_offset("quiet", 0)) == (5, 5)
        await put(store, "quiet", 0, b"new")
        assert bodies(store, "quiet", 0) == [b"new"]

    with_store(tmp_path, work)

    async def reopened(store: MessageStore) -> None:
        assert (store.min_offset("quiet", 0), store.max_offset("quiet", 0)) == (5, 6)
        assert bodies(store, "quiet", 0) == [b"new"]

    with_store(tmp_path, reopened)


def test_sends_are_refused_above_the_limit_and_accepted_again_below_it(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        disk = Disk(store, disk_space_warning_level_ratio=80)
        disk.used = 81
        disk.retention.check_disk()
        with pytest.raises(StoreRefused, match="disk 81 % full, limit 80 %") as refused:
            await put(store, "orders", 0, b"no")
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        disk.used = 80
        disk.retention.check_disk()
        await put(store, "orders", 0, b"yes")
        assert bodies(store, "orders", 0) == [b"yes"]

    with_store(tmp_path, work)


def test_a_full_disk_of_the_consume_queues_refuses_sends_too(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        disk = Disk(store)
        disk.queues_used = 91
        disk.retention.check_disk()
        with pytest.raises(StoreRefused, match="disk of the consume queues 91 % full, limit 90 %"):
            await put(store, "orders", 0, b"no")
        disk.used, disk.queues_used = 91, 90
        disk.retention.check_disk()
        with pytest.raises(StoreRefused, match="refused: disk 91 % full"):
            await put(store, "orders", 0, b"no")
        disk.used = 90
        disk.retention.check_disk()
        await put(store, "orders", 0, b"yes")

    with_store(tmp_path, work)


def test_derived_files_whose_deletion_failed_are_deleted_by_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 8)
        disk = Disk(store)

        def fail(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(files, "unlink", fail)
            with pytest.raises(OSError, match="Input/output error"):
                await disk.retention.clean(manual=True)
        assert store.min_offset("orders", 0) == 0
        await disk.retention.clean()
        assert store.min_offset("orders", 0) == 7 * PER_FILE

    with_store(tmp_path, work)


def test_a_queue_file_that_cannot_be_deleted_does_not_block_other_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later queues kept all of their files, and the index did too, round after round."""

    async def work(store: MessageStore) -> None:
        for number in range(8 * PER_FILE):
            for topic in ("first", "second"):
                await put(store, topic, 0, b"x" * 900, keys=(f"k{number}",))
        await fill(store, 1)
        disk = Disk(store)
        real = files.unlink

        def unlink(path: files.AnyPath) -> None:
            if Path(path).parent == tmp_path / "consumequeue" / "first" / "0":
                raise OSError(errno.EIO, "Input/output error")
            real(path)

        monkeypatch.setattr(files, "unlink", unlink)
        with pytest.raises(OSError, match="Input/output error"):
            while await disk.retention.clean(manual=True):
                pass
        for topic in ("first", "second"):
            entry = store.entries.at(topic, 0, store.min_offset(topic, 0))
            assert entry is not None and entry[0] >= store.min_physical_offset
        queue = store.queue("second", 0)
        assert sorted(os.listdir(queue.files.folder)) == [f"{400:020d}"]
        assert store.key_index is not None
        assert store.key_index.files[0].end_offset >= store.min_physical_offset
        monkeypatch.undo()
        await disk.retention.clean()
        assert sorted(os.listdir(store.queue("first", 0).files.folder)) == [f"{400:020d}"]

    with_store(tmp_path, work, items=30)


def test_the_emptiest_folder_of_the_log_counts_for_refusals(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x" * 900] * 9)
        assert [sorted(os.listdir(folder)) for folder in folders] == [
            [f"{0:020d}", f"{8192:020d}"],
            [f"{4096:020d}"],
        ]
        used = {folders[0]: 95, folders[1]: 40}
        cleaner = Retention(
            lambda: settings(store.root),
            store.root,
            store.log,
            store.queues,
            None,
            store.appender,
            store.checkpointer,
            ratio=lambda path: used.get(path, 0),
        )
        cleaner.check_disk()
        assert store.appender.refusal is None
        assert cleaner.commit_log_ratio() == 40

    with_store(tmp_path / "store", work, store_path_commit_log=",".join(map(str, folders)))


def test_a_failing_disk_does_not_end_the_retention_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        await fill(store, 3)
        monkeypatch.setattr(retention, "FIRST_AFTER", 0)
        looked = 0
        deleted = asyncio.Event()
        real = files.unlink

        def ratio(path: Path) -> int:
            nonlocal looked
            looked += 1
            if looked == 1:
                raise OSError(5, "Input/output error")
            return 10

        def unlink(path: Path) -> None:
            if looked < 6:
                raise OSError(30, "Read-only file system")
            real(path)
            deleted.set()

        disk = Disk(store, clean_resource_interval=1, delete_when="05")
        disk.retention._ratio = ratio
        monkeypatch.setattr(files, "unlink", unlink)
        cleaning_up = asyncio.ensure_future(disk.retention.run())
        async with asyncio.timeout(30):
            await deleted.wait()
        assert not cleaning_up.done()
        cleaning_up.cancel()
        await asyncio.wait([cleaning_up])
        # A file that could not be deleted is still part of the log; otherwise the next start would
        # find a gap.
        assert sorted(os.listdir(tmp_path / "commitlog"))[: len(store.log.files)] == [
            f"{start:020d}" for start in starts(store)
        ]

    with_store(tmp_path, work)


def test_the_ratio_is_what_df_shows(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    used = status.f_blocks - status.f_bfree
    exact = 100 * used / (used + status.f_bavail)
    assert exact - 1 <= used_ratio(tmp_path) <= exact + 2  # other processes write meanwhile
