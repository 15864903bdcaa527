"""Queues that a start rebuilds from the log, with any kind of damage there."""

import errno
import shutil
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.recovery import recovery
from mq.protocol.message import decode_record
from mq.protocol.record import AT
from tests.daemons.broker.store.damaged_copies import (
    all_bodies,
    damaged_copy,
    expected,
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


@pytest.mark.parametrize("what", ["missing", "zeros", "noise", "truncated", "flipped"])
def test_damaged_queue_files_are_rebuilt_from_the_log(tmp_path: Path, what: str) -> None:
    crashed, _ = damaged_copy(tmp_path)
    path = crashed / "consumequeue" / "orders" / "0" / layout.file_name(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    good = path.read_bytes() if path.exists() else bytes(400)
    if what == "missing":
        path.unlink(missing_ok=True)
    elif what == "truncated":
        path.write_bytes(good[:130])
    elif what == "flipped":
        path.write_bytes(good[:7] + bytes([good[7] ^ 0xFF]) + good[8:])
    else:
        path.write_bytes(bytes(400) if what == "zeros" else bytes(range(1, 201)) * 2)

    async def check(store: MessageStore) -> None:
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]

    with_store(crashed, check)


def shown(store: MessageStore) -> list[bytes]:
    """The bodies of the messages of a queue, which may have gaps."""
    queue, found = store.queue("orders", 0), []
    for index in range(queue.minimum, queue.readable):
        entry = store.entries.at("orders", 0, index)
        if entry is not None:
            found.append(decode_record(store.record_at(entry[0]) or b"").body)
    return found


@pytest.mark.parametrize("bit", [0, 2, 10, 21, 40])
@pytest.mark.parametrize("which", [0, 1, 6])
def test_a_wrong_bit_in_a_queue_offset_removes_no_other_message_from_its_queue(
    tmp_path: Path, bit: int, which: int
) -> None:
    async def work(store: MessageStore) -> list[int]:
        found = await put(store, "orders", 0, *(b"%d" % number for number in range(8)))
        crashed_copy(store, tmp_path / "crashed")
        return found

    start = with_store(tmp_path / "store", work)[which]
    at = start + AT["queue_offset"]
    path = log_file_of(tmp_path / "crashed", at)
    data = bytearray(path.read_bytes())
    number = int.from_bytes(data[at : at + 8], "big") ^ 1 << bit
    data[at : at + 8] = number.to_bytes(8, "big")
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert shown(store) == [b"%d" % one for one in range(8) if one != which]
        if number > which:
            (damage,) = store.report.damages
            assert damage.offset == start and f"queue offset, {number}," in damage.why

    with_store(tmp_path / "crashed", check)


@pytest.mark.parametrize(("which", "bit"), [(0, 21), (1, 21), (7, 21), (0, 0), (1, 3)])
def test_a_wrong_bit_in_a_queue_with_expired_messages_loses_one_message_at_most(
    tmp_path: Path, which: int, bit: int
) -> None:
    """Also if the queue offset is so far below the next one that the gap exceeds the limit, and it
    is the first of its queue.
    """
    first = (1 << 21) - 1

    async def work(store: MessageStore) -> list[int]:
        queue = store.queue("orders", 0)
        assert queue.restore(first, b"x" * layout.ENTRY_SIZE)
        queue.minimum = queue.appended
        found = await put(store, "orders", 0, *(b"%d" % number for number in range(8)))
        crashed_copy(store, tmp_path / "crashed")
        return found

    start = with_store(tmp_path / "store", work)[which]
    shutil.rmtree(tmp_path / "crashed" / "consumequeue")
    at = start + AT["queue_offset"]
    path = log_file_of(tmp_path / "crashed", at)
    data = bytearray(path.read_bytes())
    number = int.from_bytes(data[at : at + 8], "big")
    assert number == first + 1 + which
    data[at : at + 8] = (number ^ 1 << bit).to_bytes(8, "big")
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert shown(store) == [b"%d" % one for one in range(8) if one != which]
        assert store.queue("orders", 0).readable == first + 9 - (which == 7)

    with_store(tmp_path / "crashed", check)


def test_queues_are_rebuilt_although_an_old_message_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first message of a log file. It is reported, and still readable."""
    monkeypatch.setattr(recovery, "VERIFY_BACK", 0)

    async def work(store: MessageStore) -> list[int]:
        found = await put(store, "orders", 0, *(b"%d" % number * 90 for number in range(100)))
        await store.checkpointer.checkpoint()
        await put(store, "orders", 0, b"new")
        crashed_copy(store, tmp_path / "crashed")
        return found

    found = with_store(tmp_path / "store", work)
    damaged = min(one for one in found if one >= LOG_FILE)
    assert damaged == LOG_FILE
    shutil.rmtree(tmp_path / "crashed" / "consumequeue")
    path = log_file_of(tmp_path / "crashed", damaged)
    data = bytearray(path.read_bytes())
    data[data.index(b"%d" % found.index(damaged) * 90)] ^= 1
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert len(bodies(store, "orders", 0)) == 101
        (damage,) = store.report.damages
        assert (damage.offset, damage.why) == (damaged, "the checksum of its body is wrong")

    with_store(tmp_path / "crashed", check)


@pytest.mark.parametrize(
    "what", ["size", "magic", "physical_offset", "topic", "body_length", "zeros"]
)
def test_queues_are_rebuilt_although_an_old_message_is_not_a_record_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It is reported, and all the others are in their places."""
    monkeypatch.setattr(recovery, "VERIFY_BACK", 0)

    async def work(store: MessageStore) -> list[int]:
        found = await put(store, "orders", 0, *(b"%d" % number * 90 for number in range(100)))
        await store.checkpointer.checkpoint()
        await put(store, "orders", 0, b"new")
        crashed_copy(store, tmp_path / "crashed")
        return found

    found = with_store(tmp_path / "store", work)
    damaged = 10
    at = found[damaged] % LOG_FILE
    shutil.rmtree(tmp_path / "crashed" / "consumequeue")
    path = log_file_of(tmp_path / "crashed", found[damaged])
    data = bytearray(path.read_bytes())
    if what == "zeros":
        data[at : at + 40] = bytes(40)
    elif what == "topic":
        data[data.index(b"orders", at)] = 0xFF
    else:
        data[at + AT[what]] ^= 0x10
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert [damage.offset for damage in store.report.damages] == [found[damaged]]
        queue = store.queue("orders", 0)
        assert queue.readable == 101
        there = [entry[0] for index in range(101) if (entry := queue.entry(index)) is not None]
        assert [one for n, one in enumerate(there) if n not in (damaged, 100)] == [
            one for n, one in enumerate(found) if n != damaged
        ]

    with_store(tmp_path / "crashed", check)


def test_a_queue_survives_a_power_failure_during_its_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its files deleted, and the messages lost that had shown the damage, nothing showed that
    the messages before the checkpoint had ever been in the queue.
    """
    monkeypatch.setattr(recovery, "VERIFY_BACK", 0)
    crashed, starts = damaged_copy(tmp_path)
    vouched = starts[40]
    path = crashed / "consumequeue" / "orders" / "0" / layout.file_name(0)
    path.write_bytes(path.read_bytes()[:130])
    remove_tree, cut = files.remove_tree, tmp_path / "cut"

    def remove_and_die(folder: Path) -> None:
        remove_tree(folder)
        shutil.copytree(crashed, cut)
        raise OSError(errno.EIO, "the end of this process")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="the end of this process"):
        patch.setattr(files, "remove_tree", remove_and_die)
        with_store(crashed, all_bodies, message_index_enable=False)
    (cut / "abort").write_bytes(b"another boot")
    for file in (cut / "commitlog").iterdir():  # the newest data had not reached the disk
        within = max(0, vouched - int(file.name))
        file.write_bytes(file.read_bytes()[:within].ljust(LOG_FILE, b"\0"))
    found = with_store(cut, all_bodies, message_index_enable=False)
    assert found == [expected(40, 0), expected(40, 1)]
