"""The checkpoint file and the data that it covers."""

import asyncio
import errno
import os
import struct
import threading
import zlib
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store.checkpoint import Checkpoint
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType
from tests.daemons.broker.store.stores import (
    Sink,
    append,
    bodies,
    crashed_copy,
    fail_fsyncs,
    fill_disk,
    hold_fsyncs,
    note_fsyncs,
    put,
    with_store,
)


def checkpoint_at(path: Path, *values: int) -> Checkpoint:
    checkpoint = Checkpoint(path)
    (
        checkpoint.message_timestamp,
        checkpoint.queue_timestamp,
        checkpoint.index_timestamp,
        checkpoint.safe_offset,
    ) = values
    return checkpoint


def loaded(path: Path) -> Checkpoint:
    checkpoint = Checkpoint(path)
    checkpoint.load()
    return checkpoint


# the file ---------------------------------------------------------------------------------------


def test_the_file_is_a_page_that_begins_as_java_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint_at(path, 1_700_000_000_000, 1_700_000_000_001, 5, 0x1234).save()
    raw = path.read_bytes()
    assert len(raw) == 4096
    assert raw[:24].hex() == "0000018bcfe568000000018bcfe568010000000000000005"
    assert raw[24:1024] == bytes(1000)
    ours = b"mq-safe1" + (0x1234).to_bytes(8, "big") + raw[:24]
    assert raw[1024:] == ours + zlib.crc32(ours).to_bytes(4, "big") + bytes(4096 - 1068)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint_at(path, 9000, 8000, 4000, 77).save()
    checkpoint = loaded(path)
    assert checkpoint.safe_offset == 77
    assert checkpoint.minimum_timestamp == 5000
    assert checkpoint.minimum_timestamp_with_index == 4000


@pytest.mark.parametrize("field", [0, 8, 16])
def test_the_offset_does_not_count_once_java_has_written_the_file(
    tmp_path: Path, field: int
) -> None:
    path = tmp_path / "checkpoint"
    checkpoint_at(path, 9000, 8000, 4000, 77).save()
    raw = bytearray(path.read_bytes())
    struct.pack_into(">q", raw, field, 9999)
    path.write_bytes(raw)
    checkpoint = loaded(path)
    assert checkpoint.safe_offset == 0
    assert 9999 in (
        checkpoint.message_timestamp,
        checkpoint.queue_timestamp,
        checkpoint.index_timestamp,
    )


@pytest.mark.parametrize("at", [1024, 1035, 1045, 1067])
def test_a_flipped_bit_in_our_part_makes_the_offset_unknown(tmp_path: Path, at: int) -> None:
    path = tmp_path / "checkpoint"
    checkpoint_at(path, 9000, 8000, 4000, 77).save()
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    checkpoint = loaded(path)
    assert (checkpoint.safe_offset, checkpoint.message_timestamp) == (0, 9000)


