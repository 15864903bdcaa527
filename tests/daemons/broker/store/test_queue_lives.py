"""Topics that were deleted and created again, with messages of both generations in the log.

A store that Java wrote has no list of deletions. These stores are of this broker, without the list.
"""

import errno
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.queue import generations
from mq.daemons.broker.store.queue.generations import MarkedFile
from mq.daemons.broker.store_config import BrokerRole
from mq.daemons.state_file import write_atomically
from tests.daemons.broker.store.damaged import repaired, verified
from tests.daemons.broker.store.stores import bodies, crashed_copy, put, with_store
from tests.daemons.broker.store.stores import reader as reader  # a fixture

pytestmark = pytest.mark.usefixtures("reader")

OLD = [b"old %d" % number for number in range(30)]
NEW = [b"new %d" % number for number in range(25)]


def forget_deletions(root: Path) -> None:
    """Leave the store as Java leaves one: without a list of deletions."""
    for path in root.glob("deletions.json*"):
        path.unlink()


def flip_bits_of_deletions(root: Path) -> None:
    """Damage the list of deletions and its backup."""
    for path in root.glob("deletions.json*"):
        data = bytearray(path.read_bytes())
        data[data.index(b":") + 1] ^= 1
        path.write_bytes(data)


def flip_a_bit_of_deletions(root: Path) -> None:
    path = root / layout.DELETIONS_FILE
    data = bytearray(path.read_bytes())
    data[data.index(b":") + 1] ^= 1
    path.write_bytes(data)


def two_lives(
    root: Path,
    old: list[bytes] = OLD,
    new: list[bytes] = NEW,
    *,
    persisted: bool = True,
) -> Path:
    """A store that was killed after a topic was deleted and created again.

    ``persisted``: the queue files have the entries of the new generation.
    """
    source = root.with_name(root.name + "-source")

    async def work(store: MessageStore) -> None:
        await put(store, "kept", 0, b"kept")
        await put(store, "orders", 0, *old)
        await store.checkpointer.checkpoint()
        store.delete_topic("orders")
        await put(store, "orders", 0, *new)
        if persisted:
            for queue in store.queues:
                queue.persist()
        crashed_copy(store, root)

    with_store(source, work)
    shutil.rmtree(source)
    return root


