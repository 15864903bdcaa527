"""Topics that are deleted while messages are in flight to them."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType
from tests.daemons.broker.store.power import Machine
from tests.daemons.broker.store.stores import bodies, crashed_copy, put, with_store
from tests.daemons.broker.store.stores import reader as reader  # a fixture

pytestmark = pytest.mark.usefixtures("reader")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(monkeypatch, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_a_topic_deleted_under_a_send_does_not_stop_checkpoints(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "kept", 0, b"before")
        await put(store, "gone", 0, b"stored")
        # In the batch that is open while the topic is deleted.
        store.appender.append(
            store.queue("gone", 0),
            b"on its way",
            b"\0\0",
            flag=0,
            sys_flag=0,
            born_timestamp=0,
            born_host=store.appender.store_host,
        )
        store.delete_topic("gone")
        await put(store, "kept", 0, b"after")
        await store.checkpointer.checkpoint()
        assert not (store.root / "consumequeue" / "gone").exists()
        await put(store, "gone", 0, b"made again")
        assert bodies(store, "gone", 0) == [b"made again"]
        await store.checkpointer.checkpoint()

    async def reopened(store: MessageStore) -> None:
        assert bodies(store, "kept", 0) == [b"before", b"after"]
        assert bodies(store, "gone", 0) == [b"made again"]

    with_store(tmp_path, work, flush=flush)
    with_store(tmp_path, reopened)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_recreated_topic_has_only_its_new_messages_after_a_crash(
    tmp_path: Path, checkpoint: bool
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "gone", 0, b"old", b"older")
        await put(store, "forgotten", 0, b"old")
        store.delete_topic("gone")
        store.delete_topic("forgotten")
        await put(store, "gone", 0, b"new", b"newer", b"newest")
        if checkpoint:
            await store.checkpointer.checkpoint()
        crashed_copy(store, tmp_path / "crashed")

    async def reopened(store: MessageStore) -> None:
        assert bodies(store, "gone", 0) == [b"new", b"newer", b"newest"]
        assert store.queues_of("forgotten") == []
        assert not store.report.damages
        await put(store, "gone", 0, b"after")
        crashed_copy(store, tmp_path / "crashed again")

    async def once_more(store: MessageStore) -> None:
        assert bodies(store, "gone", 0) == [b"new", b"newer", b"newest", b"after"]

    with_store(tmp_path / "store", work)
    with_store(tmp_path / "crashed", reopened)
    with_store(tmp_path / "crashed again", once_more)


def test_a_message_at_a_truncated_offset_does_not_count_as_deleted(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "kept", 0, b"first")
        (start,) = await put(store, "gone", 0, b"x" * 500)
        store.delete_topic("gone")
        crashed_copy(store, tmp_path / "crashed")
        with open(tmp_path / "crashed" / "commitlog" / f"{0:020d}", "r+b") as file:
            file.truncate(start)
            file.truncate(4096)

    async def reopened(store: MessageStore) -> None:
        await put(store, "gone", 0, b"new")
        crashed_copy(store, tmp_path / "crashed again")

    async def once_more(store: MessageStore) -> None:
        assert bodies(store, "gone", 0) == [b"new"]

    with_store(tmp_path / "store", work)
    with_store(tmp_path / "crashed", reopened)
    with_store(tmp_path / "crashed again", once_more)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"gone": "x"}', b'{"gone": null}'])
def test_a_damaged_list_of_deletions_does_not_stop_a_start(tmp_path: Path, content: bytes) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "kept", 0, b"one")

    async def reopened(store: MessageStore) -> None:
        assert bodies(store, "kept", 0) == [b"one"]

    with_store(tmp_path, work)
    (tmp_path / "deletions.json").write_bytes(content)
    with_store(tmp_path, reopened)


@pytest.mark.parametrize("bit", range(4))
def test_a_wrong_bit_in_a_deletion_offset_removes_no_current_message(
    tmp_path: Path, bit: int
) -> None:
    """With a larger number there, all messages of the recreated topic would count as deleted."""

    async def work(store: MessageStore) -> None:
        await put(store, "gone", 0, b"old", b"older")  # up to offset 196 or so
        store.delete_topic("gone")
        await put(store, "gone", 0, b"new")

    async def reopened(store: MessageStore) -> None:
        assert bodies(store, "gone", 0) == [b"new"]
        store.delete_topic("gone")
        await put(store, "gone", 0, b"newer")

    async def once_more(store: MessageStore) -> None:
        assert bodies(store, "gone", 0) == [b"newer"]

    with_store(tmp_path, work)
    path = tmp_path / "deletions.json"
    data = bytearray(path.read_bytes())
    data[data.index(b":") + 1] ^= 1 << bit
    path.write_bytes(data)
    with_store(tmp_path, reopened)
    with_store(tmp_path, once_more)


def test_a_list_of_deletions_without_a_checksum_is_read(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "gone", 0, b"old")

    async def reopened(store: MessageStore) -> None:
        assert store.queues_of("gone") == []

    with_store(tmp_path, work)
    (tmp_path / "deletions.json").write_bytes(b'{"gone":4096}')
    with_store(tmp_path, reopened)


def test_deletions_are_forgotten_with_the_log_files_they_are_about(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "early", 0, b"x" * 900)
        store.delete_topic("early")
        await put(store, "kept", 0, *[b"x" * 900] * 5)
        store.log.remove_first()
        store.delete_topic("late")
        end = store.log.position
        assert (tmp_path / "deletions.json").read_bytes().startswith(b'{"late":%d,"#' % end)

    with_store(tmp_path, work)


def test_a_topic_whose_deletion_cannot_be_recorded_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start after a crash would put its old messages in the places of new ones."""

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    async def work(store: MessageStore) -> None:
        await put(store, "gone", 0, b"old")
        with monkeypatch.context() as patch:
            patch.setattr(files, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                store.delete_topic("gone")
        assert bodies(store, "gone", 0) == [b"old"]
        store.delete_topic("gone")
        assert store.max_offset("gone", 0) == 0
        await put(store, "gone", 0, b"new")
        crashed_copy(store, tmp_path / "crashed")

    async def reopened(store: MessageStore) -> None:
        assert bodies(store, "gone", 0) == [b"new"]

    with_store(tmp_path / "store", work)
    with_store(tmp_path / "crashed", reopened)


def test_a_topic_whose_files_could_not_be_deleted_is_deleted_again_and_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On top of old files its entries would come after the old ones."""

    async def work(store: MessageStore) -> None:
        for queue_id in range(2):
            await put(store, "gone", queue_id, b"old", b"older", b"oldest")
        await store.checkpointer.checkpoint()
        remove = files.remove

        def failing(path: str | Path) -> None:
            if Path(path).parent.name == "1":
                raise OSError(5, "Input/output error")
            remove(path)

        with monkeypatch.context() as patch:
            patch.setattr(files, "remove", failing)
            with pytest.raises(OSError, match="Input/output error"):
                store.delete_topic("gone")
        await put(store, "gone", 1, b"late")
        await store.checkpointer.checkpoint()
        assert [store.max_offset("gone", queue_id) for queue_id in range(2)] == [0, 4]
        store.delete_topic("gone")
        await put(store, "gone", 1, b"new")

    async def reopened(store: MessageStore) -> None:
        assert bodies(store, "gone", 1) == [b"new"]

    with_store(tmp_path, work)
    with_store(tmp_path, reopened)


@pytest.mark.parametrize("crashed", [False, True])
def test_a_start_continues_if_files_of_a_deleted_topic_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashed: bool
) -> None:
    """One file of one topic must not prevent a start; and no old message is delivered."""
    root, queues = tmp_path / "store", tmp_path / "store" / "consumequeue" / "gone"
    remove, new = files.unlink, [b"%d" % n for n in range(30)]
    stuck: set[int] = set()

    def failing(path: files.AnyPath) -> None:
        if Path(path).stat().st_ino in stuck:
            raise PermissionError(errno.EACCES, "Permission denied")
        remove(path)

    def hold(folder: Path) -> None:
        stuck.update(path.stat().st_ino for path in folder.rglob("0*") if path.is_file())

    async def work(store: MessageStore) -> None:
        await put(store, "gone", 0, *[b"old"] * 25)  # in two files
        await put(store, "gone", 1, b"old")
        await put(store, "kept", 0, b"kept")
        await store.checkpointer.checkpoint()
        hold(store.root / "consumequeue" / "gone")
        with pytest.raises(OSError):
            store.delete_topic("gone")
        if crashed:
            crashed_copy(store, root)
            hold(queues)

    async def made_again(store: MessageStore) -> None:
        assert bodies(store, "kept", 0) == [b"kept"]
        assert store.queues_of("gone") == []
        await put(store, "gone", 0, *new)
        assert bodies(store, "gone", 0) == new

    async def once_more(store: MessageStore) -> None:
        assert bodies(store, "gone", 0) == new
        assert store.queues_of("gone") == [0]
        assert sorted(path.name for path in queues.iterdir()) == ["0", "0.deleted", "1.deleted"]

    async def killed(store: MessageStore) -> None:
        await once_more(store)
        crashed_copy(store, tmp_path / "again")

    monkeypatch.setattr(files, "unlink", failing)
    with_store(tmp_path / "first" if crashed else root, work)
    with_store(root, made_again)
    with_store(root, killed)
    with_store(tmp_path / "again", once_more)


def test_a_truncated_log_is_not_written_to_before_the_deletions_are_lowered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages put in place of deleted ones would count as deleted at the next start."""

    async def work(store: MessageStore) -> None:
        await put(store, "gone", 0, b"old" * 50)
        store.delete_topic("gone")
        crashed_copy(store, tmp_path / "crashed")

    async def refused(store: MessageStore) -> None:
        with pytest.raises(StoreRefused, match="No space left"):
            await put(store, "gone", 0, b"new")

    async def reopened(store: MessageStore) -> None:
        await put(store, "gone", 0, b"new")

    async def again(store: MessageStore) -> None:
        assert bodies(store, "gone", 0) == [b"new"]

    with_store(tmp_path / "store", work)
    path = tmp_path / "crashed" / "commitlog" / f"{0:020d}"
    path.write_bytes(bytes(4096))

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("mq.daemons.broker.store.queue.generations.write_atomically", full)
        with_store(tmp_path / "crashed", refused)
    with_store(tmp_path / "crashed", reopened)
    (tmp_path / "crashed" / "abort").touch()
    (tmp_path / "crashed" / "checkpoint").unlink()
    with_store(tmp_path / "crashed", again)


def test_a_deleted_topic_is_not_back_after_a_power_cut(tmp_path: Path, machine: Machine) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "gone", 0, b"old")
        await put(store, "kept", 0, b"kept")
        await store.checkpointer.checkpoint()
        store.delete_topic("gone")
        machine.lose_power(store.root, tmp_path / "b")

    async def reopened(store: MessageStore) -> None:
        assert store.queue_counts() == {"kept": 1}
        assert not (store.root / "consumequeue" / "gone").exists()
        assert bodies(store, "kept", 0) == [b"kept"]

    with_store(tmp_path / "a", work)
    assert (tmp_path / "b" / "consumequeue" / "gone").exists()
    with_store(tmp_path / "b", reopened)


@pytest.mark.parametrize("what", ["commitlog", "consumequeue"])
def test_a_damaged_message_is_not_replaced_by_one_of_a_topic_that_was_deleted(
    tmp_path: Path, what: str
) -> None:
    """The search for the message must not return an older one of the whole log with the same queue
    offset, which would be delivered instead, again and again.
    """

    async def work(store: MessageStore) -> int:
        await put(store, "orders", 0, b"old")
        store.delete_topic("orders")
        (start,) = await put(store, "orders", 0, b"new")
        return start

    start = with_store(tmp_path, work)
    [path] = (tmp_path / what).rglob(f"{0:020d}")
    data = bytearray(path.read_bytes())
    data[start if what == "commitlog" else 7] ^= 1
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        entry = store.entries.at("orders", 0, 0)
        assert (entry and entry[0]) == (start if what == "consumequeue" else None)

    with_store(tmp_path, check)