@pytest.mark.parametrize("content", [None, b"", bytes(23), bytes(4096)])
def test_a_file_that_says_nothing_counts_as_zeros(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_bytes(content)
    checkpoint = loaded(path)
    assert (checkpoint.safe_offset, checkpoint.minimum_timestamp_with_index) == (0, 0)


def test_a_short_file_of_java_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(struct.pack(">qqq", 9000, 8000, 7000))
    checkpoint = loaded(path)
    assert (checkpoint.safe_offset, checkpoint.queue_timestamp) == (0, 8000)


# coverage ---------------------------------------------------------------------------------------


def test_a_checkpoint_has_every_entry_in_its_file(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        for queue_id in range(3):
            await put(store, "orders", queue_id, *[b"x"] * 25)
        await store.checkpointer.checkpoint()
        assert [queue.persisted for queue in store.queues] == [25] * 3
        checkpoint = loaded(tmp_path / "checkpoint")
        assert checkpoint.safe_offset == store.max_physical_offset
        assert checkpoint.message_timestamp == store.appender.publisher.last_timestamp
        assert checkpoint.queue_timestamp == store.appender.publisher.last_timestamp

    with_store(tmp_path, work)


def test_a_checkpoint_does_not_cover_a_batch_without_its_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        gate = hold_fsyncs(monkeypatch)
        sink = Sink()
        try:
            append(store, sink, 1)
            store.appender.commit()
            saved = asyncio.ensure_future(store.checkpointer.checkpoint())
            await asyncio.sleep(0)
        finally:
            gate.set()
        await saved
        assert loaded(tmp_path / "checkpoint").safe_offset == store.max_physical_offset > 0
        assert store.queue("orders", 0).persisted == 1

    with_store(tmp_path, work, flush=FlushDiskType.SYNC_FLUSH)


def test_new_files_and_their_folders_are_synced_as_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"x")
        synced = note_fsyncs(monkeypatch)
        await store.checkpointer.checkpoint()
        folder = store.root / "consumequeue"
        new = {folder, folder / "orders", folder / "orders" / "0"}
        assert {str(path) for path in new} <= set(synced)
        assert synced.index(str(folder)) < synced.index(str(store.root / "checkpoint"))
        synced.clear()
        await put(store, "orders", 0, b"y")
        await store.checkpointer.checkpoint()
        assert str(folder) not in synced  # only new names cost that
        assert str(folder / "orders" / "0" / f"{0:020d}") in synced

    with_store(tmp_path, work)


def test_entries_written_before_the_disk_was_full_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x"] * 25)  # in two files
        with monkeypatch.context() as patch:
            fill_disk(patch, room=400)
            with pytest.raises(OSError, match="No space left"):
                await store.checkpointer.checkpoint()
        assert store.queue("orders", 0).persisted == 20
        assert not (tmp_path / "checkpoint").exists()
        synced = note_fsyncs(monkeypatch)
        await store.checkpointer.checkpoint()
        folder = store.root / "consumequeue" / "orders" / "0"
        assert {str(folder / f"{start:020d}") for start in (0, 400)} <= set(synced)

    with_store(tmp_path, work)


def test_a_checkpoint_that_cannot_be_saved_leaves_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"one")
        await store.checkpointer.checkpoint()
        before = (tmp_path / "checkpoint").read_bytes()
        await put(store, "orders", 0, b"two")
        await store.flusher.drain()
        queue = store.queue("orders", 0)
        queue.persist()
        with monkeypatch.context() as patch:
            fill_disk(patch)
            with pytest.raises(OSError, match="No space left"):
                await store.checkpointer.checkpoint()
        assert (tmp_path / "checkpoint").read_bytes() == before
        await store.checkpointer.checkpoint()
        assert loaded(tmp_path / "checkpoint").safe_offset == store.max_physical_offset

    with_store(tmp_path, work)


def test_the_time_of_the_last_full_index_file_is_kept_for_java(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        for number in range(5):
            await put(store, "orders", 0, b"x", keys=(f"k{number}",))
        await store.checkpointer.checkpoint()
        assert loaded(tmp_path / "checkpoint").index_timestamp == 0
        for number in range(5, 10):
            await put(store, "orders", 0, b"x", keys=(f"k{number}",))
        await store.checkpointer.checkpoint()
        index = store.key_index
        assert index is not None and len(index.files) == 2
        expected = index.files[0].end_timestamp
        assert loaded(tmp_path / "checkpoint").index_timestamp == expected > 0

    with_store(tmp_path, work, items=8)


def test_the_disk_that_was_full_is_tried_again_by_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"one")
        real = os.pwrite
        failures = 0
        written = asyncio.Event()

        def fail_twice(descriptor: int, data: bytes, position: int) -> int:
            nonlocal failures
            if failures < 2:
                failures += 1
                raise OSError(28, "No space left on device")
            written.set()
            return real(descriptor, data, position)

        monkeypatch.setattr(files, "pwrite", fail_twice)
        rounds = asyncio.ensure_future(store.checkpointer.run())
        async with asyncio.timeout(30):
            await written.wait()
        assert store.queue("orders", 0).persisted == 1
        rounds.cancel()

    with_store(tmp_path, work, flush_interval_consume_queue=10)


