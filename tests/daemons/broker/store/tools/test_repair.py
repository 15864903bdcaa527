"""Stores that are damaged on purpose, verified, repaired, and served again."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log import append
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.recovery.recovery import mark_running
from mq.daemons.broker.store.tools import repair
from mq.daemons.broker.store.tools.offline import OfflineLog
from mq.daemons.broker.store.tools.verification import Verification
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.protocol.record import RECORD_HEAD
from tests.daemons.broker.store.damaged import (
    MESSAGES,
    SLOTS,
    TOPIC,
    cut_a_file_off,
    cut_a_file_off_and_delete_the_next,
    cut_a_file_off_at_the_begin_of_a_record,
    cut_a_file_off_in_a_record,
    cut_a_file_off_in_its_blank,
    cut_the_last_file_off,
    delete_a_file,
    destroy_a_blank,
    destroy_a_size,
    empty_a_file_and_delete_the_next,
    flip_a_bit_of_a_body,
    log_file,
    lose_the_end_of_a_file,
    overwrite,
    records_of,
    repaired,
    verified,
    write_garbage_behind_the_end,
    written,
    zero_a_page,
)
from tests.daemons.broker.store.stores import LOG_FILE, put, with_store


def bodies(root: Path) -> set[bytes]:
    """The messages of each queue that consumers get from a broker on this store."""

    async def work(store: MessageStore) -> set[bytes]:
        assert store.report.damages == []
        found = set()
        for queue_id in (0, 1):
            queue = store.queue(TOPIC, queue_id)
            for index in range(queue.minimum, queue.readable):
                entry = queue.entry(index)
                assert entry is not None
                if store.entries.matches_log(queue, index, entry[0], entry[1]):
                    view = store.log.read(entry[0], entry[1])
                    assert view is not None
                    start = RECORD_HEAD.size
                    (size,) = layout.INT.unpack_from(view, start - 4)
                    found.add(bytes(view[start : start + size]))
        return found

    return with_store(root, work, **SLOTS)


LOG_DAMAGES = [
    flip_a_bit_of_a_body,
    destroy_a_size,
    zero_a_page,
    lose_the_end_of_a_file,
    cut_a_file_off,
    cut_a_file_off_in_a_record,
    cut_a_file_off_at_the_begin_of_a_record,
    cut_a_file_off_in_its_blank,
    destroy_a_blank,
    delete_a_file,
    cut_a_file_off_and_delete_the_next,
    empty_a_file_and_delete_the_next,
    write_garbage_behind_the_end,
    cut_the_last_file_off,
]


def test_a_whole_store_has_no_problems_and_nothing_to_repair(tmp_path: Path) -> None:
    root = written(tmp_path)
    found = verified(root)
    assert (found.problems, found.records, found.entries) == ([], MESSAGES, MESSAGES)
    assert (found.queues, found.index_items, found.skipped) == (2, MESSAGES, [])
    with OfflineLog([layout.commit_log_path(root)]) as log:
        assert repair.plan(root, log, found) == []


@pytest.mark.parametrize("damage", LOG_DAMAGES)
def test_a_damaged_log_is_reported_and_repaired(
    tmp_path: Path, damage: Callable[[Path], int]
) -> None:
    root = written(tmp_path)
    everything = bodies(root)
    lost = damage(root)
    found = verified(root)
    assert [problem for problem in found.problems if problem.part == "log"]
    assert found.records == MESSAGES - lost
    repaired(root)
    assert verified(root).problems == []
    kept = bodies(root)
    assert kept < everything if lost else kept == everything
    assert len(everything) - len(kept) == lost
    assert verified(root).problems == []


def test_messages_can_be_stored_after_a_repair_at_the_offsets_that_follow(tmp_path: Path) -> None:
    root = written(tmp_path)
    zero_a_page(root)
    repaired(root)

    async def work(store: MessageStore) -> int:
        await put(store, TOPIC, 0, b"new")
        return store.queue(TOPIC, 0).readable

    assert with_store(root, work, **SLOTS) == MESSAGES // 2 + 1
    assert b"new" in bodies(root)
    assert verified(root).problems == []


def test_messages_of_a_recreated_topic_stay(tmp_path: Path) -> None:
    """All were removed if an old queue of the topic did not exist again: the topic was recorded as
    deleted once more, at the end of the log.
    """
    root = tmp_path / "store"

    async def work(store: MessageStore) -> None:
        for queue_id in (0, 1):
            await put(store, TOPIC, queue_id, b"old")
        store.delete_topic(TOPIC)
        await put(store, TOPIC, 0, b"new")

    with_store(root, work, **SLOTS)
    (root / layout.CHECKPOINT_FILE).write_bytes(b"damaged")
    assert verified(root).deleted_topics == set()
    repaired(root)
    assert bodies(root) == {b"new"}
    assert verified(root).problems == []


def test_the_bytes_of_a_hole_are_kept(tmp_path: Path) -> None:
    root = written(tmp_path)
    record = records_of(root, 1)[5]
    at = record.physical - LOG_FILE
    before = log_file(root, 1).read_bytes()[at : at + record.size]
    overwrite(log_file(root, 1), at, b"\x7f")
    assert repaired(root)[0].startswith("filled with records that no consumer sees")
    kept = (root / "damaged" / layout.file_name(record.physical)).read_bytes()
    assert kept == b"\x7f" + before[1:]


def test_a_hole_too_small_for_a_record_includes_the_next_message(tmp_path: Path) -> None:
    root = written(tmp_path)
    records = records_of(root, 1)
    # The record claims to be 60 bytes shorter, and its parts do not add up.
    size = records[5].size
    position = records[5].physical - LOG_FILE
    data = log_file(root, 1).read_bytes()
    moved = data[position : position + size - 60]
    overwrite(log_file(root, 1), position, bytes(60) + moved[: size - 60])
    everything = bodies(written(tmp_path / "other"))
    repaired(root)
    assert verified(root).problems == []
    assert len(everything - bodies(root)) == 1


def test_the_smallest_message_is_replaced_alone(tmp_path: Path) -> None:
    root = tmp_path / "store"

    async def work(store: MessageStore) -> int:
        first, second = await put(store, "t", 0, b"", b"last")
        await put(store, TOPIC, 0, b"other")
        return second - first

    size = with_store(root, work, **SLOTS)
    overwrite(log_file(root, 0), 0, b"\x7f")
    assert repaired(root)[0].startswith("filled with records that no consumer sees")
    assert verified(root).problems == []

    async def check(store: MessageStore) -> tuple[int, int, int] | None:
        assert store.report.damages == []
        return store.entries.at("t", 0, 1)

    entry = with_store(root, check, **SLOTS)
    assert (entry and entry[0]) == size


def test_the_filler_of_a_hole_is_not_a_message_of_a_topic_of_that_name(tmp_path: Path) -> None:
    """Only one letter of the filler topic fits, which may be another topic's name."""
    root = tmp_path / "store"

    async def work(store: MessageStore) -> int:
        await put(store, "t", 0, b"", b"")
        (real,) = await put(store, "M", 0, b"")
        return real

    real = with_store(root, work, **SLOTS)
    overwrite(log_file(root, 0), 0, b"\x7f")
    repaired(root)
    assert {record.topic for record in records_of(root, 0)} == {"M", "t"}

    async def mended(store: MessageStore) -> tuple[int, int, int] | None:
        store.queue("M", 0).mend(0, layout.ENTRY.pack(17, 100, 0))
        return store.entries.at("M", 0, 0)

    entry = with_store(root, mended, **SLOTS)
    assert (entry and entry[0]) == real


