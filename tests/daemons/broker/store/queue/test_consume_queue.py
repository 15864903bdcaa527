"""Queue files: finding their end, gaps, repair, truncation and deletion."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.client.machine import files as disk
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreLoadError
from mq.daemons.broker.store.log.mapped_file import DescriptorCache
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.daemons.broker.store.queue.extension import Unit
from mq.daemons.broker.store.queue.queues import Queues
from tests.daemons.broker.store.stores import fill_disk, open_files

PER_FILE = 5
FILE = PER_FILE * 20
SIZE = 100  # of each record: message n lies at n * SIZE
FILLER = bytes.fromhex("00000000000000007FFFFFFF0000000000000000")


def entry(number: int) -> bytes:
    return layout.ENTRY.pack(number * SIZE, SIZE, number)


@contextmanager
def queue_at(root: Path, capacity: int = 16, topic: str = "orders") -> Iterator[ConsumeQueue]:
    descriptors = DescriptorCache(capacity)
    try:
        yield ConsumeQueue(topic, 0, root / topic / "0", FILE, descriptors)
    finally:
        descriptors.close()


def fill(queue: ConsumeQueue, count: int) -> None:
    """Entries as the hot path adds them, all readable."""
    for number in range(queue.appended, count):
        queue.append(entry(number))
    queue.written = queue.readable = count


def numbers(queue: ConsumeQueue, count: int = 1000) -> list[int]:
    """The messages of a queue, read file by file."""
    found: list[int] = []
    index = queue.minimum
    while raw := queue.entries(index, count):
        found += [code for _, _, code in layout.ENTRY.iter_unpack(raw)]
        index += len(raw) // 20
    return found


def files(root: Path) -> list[str]:
    return sorted(name.lstrip("0") or "0" for name in os.listdir(root / "orders" / "0"))


def stored(root: Path, count: int) -> None:
    with queue_at(root) as queue:
        fill(queue, count)
        queue.persist()


# loading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 4, 5, 6, 9, 10, 11, 23])
def test_the_end_is_found_again_in_whichever_file_it_is(tmp_path: Path, count: int) -> None:
    stored(tmp_path, count)
    with queue_at(tmp_path) as queue:
        queue.load()
        assert (queue.minimum, queue.readable, queue.appended) == (0, count, count)
        assert numbers(queue) == list(range(count))


def test_an_empty_last_file_is_removed_and_the_end_is_in_the_one_before(tmp_path: Path) -> None:
    stored(tmp_path, 7)
    for start in (200, 300):
        (tmp_path / "orders" / "0" / f"{start:020d}").write_bytes(bytes(FILE))
    with queue_at(tmp_path) as queue:
        queue.load()
        assert queue.appended == 7
    assert files(tmp_path) == ["0", "100"]


def test_a_queue_without_any_entry_is_empty(tmp_path: Path) -> None:
    folder = tmp_path / "orders" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(bytes(FILE))
    (folder / "notes.txt").write_text("not ours")
    with queue_at(tmp_path) as queue:
        queue.load()
        assert (queue.minimum, queue.appended, queue.entries(0, 1)) == (0, 0, b"")
    assert files(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize(("name", "size"), [(0, 200), (40, 100)], ids=["longer", "other steps"])
def test_files_of_another_size_are_refused_and_left_as_they_are(
    tmp_path: Path, name: int, size: int
) -> None:
    folder = tmp_path / "orders" / "0"
    folder.mkdir(parents=True)
    path = folder / f"{name:020d}"
    path.write_bytes(entry(0) * (size // 20))
    with (
        queue_at(tmp_path) as queue,
        pytest.raises(StoreLoadError, match="mappedFileSizeConsumeQueue, which is 100"),
    ):
        queue.load()
    assert path.read_bytes() == entry(0) * (size // 20)


def test_a_file_cut_in_the_middle_of_an_entry_gives_whole_entries_only(tmp_path: Path) -> None:
    stored(tmp_path, 7)
    os.truncate(tmp_path / "orders" / "0" / f"{0:020d}", 50)
    with queue_at(tmp_path) as queue:
        queue.load()
        assert queue.entries(1, 10) == entry(1)
        assert queue.entry(2) is None
        assert queue.next_file_index(2) == 5
        assert queue.entries(5, 10) == entry(5) + entry(6)


# reading ----------------------------------------------------------------------------------------


def test_entries_end_at_a_file_the_readable_end_and_the_minimum(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        fill(queue, 8)
        queue.persist()
        fill(queue, 12)
        queue.readable = 11
        assert queue.entries(3, 100) == entry(3) + entry(4)
        in_both = b"".join(map(entry, range(5, 11)))  # 5 to 7 on disk, the rest in memory
        assert queue.entries(5, 100) == in_both
        assert queue.entries(5, 4) == in_both[:80]
        assert queue.entries(5, 3) == in_both[:60]
        assert queue.entries(8, 2) == entry(8) + entry(9)
        assert queue.entries(8, 100) == entry(8) + entry(9) + entry(10)
        assert queue.entries(11, 1) == b""
        queue.minimum = 4
        assert queue.entries(3, 100) == b""
        assert queue.entries(4, 100) == entry(4)
        assert [queue.next_file_index(index) for index in (0, 4, 5, 10)] == [5, 5, 10, 11]


def test_the_first_entry_of_an_offset_is_found_on_disk_and_in_memory(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        fill(queue, 8)
        queue.persist()
        fill(queue, 12)
        offsets = (0, 1, SIZE, 7 * SIZE, 7 * SIZE + 1, 11 * SIZE, 11 * SIZE + 1)
        assert [queue.first_at_or_after(offset) for offset in offsets] == [0, 1, 1, 7, 8, 11, 12]


@pytest.mark.parametrize("persisted", [False, True])
@pytest.mark.parametrize(("gap", "after"), [(3, 4), (1, 9), (4, 12)])
def test_a_gap_hides_no_entry_before_or_after_it(
    tmp_path: Path, gap: int, after: int, persisted: bool
) -> None:
    with queue_at(tmp_path) as queue:
        for number in (*range(gap), *range(after, 15)):
            assert queue.restore(number, entry(number))
        if persisted:
            queue.persist()
        for number in range(15):
            # The gap repeats the entry of the following message.
            expected = gap if gap <= number <= after else number
            assert queue.first_at_or_after(number * SIZE) == expected
        assert queue.first_at_or_after(15 * SIZE) == 15


def test_a_missing_file_in_the_middle_hides_no_other(tmp_path: Path) -> None:
    stored(tmp_path, 15)
    (tmp_path / "orders" / "0" / f"{100:020d}").unlink()
    with queue_at(tmp_path) as queue:
        queue.load()
        assert [queue.first_at_or_after(n * SIZE) for n in (0, 4, 5, 9, 10)] == [0, 4, 10, 10, 10]


# restoring ------------------------------------------------------------------------------------


def test_a_gap_is_filled_with_the_following_entry_and_later_messages_keep_their_offsets(
    tmp_path: Path,
) -> None:
    with queue_at(tmp_path) as queue:
        assert queue.restore(0, entry(0))
        assert queue.restore(3, entry(3))
        assert not queue.restore(1, entry(1))  # before the end
        assert (queue.minimum, queue.readable) == (0, 4)
        queue.persist()
    raw = (tmp_path / "orders" / "0" / f"{0:020d}").read_bytes()
    assert raw == entry(0) + entry(3) * 3 + bytes(20)


def test_a_gap_in_a_system_queue_repeats_no_entry(tmp_path: Path) -> None:
    with queue_at(tmp_path, topic="SCHEDULE_TOPIC_XXXX") as queue:
        for number in (0, 3):
            queue.restore(number, entry(number))
        assert queue.entries(0, 4) == entry(0) + FILLER + FILLER + entry(3)
        assert queue.first_at_or_after(SIZE) == 3


def test_a_queue_whose_first_files_were_deleted_starts_in_the_right_file(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        assert queue.restore(12, entry(12))
        assert queue.restore(13, entry(13))
        assert (queue.minimum, queue.readable) == (12, 14)
        queue.persist()
    assert files(tmp_path) == ["200"]
    raw = (tmp_path / "orders" / "0" / f"{200:020d}").read_bytes()
    assert raw == FILLER + FILLER + entry(12) + entry(13) + bytes(20)
    with queue_at(tmp_path) as queue:
        queue.load()
        queue.set_minimum(0)
        assert (queue.minimum, queue.readable) == (12, 14)
        assert numbers(queue) == [12, 13]


def test_a_far_too_large_offset_is_rejected(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        fill(queue, 2)
        assert not queue.restore(2_000_000, entry(2))
        assert queue.appended == 2


# writing ----------------------------------------------------------------------------------------


def test_only_entries_of_written_records_are_persisted_and_others_can_be_undone(
    tmp_path: Path,
) -> None:
    with queue_at(tmp_path) as queue:
        fill(queue, 3)
        queue.append(entry(3))
        queue.append(entry(4))
        queue.persist()
        assert queue.persisted == 3
        queue.undo_unwritten()
        assert (queue.appended, numbers(queue)) == (3, [0, 1, 2])
        fill(queue, 6)
        queue.persist()
    raw = (tmp_path / "orders" / "0" / f"{0:020d}").read_bytes()
    assert raw == b"".join(entry(number) for number in range(5))


@pytest.mark.parametrize("room", [0, 20, 30, 100, 110])
def test_a_full_disk_loses_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    with queue_at(tmp_path) as queue:
        fill(queue, 8)
        with monkeypatch.context() as patch:
            fill_disk(patch, room)
            with pytest.raises(OSError, match=r"No space left|no room for an entry"):
                queue.persist()
        assert numbers(queue) == list(range(8))
        queue.persist()
        assert queue.persisted == 8
    with queue_at(tmp_path) as queue:
        queue.load()
        assert numbers(queue) == list(range(8))


@pytest.mark.parametrize("persisted", [False, True])
def test_a_damaged_entry_is_replaced_in_place(tmp_path: Path, persisted: bool) -> None:
    with queue_at(tmp_path) as queue:
        for number in range(8):
            queue.append(entry(number) if number != 6 else bytes(20))
        queue.written = queue.readable = 8
        if persisted:
            queue.persist()
        queue.mend(6, entry(6))
        queue.persist()
        assert numbers(queue) == list(range(8))
    with queue_at(tmp_path) as queue:
        queue.load()
        assert numbers(queue) == list(range(8))


def test_more_queues_than_open_files_are_written_and_read(tmp_path: Path) -> None:
    descriptors = DescriptorCache(3)
    queues = [
        ConsumeQueue("orders", number, tmp_path / str(number), FILE, descriptors)
        for number in range(20)
    ]
    for queue in queues:
        fill(queue, 7)
        queue.persist()
    assert [numbers(queue) for queue in queues] == [list(range(7))] * 20
    assert open_files(tmp_path) == 3
    descriptors.close()
    assert open_files(tmp_path) == 0


def test_a_deleted_queue_is_not_written_again(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        fill(queue, 7)
        queue.persist()
        queue.append(entry(7))
        queue.delete()
        queue.written = queue.readable = 8
        queue.persist()
        assert queue.entries(0, 10) == b""
    assert not (tmp_path / "orders" / "0").exists()


# cutting and deleting -----------------------------------------------------------------------------


def test_new_messages_are_found_although_the_old_extension_could_not_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new message would be after deleted files, and a start ignores a file that begins with a
    gap.
    """
    per_file = 1000
    descriptors = DescriptorCache(16)
    queues = Queues(tmp_path / "queues", per_file * 20, tmp_path / "extensions", FILE)
    queue = queues.get_or_make("orders", 0)
    extension = queues.extension(queue)
    extension.append(Unit(1, 2, b"map"))
    fill(queue, 300)
    queue.persist()
    remove = disk.remove

    def stuck(path: disk.AnyPath) -> None:
        if "extensions" in str(path):
            raise OSError(errno.EIO, "Input/output error")
        remove(path)

    monkeypatch.setattr(disk, "remove", stuck)
    with pytest.raises(OSError, match="Input/output error"):
        queue.delete()
    fill(queue, queue.appended + 1)
    queue.persist()
    again = ConsumeQueue("orders", 0, queues.folder(queue), per_file * 20, descriptors)
    again.load()
    assert again.readable == queue.readable
    assert again.entry(again.readable - 1) == queue.entry(queue.readable - 1)
    descriptors.close()
    queues.close()


