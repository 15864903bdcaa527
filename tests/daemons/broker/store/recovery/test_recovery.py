"""Starts of stores that were killed or damaged."""

import asyncio
import errno
import os
import sys
import tempfile
from pathlib import Path

import pytest

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreLoadError, StoreRefused
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.recovery import recovery
from mq.daemons.broker.store_config import FlushDiskType
from mq.protocol.message import StoredMessage, encode_record
from mq.protocol.record import RECORD_HEAD, SMALLEST_RECORD
from tests.daemons.broker.store.damaged_copies import (
    all_bodies,
    body,
    damaged_copy,
    expected,
    fill,
    log_file_of,
)
from tests.daemons.broker.store.stores import (
    LOG_FILE,
    bodies,
    crashed_copy,
    put,
    with_store,
)
from tests.daemons.broker.store.stores import reader as reader  # a fixture

pytestmark = pytest.mark.usefixtures("reader")


def test_a_clean_stop_keeps_every_message_and_reads_nothing_again(tmp_path: Path) -> None:
    with_store(tmp_path, fill)

    async def check(store: MessageStore) -> None:
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]
        assert not store.report.crashed
        assert store.report.records == 0

    with_store(tmp_path, check)
    assert not (tmp_path / layout.ABORT_FILE).exists()


def test_a_killed_store_has_every_message_once_and_finds_it_by_key(tmp_path: Path) -> None:
    crashed, _ = damaged_copy(tmp_path)

    async def check(store: MessageStore) -> None:
        assert store.report.crashed and not store.report.machine_crashed
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]
        for number in range(60):
            _, _, records = query_by_key(store, "orders", f"k{number}", 32, 0, 1 << 62)
            assert [body(number) in record for record in records] == [True]
        await put(store, "orders", 0, b"after")

    with_store(crashed, check)

    async def check_again(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == [*expected(60, 0), b"after"]

    with_store(crashed, check_again)


def test_a_crash_without_a_boot_id_counts_as_a_machine_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, _ = damaged_copy(tmp_path)
    (crashed / layout.ABORT_FILE).write_bytes(b"")  # as Java's is everywhere
    monkeypatch.setattr(recovery, "BOOT_ID", tmp_path / "absent")

    async def check(store: MessageStore) -> None:
        assert store.report.machine_crashed
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]

    with_store(crashed, check)


def test_a_machine_crash_rebuilds_the_index(tmp_path: Path) -> None:
    crashed, _ = damaged_copy(tmp_path)
    (crashed / layout.ABORT_FILE).write_bytes(b"another boot")
    (index_file,) = (crashed / "index").iterdir()
    index_file.write_bytes(bytes(index_file.stat().st_size))  # its pages never reached the disk

    async def check(store: MessageStore) -> None:
        assert store.report.machine_crashed
        for number in range(60):
            _, _, records = query_by_key(store, "orders", f"k{number}", 32, 0, 1 << 62)
            assert [body(number) in record for record in records] == [True]

    with_store(crashed, check)


@pytest.mark.parametrize("cut", [8, 50, 91, 120])
def test_a_record_cut_short_is_dropped_and_reported(tmp_path: Path, cut: int) -> None:
    crashed, starts = damaged_copy(tmp_path)
    path = log_file_of(crashed, starts[-1])
    with open(path, "r+b") as file:
        file.truncate(starts[-1] % 4096 + cut)
        file.truncate(4096)

    async def check(store: MessageStore) -> None:
        assert store.max_physical_offset == starts[-1]
        (damage,) = store.report.damages
        assert damage.offset == starts[-1] and damage.path == str(path)
        assert await all_bodies(store) == [expected(59, 0), expected(59, 1)]

    with_store(crashed, check)
    assert (crashed / "damaged" / layout.file_name(starts[-1])).exists()


def test_a_flipped_bit_in_a_body_ends_the_log_there_and_keeps_the_removed_part(
    tmp_path: Path,
) -> None:
    crashed, starts = damaged_copy(tmp_path)
    path = log_file_of(crashed, starts[40])
    data = bytearray(path.read_bytes())
    data[starts[40] % 4096 + 95] ^= 0x10
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert store.max_physical_offset == starts[40]
        assert "checksum" in store.report.damages[0].why
        assert await all_bodies(store) == [expected(40, 0), expected(40, 1)]
        await put(store, "orders", 0, b"new")
        assert bodies(store, "orders", 0)[-1] == b"new"

    with_store(crashed, check)
    kept = (crashed / "damaged" / layout.file_name(starts[40])).read_bytes()
    assert kept.startswith(bytes(data[starts[40] % 4096 : starts[40] % 4096 + 200]))


def test_messages_that_only_the_queues_still_know_are_reported(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> list[int]:
        await fill(store, 10)
        await store.checkpointer.checkpoint()
        crashed_copy(store, tmp_path / "crashed")
        return [entry[0] for n in range(5) if (entry := store.queue("orders", 1).entry(n))]

    starts = with_store(tmp_path / "store", work)
    with open(log_file_of(tmp_path / "crashed", 0), "r+b") as file:
        file.truncate(starts[-1])
        file.truncate(4096)

    async def check(store: MessageStore) -> None:
        (damage,) = store.report.damages
        assert damage.offset == starts[-1] and "refer to messages" in damage.why
        assert await all_bodies(store) == [expected(10, 0), expected(9, 1)]

    with_store(tmp_path / "crashed", check)


def test_a_torn_checkpoint_only_costs_time(tmp_path: Path) -> None:
    crashed, _ = damaged_copy(tmp_path)
    (crashed / layout.CHECKPOINT_FILE).write_bytes(b"\xff" * 100)

    async def check(store: MessageStore) -> None:
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]

    with_store(crashed, check)