def damage_an_entry(root: Path) -> str:
    path = layout.consume_queue_path(root) / TOPIC / "1" / layout.file_name(0)
    overwrite(path, 7 * layout.ENTRY_SIZE, layout.ENTRY.pack(17, 100, 0))
    return "queue"


def hide_a_message_from_who_asks_for_its_tag(root: Path) -> str:
    path = layout.consume_queue_path(root) / TOPIC / "1" / layout.file_name(0)
    place = 8 * layout.ENTRY_SIZE - 1  # in the last byte of a tags code
    overwrite(path, place, bytes([path.read_bytes()[place] ^ 4]))
    return "queue"


def point_a_tag_into_an_extension(root: Path) -> str:
    path = layout.consume_queue_path(root) / TOPIC / "1" / layout.file_name(0)
    overwrite(path, 7 * layout.ENTRY_SIZE + 12, b"\x80")  # where there is no extension
    return "queue"


def delete_a_queue(root: Path) -> str:
    folder = layout.consume_queue_path(root) / TOPIC / "1"
    for path in folder.iterdir():
        path.unlink()
    return "queue"


def add_an_entry(root: Path) -> str:
    folder = layout.consume_queue_path(root) / TOPIC / "1"
    path = folder / layout.file_name(800)
    overwrite(path, 5 * layout.ENTRY_SIZE, layout.ENTRY.pack(1 << 40, 100, 0))
    return "queue"