def check(root: Path, expected: list[bytes] = NEW) -> None:
    """Start twice, the second time after another kill."""
    again = root.with_name(root.name + "-again")

    async def work(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == expected
        assert bodies(store, "kept", 0) == [b"kept"]
        assert not store.report.damages
        await put(store, "orders", 0, b"after")
        crashed_copy(store, again)

    async def once_more(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == [*expected, b"after"]

    with_store(root, work)
    with_store(again, once_more)


@pytest.mark.parametrize("harm", [forget_deletions, flip_bits_of_deletions])
@pytest.mark.parametrize("persisted", [True, False])
def test_a_killed_store_serves_the_new_generation_without_a_list_of_deletions(
    tmp_path: Path, harm: Callable[[Path], None], persisted: bool
) -> None:
    root = two_lives(tmp_path / "store", persisted=persisted)
    harm(root)
    check(root)


def test_a_wrong_bit_in_the_list_of_deletions_changes_nothing(tmp_path: Path) -> None:
    """The list is stored in two files; a topic that was not created again stays deleted, too."""
    source, root = tmp_path / "source", tmp_path / "store"

    async def work(store: MessageStore) -> None:
        await put(store, "gone", 0, b"gone")
        await put(store, "kept", 0, b"kept")
        store.delete_topic("gone")
        crashed_copy(store, root)

    async def reopened(store: MessageStore) -> None:
        assert store.queue_counts() == {"kept": 1}
        crashed_copy(store, tmp_path / "again")

    with_store(source, work)
    flip_a_bit_of_deletions(root)
    with_store(root, reopened)
    flip_a_bit_of_deletions(tmp_path / "again")
    with_store(tmp_path / "again", has_topics({"kept": 1}))


def has_topics(expected: dict[str, int]) -> Callable[[MessageStore], Awaitable[None]]:
    async def work(store: MessageStore) -> None:
        assert store.queue_counts() == expected

    return work


def test_a_topic_in_no_file_stays_deleted_without_its_list(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "store"

    async def work(store: MessageStore) -> None:
        await put(store, "gone", 0, b"gone")
        await put(store, "kept", 0, b"kept")
        await put(store, "empty", 0, b"kept, too")
        store.delete_topic("gone")
        crashed_copy(store, root)

    with_store(source, work)
    flip_bits_of_deletions(root)
    config = root / "config"
    config.mkdir()
    (config / "topics.json").write_bytes(b'{"topicConfigTable":{"empty":{},"kept":{}}}')
    shutil.rmtree(root / "consumequeue", ignore_errors=True)
    with_store(root, has_topics({"kept": 1, "empty": 1}))


def test_a_cleanly_stopped_store_serves_the_new_generation_after_the_next_kill(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"

    async def work(store: MessageStore) -> None:
        await put(store, "kept", 0, b"kept")
        await put(store, "orders", 0, *OLD)
        store.delete_topic("orders")
        await put(store, "orders", 0, *NEW)

    async def taken_over(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == NEW
        crashed_copy(store, tmp_path / "killed")

    with_store(root, work)
    forget_deletions(root)
    (root / layout.CHECKPOINT_FILE).unlink()
    with_store(root, taken_over)
    check(tmp_path / "killed")


def test_a_topic_created_again_without_messages_begins_with_the_first_after_a_takeover(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"

    async def work(store: MessageStore) -> None:
        await put(store, "kept", 0, b"kept")
        await put(store, "orders", 0, *OLD)
        store.delete_topic("orders")

    async def taken_over(store: MessageStore) -> None:
        await put(store, "orders", 0, *NEW)
        crashed_copy(store, tmp_path / "killed")

    with_store(root, work)
    forget_deletions(root)
    with_store(root, taken_over)
    check(tmp_path / "killed")


@pytest.mark.parametrize("old", [1, 3, 30])
@pytest.mark.parametrize("new", [1, 2, 25, 60])
def test_generations_are_distinguished_by_the_log_alone(tmp_path: Path, old: int, new: int) -> None:
    if new == 1 and old & (old - 1) == 0:
        pytest.skip("the number of the only message may as well have a wrong bit")
    bodies_new = [b"new %d" % number for number in range(new)]
    root = two_lives(tmp_path / "store", OLD[:old], bodies_new, persisted=False)
    forget_deletions(root)
    shutil.rmtree(root / "consumequeue")
    check(root, bodies_new)


@pytest.mark.parametrize("damaged", [1, 3, 21])
def test_damaged_first_entries_of_the_new_generation_restore_no_old_message(
    tmp_path: Path, damaged: int
) -> None:
    root = two_lives(tmp_path / "store")
    forget_deletions(root)
    folder = root / "consumequeue" / "orders" / "0"
    for number in range(damaged):
        path = folder / layout.file_name(number // 20 * 400)
        data = bytearray(path.read_bytes())
        data[number % 20 * 20 : number % 20 * 20 + 20] = bytes(20)
        path.write_bytes(data)
    check(root)


def test_three_generations_are_distinguished(tmp_path: Path) -> None:
    root = tmp_path / "store"

    async def work(store: MessageStore) -> None:
        await put(store, "kept", 0, b"kept")
        for life in range(3):
            await put(store, "orders", 0, *(b"%d: %d" % (life, number) for number in range(20)))
            store.delete_topic("orders")
        await put(store, "orders", 0, *NEW)
        crashed_copy(store, root)

    with_store(tmp_path / "source", work)
    forget_deletions(root)
    check(root)


def test_a_slave_serves_the_new_generation_after_a_kill_without_a_list(tmp_path: Path) -> None:
    root = two_lives(tmp_path / "store")
    forget_deletions(root)

    async def work(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == NEW

    with_store(root, work, broker_role=BrokerRole.SLAVE)


def test_a_list_of_another_log_removes_no_message(tmp_path: Path) -> None:
    """A backup of log and queues was restored next to a newer list."""
    root, backup = tmp_path / "store", tmp_path / "backup"

    async def first(store: MessageStore) -> None:
        await put(store, "kept", 0, b"kept")
        await put(store, "orders", 0, *NEW)
        await store.checkpointer.checkpoint()
        crashed_copy(store, backup)
        await put(store, "orders", 0, *OLD)
        await store.checkpointer.checkpoint()
        store.delete_topic("orders")

    with_store(root, first)
    for path in root.glob("deletions.json*"):
        shutil.copy(path, backup)
    check(backup)


def test_a_list_of_a_diverged_log_removes_no_message(tmp_path: Path) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    after_all = [*NEW, *(b"other %d" % number for number in range(40))]

    async def first(store: MessageStore) -> None:
        await put(store, "kept", 0, b"kept")
        await put(store, "orders", 0, *NEW)
        await store.checkpointer.checkpoint()
        crashed_copy(store, backup)
        await put(store, "orders", 0, *OLD)
        await store.checkpointer.checkpoint()
        store.delete_topic("orders")

    async def second(store: MessageStore) -> None:
        await put(store, "orders", 0, *after_all[len(NEW) :])

    with_store(root, first)
    with_store(backup, second)
    for path in root.glob("deletions.json*"):
        shutil.copy(path, backup)
    (backup / layout.ABORT_FILE).touch()
    check(backup, after_all)


@pytest.mark.parametrize("entry", [0, 1, 24])
def test_a_damaged_entry_is_not_repaired_with_a_message_of_the_old_generation(
    tmp_path: Path, entry: int
) -> None:
    root = two_lives(tmp_path / "store")
    forget_deletions(root)

    async def work(store: MessageStore) -> None:
        store.queue("orders", 0).mend(entry, layout.ENTRY.pack(7, 7, 7))
        assert bodies(store, "orders", 0) == NEW

    with_store(root, work)


@pytest.mark.parametrize("queues", [True, False])
def test_verify_and_repair_keep_the_new_generation_and_report_a_damaged_list(
    tmp_path: Path, queues: bool
) -> None:
    root = two_lives(tmp_path / "store")
    flip_bits_of_deletions(root)
    if not queues:
        shutil.rmtree(root / "consumequeue")
    problems = verified(root).problems
    assert str(root / layout.DELETIONS_FILE) in {str(problem.path) for problem in problems}
    repaired(root)
    assert verified(root).problems == []
    check(root)


class _Log:
    """A log that the disk cannot read."""

    minimum, flushed = 0, 5000

    def file_at(self, offset: int) -> MarkedFile:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_deletion_counts_although_its_backup_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic is deleted then: else the next recovery would empty an existing topic."""
    rooms = iter([True, False])

    def write_once(path: Path, data: bytes) -> None:
        if not next(rooms, True):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_atomically(path, data)

    monkeypatch.setattr(generations, "write_atomically", write_once)
    listed = generations.Deletions(tmp_path)
    listed.add(["Gone"], 1000, _Log())  # does not raise
    assert listed.covers("Gone", 0, 999)
    listed.cut(5000, _Log())
    path = tmp_path / layout.DELETIONS_FILE
    assert path.read_bytes() == path.with_name(path.name + ".bak").read_bytes()


def test_a_topic_can_be_deleted_although_the_end_of_the_log_cannot_be_read(tmp_path: Path) -> None:
    generations.Deletions(tmp_path).add(["Gone"], 1000, _Log())
    again = generations.Deletions(tmp_path)
    again.load()
    again.forget_foreign(_Log())
    assert again.covers("Gone", 0, 999)