@pytest.mark.parametrize("persisted", [0, 7, 12])
@pytest.mark.parametrize("keep", [0, 1, 5, 6, 10, 12])
def test_a_truncation_drops_exactly_the_entries_after_it(
    tmp_path: Path, keep: int, persisted: int
) -> None:
    with queue_at(tmp_path) as queue:
        fill(queue, persisted)
        queue.persist()
        fill(queue, 12)
        assert queue.cut(keep * SIZE) == 12 - keep
        assert (queue.appended, queue.written, queue.readable) == (keep, keep, keep)
        assert numbers(queue) == list(range(keep))
        fill(queue, 12)
        assert numbers(queue) == list(range(12))
        queue.persist()
    with queue_at(tmp_path) as queue:
        queue.load()
        assert numbers(queue) == list(range(12))


def test_truncated_entries_are_not_found_by_the_next_start(tmp_path: Path) -> None:
    stored(tmp_path, 12)
    with queue_at(tmp_path) as queue:
        queue.load()
        queue.cut(6 * SIZE)
    with queue_at(tmp_path) as queue:
        queue.load()
        assert numbers(queue) == list(range(6))
    assert files(tmp_path) == ["0", "100"]


@pytest.mark.parametrize("killed", ["during the replay", "behind it", "when all is written"])
@pytest.mark.parametrize("keep", [0, 1, 5, 6, 10, 12])
@pytest.mark.parametrize("restored", range(13))
def test_a_replay_leaves_exactly_the_restored_entries(
    tmp_path: Path, keep: int, restored: int, killed: str
) -> None:
    stored(tmp_path, 12)
    end = max(keep, restored)
    with queue_at(tmp_path) as queue:
        queue.load()
        queue.set_back(keep * SIZE)
        assert (queue.appended, numbers(queue)) == (keep, list(range(keep)))
        for number in range(keep, end):
            assert queue.restore(number, entry(number))
        assert numbers(queue) == list(range(end))
        if killed != "during the replay":
            assert queue.cut(end * SIZE) == 0
        if killed == "when all is written":
            queue.persist()
            assert numbers(queue) == list(range(end))
    with queue_at(tmp_path) as queue:
        queue.load()
        found = numbers(queue)
        # Unwritten entries are rebuilt from the log: a start may find them or not.
        assert found == list(range(len(found)))
        assert keep <= len(found) <= (12 if killed == "during the replay" else end)
        assert len(found) == end or killed != "when all is written"