@pytest.mark.parametrize("bit", [0, 33, 40, 61])
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("boot", [b"", b"another boot"])
def test_a_wrong_bit_in_a_time_of_the_checkpoint_hides_no_message(
    tmp_path: Path, number: int, bit: int, boot: bytes
) -> None:
    """Also if it says that much more is on the disk: the lower of the others counts."""
    crashed, _ = damaged_copy(tmp_path)
    path = crashed / layout.CHECKPOINT_FILE
    times = int.from_bytes(path.read_bytes()[:24], "big") ^ 1 << (64 * number + bit)
    path.write_bytes(times.to_bytes(24, "big") + path.read_bytes()[24:])
    if boot:
        (crashed / layout.ABORT_FILE).write_bytes(boot)

    async def check(store: MessageStore) -> None:
        assert store.report.start == 0
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]

    with_store(crashed, check)


def test_with_sync_flush_nothing_is_readable_before_the_fsync(tmp_path: Path) -> None:
    async def check(store: MessageStore) -> None:
        appended = asyncio.ensure_future(put(store, "orders", 0, b"one"))
        await asyncio.sleep(0)
        store.appender.commit()
        assert store.max_physical_offset > store.flushed_offset
        assert store.max_offset("orders", 0) == 0
        (physical,) = await appended
        assert store.flushed_offset == store.max_physical_offset
        assert store.max_offset("orders", 0) == 1
        assert store.record_at(physical) is not None

    with_store(tmp_path, check, flush=FlushDiskType.SYNC_FLUSH)


def test_a_store_in_use_cannot_be_locked_by_another_process(tmp_path: Path) -> None:
    script = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "try:\n    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "except OSError:\n    sys.exit(3)\n"
    )

    async def check(store: MessageStore) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, str(tmp_path / "lock")
        )
        assert await process.wait() == 3

    with_store(tmp_path, check)


def test_a_start_opens_a_log_whose_truncation_by_an_older_broker_was_killed(tmp_path: Path) -> None:
    """It shortened the file and then restored its size: between the two steps the size was
    wrong."""

    async def work(store: MessageStore) -> None:
        await fill(store, 4)
        crashed_copy(store, tmp_path / "b")

    with_store(tmp_path / "a", work)
    path = tmp_path / "b" / "commitlog" / "00000000000000000000"
    os.truncate(path, len(path.read_bytes().rstrip(b"\0")))

    async def check(store: MessageStore) -> None:
        assert path.stat().st_size == 4096
        assert len(bodies(store, "orders", 0)) == len(bodies(store, "orders", 1)) == 2
        await fill(store, 6, start=4)
        assert len(bodies(store, "orders", 0)) == len(bodies(store, "orders", 1)) == 3

    with_store(tmp_path / "b", check)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_start_after_a_kill_refuses_a_log_with_smaller_files(
    tmp_path: Path, is_full: bool
) -> None:
    """It would extend the file, and the right size would be refused from then on."""

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"first")
        if is_full:  # only the head of a blank fits after the second
            left = store.log.file_size - store.log.position - 8
            await put(store, "orders", 0, b"b" * (left - SMALLEST_RECORD - len("orders")))
            with pytest.raises(StoreRefused), pytest.MonkeyPatch.context() as patch:
                patch.setattr(store.log, "add_file", _no_room)
                await put(store, "orders", 0, b"third")
        crashed_copy(store, tmp_path / "b")

    async def check(store: MessageStore) -> None:
        assert len(bodies(store, "orders", 0)) == 1 + is_full

    with_store(tmp_path / "a", work)
    with pytest.raises(StoreLoadError, match="has 4096 bytes, mappedFileSizeCommitLog is 8192"):
        with_store(tmp_path / "b", check, log_file=8192)
    with_store(tmp_path / "b", check)


def _no_room() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_file_of_another_size_is_refused_with_its_name(tmp_path: Path) -> None:
    with_store(tmp_path, fill)

    async def nothing(store: MessageStore) -> None:
        raise AssertionError

    with pytest.raises(StoreLoadError, match="mappedFileSizeCommitLog"):
        with_store(tmp_path, nothing, log_file=8192)


def test_a_store_in_a_folder_that_may_not_be_listed_is_opened() -> None:
    with tempfile.TemporaryDirectory() as name:
        above, root = Path(name), Path(name) / "store"
        root.mkdir()
        is_root = os.geteuid() == 0  # root may list everything
        if is_root:
            os.chown(root, 65534, 65534)
        above.chmod(0o311)
        try:
            if is_root:
                os.seteuid(65534)
            with pytest.raises(PermissionError):
                os.listdir(above)
            with_store(root, fill)
            with_store(root, fill)
        finally:
            if is_root:
                os.seteuid(0)
            above.chmod(0o700)


@pytest.mark.parametrize("length", [130, 230])
def test_a_topic_leads_to_no_folder_outside_the_store(tmp_path: Path, length: int) -> None:
    """The middle of a topic longer than 200 characters was not checked, and an administrator may
    repair a store that another party wrote.
    """
    topic = (b"a" * 101 + b"/../../../evil/").ljust(length, b"b")
    head = encode_record(StoredMessage("t", b"", {}))[: RECORD_HEAD.size]
    content = head + bytes((length,)) + topic + bytes(2)
    content = layout.INT.pack(len(content)) + content[layout.INT.size :]
    log_file = tmp_path / "store" / "commitlog" / layout.file_name(0)
    log_file.parent.mkdir(parents=True)
    log_file.write_bytes(content.ljust(LOG_FILE, b"\0"))

    async def check(store: MessageStore) -> None:
        assert ["illegal characters" in one.why for one in store.report.damages] == [True]
        assert store.queues.topics() == []

    with_store(tmp_path / "store", check)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