def damage_the_index(root: Path) -> str:
    [path] = layout.index_path(root).iterdir()
    items_at = layout.INDEX_HEADER.size + 25 * layout.INDEX_SLOT.size
    overwrite(path, items_at + 30 * layout.INDEX_ITEM.size, b"\0\0\0\7")
    return "index"


def flip_a_bit_of_the_safe_offset(root: Path) -> str:
    path = root / layout.CHECKPOINT_FILE
    place = layout.FINE_CHECKPOINT_AT + len(layout.FINE_CHECKPOINT_MAGIC) + 7
    overwrite(path, place, bytes([path.read_bytes()[place] ^ 1]))
    return "checkpoint"


def shorten_the_checkpoint(root: Path) -> str:
    (root / layout.CHECKPOINT_FILE).write_bytes(b"short")
    return "checkpoint"


@pytest.mark.parametrize(
    "damage",
    [
        damage_an_entry,
        hide_a_message_from_who_asks_for_its_tag,
        point_a_tag_into_an_extension,
        delete_a_queue,
        add_an_entry,
        damage_the_index,
        flip_a_bit_of_the_safe_offset,
        shorten_the_checkpoint,
    ],
)
def test_queues_and_index_are_rebuilt(tmp_path: Path, damage: Callable[[Path], str]) -> None:
    root = written(tmp_path)
    everything = bodies(root)
    part = damage(root)
    assert {problem.part for problem in verified(root).problems} == {part}
    assert verified(root).lost_bytes == 0
    repaired(root)
    assert verified(root).problems == []
    assert bodies(root) == everything


def without_queues(tmp_path: Path, topics: str | None, name: str = "topics.json") -> Path:
    """A store that has lost its queues, with such a list of topics."""
    root = written(tmp_path)
    shutil.rmtree(layout.consume_queue_path(root))
    (root / layout.CHECKPOINT_FILE).write_bytes(b"")
    if topics is not None:
        layout.config_path(root).mkdir()
        (layout.config_path(root) / name).write_text(topics)
    return root


OTHERS = '{"topicConfigTable":{"TBW102":{}}}'


@pytest.mark.parametrize("name", ["topics.json", "topics.json.bak"])
def test_a_topic_that_java_deleted_does_not_come_back(tmp_path: Path, name: str) -> None:
    root = without_queues(tmp_path, OTHERS, name)
    found = verified(root)
    assert (found.of_deleted_topics, found.deleted_topics) == (MESSAGES, {TOPIC})
    repaired(root)
    assert bodies(root) == set()


@pytest.mark.parametrize("topics", [None, "", "{broken", '{"topicConfigTable":{}}', "[]"])
def test_no_topic_counts_as_deleted_without_a_list_of_topics(
    tmp_path: Path, topics: str | None
) -> None:
    root = without_queues(tmp_path, topics)
    found = verified(root)
    assert (found.of_deleted_topics, found.deleted_topics) == (0, set())
    assert "queue" in {problem.part for problem in found.problems}
    repaired(root)
    assert len(bodies(root)) == MESSAGES


def test_no_topic_counts_as_deleted_if_rocksdb_has_the_topics(tmp_path: Path) -> None:
    root = without_queues(tmp_path, OTHERS)
    (layout.config_path(root) / "topics").mkdir()
    assert verified(root).of_deleted_topics == 0