def test_a_store_killed_after_a_checkpoint_begins_with_it(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x" * 900] * 10)  # in three log files
        await store.checkpointer.checkpoint()
        await put(store, "orders", 0, b"after")
        crashed_copy(store, tmp_path / "crashed")

    async def reopened(store: MessageStore) -> None:
        assert store.report.start == 8192  # the whole last file is verified
        assert bodies(store, "orders", 0) == [*[b"x" * 900] * 10, b"after"]

    with_store(tmp_path / "store", work)
    with_store(tmp_path / "crashed", reopened)


def test_a_checkpoint_cancelled_while_it_writes_leaves_no_queue_unwritten(tmp_path: Path) -> None:
    """A SIGTERM cancels the store's tasks; the data that the last checkpoint covers must exist."""
    count = 450  # more than are written in one turn of the loop

    async def work(store: MessageStore) -> None:
        for queue_id in range(count):
            await put(store, "orders", queue_id, b"m%d" % queue_id)
        await store.flusher.drain()
        task = asyncio.ensure_future(store.checkpointer.checkpoint())
        await asyncio.sleep(0)
        assert 0 < sum(queue.persisted for queue in store.queues) < count
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def reopened(store: MessageStore) -> None:
        assert not store.report.crashed
        found = [bodies(store, "orders", queue_id) for queue_id in range(count)]
        assert found == [[b"m%d" % queue_id] for queue_id in range(count)]

    with_store(tmp_path, work, log_file=1 << 20)
    with_store(tmp_path, reopened, log_file=1 << 20)


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_files_that_a_checkpoint_has_not_synced_are_synced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"x")
        await store.flusher.drain()
        gate, opened = threading.Event(), threading.Event()

        def no_descriptors(*_: object, **__: object) -> int:
            assert gate.wait(10)
            opened.set()
            raise OSError(errno.EMFILE, "Too many open files")

        queue = store.queue("orders", 0)
        queue.persist()  # so that the event loop itself opens nothing
        store.checkpointer.dirty[queue] = None
        with monkeypatch.context() as patch:
            patch.setattr(files, "open", no_descriptors)
            task = asyncio.ensure_future(store.checkpointer.checkpoint())
            await asyncio.sleep(0)
            if how == "cancelled":
                task.cancel()
            gate.set()
            with pytest.raises((OSError, asyncio.CancelledError)):
                await task
            await asyncio.to_thread(opened.wait, 10)
        synced = note_fsyncs(monkeypatch)
        await store.checkpointer.checkpoint()
        folder = store.root / "consumequeue" / "orders" / "0"
        assert str(folder / f"{0:020d}") in synced

    with_store(tmp_path, work)


def test_a_failed_fsync_of_queues_is_not_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel drops pages that it could not write and then reports success."""

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"one")
        await store.checkpointer.checkpoint()
        before = (tmp_path / "checkpoint").read_bytes()
        await put(store, "orders", 0, b"two")
        await store.flusher.drain()
        with monkeypatch.context() as patch:
            fail_fsyncs(patch)
            with pytest.raises(OSError, match="Input/output error"):
                await store.checkpointer.checkpoint()
        with pytest.raises(OSError, match="until the broker is restarted"):
            await store.checkpointer.checkpoint()
        assert (tmp_path / "checkpoint").read_bytes() == before

    async def reopened(store: MessageStore) -> None:
        assert store.report.crashed
        assert bodies(store, "orders", 0) == [b"one", b"two"]
        await store.checkpointer.checkpoint()

    with_store(tmp_path, work)
    with_store(tmp_path, reopened)
    assert not (tmp_path / "abort").exists()


def test_a_stop_whose_last_checkpoint_fails_counts_as_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store without a safe offset yet, such as one of Java's, nothing else shows the
    failure."""

    async def work(store: MessageStore) -> None:
        for queue_id in range(4):
            await put(store, "orders", queue_id, b"m%d" % queue_id)
        for queue_id in (0, 3):
            store.queue("orders", queue_id).persist()
        fill_disk(monkeypatch)

    async def reopened(store: MessageStore) -> None:
        assert store.report.crashed
        found = [bodies(store, "orders", queue_id) for queue_id in range(4)]
        assert found == [[b"m%d" % queue_id] for queue_id in range(4)]

    with_store(tmp_path, work)
    monkeypatch.undo()
    with_store(tmp_path, reopened)
    assert not (tmp_path / "abort").exists()