def test_a_replay_with_a_gap_keeps_no_old_entry_in_it(tmp_path: Path) -> None:
    stored(tmp_path, 4)
    with queue_at(tmp_path) as queue:
        queue.load()
        queue.set_back(0)
        assert queue.restore(2, entry(2))
        assert queue.restore(3, entry(3))
        queue.cut(4 * SIZE)
        assert numbers(queue) == [2, 3]
        queue.persist()
    with queue_at(tmp_path) as queue:
        queue.load()
        assert queue.entries(0, 2) == FILLER * 2


def test_a_file_that_a_replay_keeps_has_its_name_fsynced(tmp_path: Path) -> None:
    stored(tmp_path, 4)
    with queue_at(tmp_path) as queue:
        queue.load()
        queue.set_back(2 * SIZE)
        assert not queue.files.renamed  # the checkpoint covers the entries before, and so the name
        queue.set_back(0)
        assert queue.files.renamed


def test_files_without_existing_records_are_removed_except_the_last(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        fill(queue, 12)
        queue.persist()
        assert queue.remove_files_before(4 * SIZE) == 0
        assert queue.remove_files_before(6 * SIZE) == 1
        queue.set_minimum(6 * SIZE)
        assert (queue.minimum, numbers(queue)) == (6, [6, 7, 8, 9, 10, 11])
        assert queue.remove_files_before(100 * SIZE) == 1
        queue.set_minimum(100 * SIZE)
        assert (queue.minimum, queue.readable, numbers(queue)) == (12, 12, [])
    assert files(tmp_path) == ["200"]


def test_a_file_that_ends_in_a_gap_is_kept_while_it_has_a_message(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        for number in (0, 1, 2, 7, 8):
            queue.restore(number, entry(number))
        queue.persist()
        assert queue.remove_files_before(2 * SIZE) == 0
        queue.set_minimum(2 * SIZE)
        assert queue.minimum == 2
        assert queue.remove_files_before(7 * SIZE) == 0  # the gap points at a message that is there
        queue.set_minimum(7 * SIZE)
        assert queue.minimum == 3
        assert queue.remove_files_before(8 * SIZE) == 1


# all queues ---------------------------------------------------------------------------------------


def test_folders_that_are_not_topics_do_not_stop_a_start(tmp_path: Path) -> None:
    stored(tmp_path, 3)
    (tmp_path / "not a topic" / "0").mkdir(parents=True)
    (tmp_path / "orders" / "not a number").mkdir()
    (tmp_path / "file").touch()
    queues = Queues(tmp_path, FILE, tmp_path / "extensions", FILE)
    queues.load()
    assert [(queue.topic, queue.queue_id, queue.readable) for queue in queues] == [("orders", 0, 3)]
    queues.close()


def test_remains_of_a_power_failure_after_the_last_entry_never_become_entries(
    tmp_path: Path,
) -> None:
    """A page that did not reach the disk, between others that did; the end is found by
    bisection."""
    folder = tmp_path / "orders" / "0"
    descriptors = DescriptorCache(4)
    queue = ConsumeQueue("orders", 0, folder, 20_000, descriptors)
    fill(queue, 600)
    queue.persist()
    (path,) = folder.iterdir()
    data = bytearray(path.read_bytes())
    data[300 * 20 : 450 * 20] = bytes(150 * 20)
    path.write_bytes(data)
    queue = ConsumeQueue("orders", 0, folder, 20_000, descriptors)
    queue.load()
    assert queue.appended == 300
    queue.clear_after_end()
    descriptors.close()
    assert path.read_bytes() == bytes(data[: 300 * 20]).ljust(20_000, b"\0")


def test_zeros_before_the_first_truncated_entry_are_truncated_too(tmp_path: Path) -> None:
    stored(tmp_path, 5)
    (path,) = (tmp_path / "orders" / "0").iterdir()
    data = bytearray(path.read_bytes())
    data[2 * 20 : 4 * 20] = bytes(2 * 20)
    path.write_bytes(data)
    with queue_at(tmp_path) as queue:
        queue.load()
        queue.cut(2 * SIZE)
        assert queue.appended == 2