def test_a_topic_with_a_remaining_queue_was_not_deleted(tmp_path: Path) -> None:
    root = written(tmp_path)
    layout.config_path(root).mkdir()
    (layout.config_path(root) / "topics.json").write_text(OTHERS)
    shutil.rmtree(layout.consume_queue_path(root) / TOPIC / "1")
    assert verified(root).deleted_topics == set()
    repaired(root)
    assert len(bodies(root)) == MESSAGES


def test_system_topics_are_never_deleted(tmp_path: Path) -> None:
    """This broker does not list them, and they hold delayed messages."""

    async def work(store: MessageStore) -> None:
        for topic in ("rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"):
            await put(store, topic, 0, b"waits")

    root = tmp_path / "store"
    with_store(root, work, **SLOTS)
    shutil.rmtree(layout.consume_queue_path(root))
    layout.config_path(root).mkdir(exist_ok=True)
    (layout.config_path(root) / "topics.json").write_text(OTHERS)
    found = verified(root)
    assert found.deleted_topics == set()
    assert len(found.problems) == 2


@pytest.mark.parametrize("size", [0, 7, 20])
def test_a_shortened_queue_file_does_not_determine_the_file_size(tmp_path: Path, size: int) -> None:
    root = written(tmp_path)
    everything = bodies(root)
    first = min(layout.consume_queue_path(root).glob("*/*/*"))
    os.truncate(first, size)
    repaired(root)
    assert bodies(root) == everything


def test_the_queue_of_an_existing_topic_must_exist(tmp_path: Path) -> None:
    root = written(tmp_path)
    config = layout.config_path(root)
    config.mkdir()
    (config / "topics.json").write_text('{"topicConfigTable":{"Orders":{}}}')
    (config / "consumerOffset.json").write_text("{broken")
    folder = layout.consume_queue_path(root) / TOPIC / "0"
    for path in (*folder.iterdir(), folder):
        path.unlink() if path.is_file() else path.rmdir()
    found = verified(root)
    assert {problem.part for problem in found.problems} == {"queue", "config"}
    assert len([problem for problem in found.problems if problem.part == "queue"]) == 20
    assert found.unreported == {"queue": MESSAGES // 2 - 20}


def test_a_copy_has_what_links_lead_to_but_not_in_a_circle(tmp_path: Path) -> None:
    root, other_disk = tmp_path / "store", tmp_path / "disk"
    (root / "config").mkdir(parents=True)
    (root / "config" / layout.LOCK_FILE).write_text("not the store's")
    (root / layout.LOCK_FILE).write_text("lock")
    other_disk.mkdir()
    (other_disk / "file").write_text("x")
    (root / "commitlog").symlink_to(other_disk)
    (root / "config" / "loop").symlink_to(root)
    repair.copy_store(root, tmp_path / "copy", lambda _: None)
    copied = {str(path.relative_to(tmp_path / "copy")) for path in tmp_path.glob("copy/**/*")}
    assert copied == {"commitlog", "commitlog/file", "config", f"config/{layout.LOCK_FILE}"}


def test_a_copy_is_the_same_and_as_sparse(tmp_path: Path) -> None:
    root = written(tmp_path / "store")
    with open(root / "sparse", "wb") as file:
        file.truncate(1 << 24)
        file.seek(1 << 23)
        file.write(b"in the middle")
    repair.copy_store(root, tmp_path / "copy", lambda _: None)
    for path in root.rglob("*"):
        copy = tmp_path / "copy" / path.relative_to(root)
        if path.is_file() and path.name != layout.LOCK_FILE:
            assert copy.read_bytes() == path.read_bytes()
    assert (tmp_path / "copy" / "sparse").stat().st_blocks < 1024
    with pytest.raises(FileExistsError):
        repair.copy_store(root, tmp_path / "copy", lambda _: None)


@pytest.mark.parametrize("is_crashed", [False, True])
def test_a_message_that_looks_torn_does_not_end_a_repaired_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_crashed: bool
) -> None:
    """Java accepts all properties. With the checkpoint the store lost the proof that they were on
    the disk: that message and all later ones were truncated, although nothing was damaged.
    """
    monkeypatch.setattr(append, "_UNWRITTEN", b"none has this")
    root = tmp_path / "store"

    async def work(store: MessageStore) -> None:
        await put(store, TOPIC, 0, b"zeros", properties=b"a\x01" + bytes(1500) + b"\x02b\x01c")
        await put(store, TOPIC, 1, b"last")

    with_store(root, work, **SLOTS)
    damage_an_entry(root)
    if is_crashed:
        (root / layout.ABORT_FILE).write_bytes(b"another boot")
    repaired(root)
    assert verified(root).problems == []
    assert bodies(root) == {b"zeros", b"last"}