def test_the_name_of_a_file_is_synced_even_if_its_first_write_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"x")
        await store.flusher.drain()
        with monkeypatch.context() as patch:
            fill_disk(patch)
            with pytest.raises(OSError, match="No space left"):
                await store.checkpointer.checkpoint()
        synced = note_fsyncs(monkeypatch)
        await store.checkpointer.checkpoint()
        assert str(store.root / "consumequeue" / "orders" / "0") in synced

    with_store(tmp_path, work)


def test_every_index_file_created_since_the_last_checkpoint_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        await store.checkpointer.checkpoint()
        for number in range(25):
            await put(store, "orders", 0, b"x", keys=(f"k{number}",))
        synced = note_fsyncs(monkeypatch)
        await store.checkpointer.checkpoint()
        assert store.key_index is not None and len(store.key_index.files) > 3
        assert {str(file.path) for file in store.key_index.files} <= set(synced)

    with_store(tmp_path, work, items=8)


def test_a_checkpoint_waits_for_messages_that_the_index_had_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start after it would not index those messages again."""

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"one", properties=b"KEYS\x01k1", keys=("k1",))
        await store.checkpointer.checkpoint()
        before = store.checkpointer.safe_offset

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(files, "posix_fallocate", full)
            for number in range(2, 12):
                try:
                    await put(
                        store,
                        "orders",
                        0,
                        b"more",
                        properties=b"KEYS\x01k%d" % number,
                        keys=(f"k{number}",),
                    )
                except StoreRefused:
                    break
            await store.checkpointer.checkpoint()
            assert store.checkpointer.safe_offset == before
            crashed_copy(store, tmp_path / "b")
        assert number < 11

    async def reopened(store: MessageStore) -> None:
        for number in range(store.max_offset("orders", 0)):
            assert query_by_key(store, "orders", f"k{number + 1}", 32, 0, 1 << 62)[2]

    with_store(tmp_path / "a", work, items=4)
    with_store(tmp_path / "b", reopened, items=4)


def test_a_queue_that_cannot_be_written_does_not_block_others(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        for queue_id in range(10):
            await put(store, "orders", queue_id, b"x")
        folder = store.root / "consumequeue" / "orders"
        folder.mkdir(parents=True, exist_ok=True)
        bad = range(0, 10, 2)  # the order of a set is any: some of these come before the others
        for queue_id in bad:
            (folder / str(queue_id)).write_text("in the way of a folder")
        with pytest.raises(OSError, match="exists"):
            await store.checkpointer.checkpoint()
        persisted = {queue.queue_id: queue.persisted for queue in store.queues}
        assert persisted == {queue_id: int(queue_id not in bad) for queue_id in range(10)}
        assert store.checkpointer.dirty.keys() == {store.queue("orders", each) for each in bad}
        assert not (tmp_path / "checkpoint").exists()  # it would cover missing entries
        for queue_id in bad:
            (folder / str(queue_id)).unlink()
        await store.checkpointer.checkpoint()
        assert [store.queue("orders", each).persisted for each in range(10)] == [1] * 10
        assert loaded(tmp_path / "checkpoint").safe_offset == store.max_physical_offset

    with_store(tmp_path, work)