def test_messages_of_a_topic_that_java_recreated_stay(tmp_path: Path) -> None:
    """Messages of the earlier generation, which Java does not record, reappeared in their
    places."""
    root = tmp_path / "store"

    async def work(store: MessageStore) -> None:
        await put(store, TOPIC, 0, *(b"old %d" % number for number in range(10)))
        store.delete_topic(TOPIC)
        await put(store, TOPIC, 0, b"new 0", b"new 1")

    with_store(root, work, **SLOTS)
    for path in root.glob("deletions.json*"):
        path.unlink()
    assert verified(root).problems == []
    assert verified(root).of_deleted_topics == 10
    shorten_the_checkpoint(root)
    assert f"record that {TOPIC} were deleted" in repaired(root)
    assert verified(root).problems == []
    assert bodies(root) == {b"new 0", b"new 1"}


def test_messages_of_a_topic_that_java_recreated_stay_although_the_first_is_damaged(
    tmp_path: Path,
) -> None:
    """All messages of the earlier generation reappeared, because of one lost message."""
    root = tmp_path / "store"

    async def work(store: MessageStore) -> None:
        await put(store, TOPIC, 0, *(b"old %d" % number for number in range(4)))
        store.delete_topic(TOPIC)
        await put(store, TOPIC, 0, *(b"new %d" % number for number in range(3)))

    with_store(root, work, **SLOTS)
    (root / layout.DELETIONS_FILE).unlink()
    first = records_of(root, 0)[4]
    overwrite(log_file(root, 0), first.physical + RECORD_HEAD.size, b"X")
    repaired(root)
    assert verified(root).problems == []
    assert {b"new 1", b"new 2"} <= bodies(root) <= {b"old 0", b"new 1", b"new 2"}


def test_a_damaged_blank_before_a_file_without_a_message_is_truncated(tmp_path: Path) -> None:
    """It was filled with a record longer than the rest of the file: the file grew, and the log had
    a gap after it.
    """
    root = written(tmp_path)
    overwrite(log_file(root, 2), 0, bytes(LOG_FILE))
    destroy_a_blank(root)
    assert "truncated, kept in damaged/" in repaired(root)
    assert verified(root).problems == []
    assert {path.stat().st_size for path in layout.commit_log_path(root).iterdir()} == {LOG_FILE}
    assert len(bodies(root)) == len(records_of(root, 0)) + len(records_of(root, 1))


def test_an_index_keeps_its_own_sizes(tmp_path: Path) -> None:
    """A broker ignores an index of other sizes than its own, and finds no message by key."""
    root = written(tmp_path)
    [size] = {path.stat().st_size for path in layout.index_path(root).iterdir()}
    damage_the_index(root)
    with OfflineLog([layout.commit_log_path(root)]) as log:
        found = Verification(root, log).run(lambda _: None)
        for item in repair.plan(root, log, found):
            item.do()
    asyncio.run(repair.recover(root, MessageStoreConfig()))
    assert {path.stat().st_size for path in layout.index_path(root).iterdir()} == {size}


def test_garbage_after_the_end_of_a_queue_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "store"

    async def work(store: MessageStore) -> None:
        await put(store, TOPIC, 0, b"first", b"last")

    with_store(root, work, **SLOTS)
    mark_running(root)  # as after a kill
    [path] = layout.consume_queue_path(root).glob("*/*/*")
    garbage = layout.ENTRY.pack(1 << 40, 100, 0) + layout.ENTRY.pack(1 << 40, -100, 0)
    overwrite(path, layout.ENTRY_SIZE, garbage)
    repaired(root)
    assert verified(root).problems == []
    assert bodies(root) == {b"first", b"last"}
