"""Recovery keeps the removed part of the log first, or removes nothing."""

import errno
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreLoadError, StoreRefused
from mq.daemons.broker.store.message_store import MessageStore
from tests.daemons.broker.store.damaged_copies import (
    all_bodies,
    damaged_copy,
    expected,
    fill,
    log_file_of,
)
from tests.daemons.broker.store.stores import bodies, crashed_copy, put, with_store


def log_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


async def nothing(store: MessageStore) -> None:
    """Start and stop."""


@pytest.mark.parametrize("has_links", [True, False])
def test_later_files_are_kept_on_any_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    crashed, starts = damaged_copy(tmp_path)
    (crashed / layout.CHECKPOINT_FILE).unlink()  # the whole log is verified
    before = log_of(crashed)
    flip(log_file_of(crashed, starts[3]), starts[3] % 4096 + 95)

    def other_file_system(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    if not has_links:
        monkeypatch.setattr(files, "link", other_file_system)
    with_store(crashed, nothing)
    later = {name: data for name, data in before.items() if int(name) > starts[3]}
    assert later and not later.keys() & log_of(crashed).keys()
    for name, data in later.items():
        kept = (crashed / "damaged" / name).read_bytes()
        assert kept.ljust(4096, b"\0") == data
    assert not list((crashed / "damaged").glob("*.part"))


@pytest.mark.parametrize("where", ["tail", "later files"])
def test_a_store_whose_damaged_part_cannot_be_kept_does_not_start_and_loses_nothing(
    tmp_path: Path, where: str
) -> None:
    crashed, starts = damaged_copy(tmp_path)
    (crashed / layout.CHECKPOINT_FILE).unlink()
    at = starts[3] if where == "later files" else starts[-1]
    flip(log_file_of(crashed, at), at % 4096 + 95)
    before = log_of(crashed)
    (crashed / "damaged").write_text("a file where the folder should be")
    for _ in range(2):
        with pytest.raises(StoreLoadError, match=r"cannot be copied to .*damaged.*Nothing was del"):
            with_store(crashed, nothing)
        assert log_of(crashed) == before
    (crashed / "damaged").unlink()

    async def check(store: MessageStore) -> None:
        count = starts.index(at)
        assert await all_bodies(store) == [expected(count, 0), expected(count, 1)]

    with_store(crashed, check)
    assert (crashed / "damaged" / layout.file_name(at)).exists()


def test_a_disk_that_fills_up_while_a_copy_is_made_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, starts = damaged_copy(tmp_path)
    flip(log_file_of(crashed, starts[-1]), starts[-1] % 4096 + 95)
    before = log_of(crashed)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def refused(store: MessageStore) -> None:
        assert store.max_physical_offset == starts[-1]
        with pytest.raises(StoreRefused, match=r"No space left.* free \d+ bytes there"):
            await put(store, "orders", 0, b"refused")

    with monkeypatch.context() as patch:
        patch.setattr(files, "sendfile", full)
        with_store(crashed, refused)
    assert log_of(crashed) == before
    assert list((crashed / "damaged").iterdir()) == []
    with_store(crashed, nothing)
    assert [path.name for path in (crashed / "damaged").iterdir()] == [layout.file_name(starts[-1])]


def test_zeros_followed_by_records_are_damage_and_the_records_are_kept(
    tmp_path: Path,
) -> None:
    """A power failure may leave this of a file whose pages were not flushed in order."""
    crashed, starts = damaged_copy(tmp_path)
    gone, behind = [start for start in starts if start // 4096 == starts[-1] // 4096][1:3]
    path = log_file_of(crashed, gone)
    data = bytearray(path.read_bytes())
    data[gone % 4096 : behind % 4096] = bytes(behind - gone)
    path.write_bytes(data)

    async def check(store: MessageStore) -> None:
        assert store.max_physical_offset == gone
        (damage,) = store.report.damages
        assert damage.offset == gone and "zeros, with data after them" in damage.why
        count = starts.index(gone)
        assert await all_bodies(store) == [expected(count, 0), expected(count, 1)]

    with_store(crashed, check)
    kept = (crashed / "damaged" / layout.file_name(gone)).read_bytes()
    assert kept == bytes(data[gone % 4096 :]).rstrip(b"\0")


def test_a_log_filled_with_zeros_beforehand_is_whole(tmp_path: Path) -> None:
    """As Java fills its next files (warmMapedFileEnable)."""
    crashed, _ = damaged_copy(tmp_path)
    last = max((crashed / "commitlog").iterdir())
    last.with_name(layout.file_name(int(last.name) + 4096)).write_bytes(bytes(4096))

    async def check(store: MessageStore) -> None:
        assert store.report.damages == []
        assert await all_bodies(store) == [expected(60, 0), expected(60, 1)]

    with_store(crashed, check)
    assert not (crashed / "damaged").exists()


@pytest.mark.parametrize("follows", [True, False])
def test_a_log_that_ends_with_a_full_file_is_whole(tmp_path: Path, follows: bool) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x" * 900] * 5)
        crashed_copy(store, tmp_path / "b")

    async def check(store: MessageStore) -> None:
        assert store.report.damages == []
        assert bodies(store, "orders", 0) == [b"x" * 900] * 4
        await put(store, "orders", 0, b"after")

    with_store(tmp_path / "a", work)
    second = tmp_path / "b" / "commitlog" / layout.file_name(4096)
    second.write_bytes(bytes(4096)) if follows else second.unlink()
    with_store(tmp_path / "b", check)
    assert not (tmp_path / "b" / "damaged").exists()


def test_two_truncations_at_one_offset_are_both_kept(tmp_path: Path) -> None:
    async def first(store: MessageStore) -> None:
        await fill(store, 10)
        crashed_copy(store, tmp_path / "b")

    async def again(store: MessageStore) -> int:
        end = store.max_physical_offset
        await put(store, "orders", 0, b"second" * 20)
        crashed_copy(store, tmp_path / "c")
        return end

    async def check(store: MessageStore) -> None:
        assert b"second" * 20 not in bodies(store, "orders", 0)

    with_store(tmp_path / "a", first)
    start = max((tmp_path / "b" / "commitlog").iterdir())
    end = len(start.read_bytes().rstrip(b"\0"))
    flip(start, end - 60)
    at = with_store(tmp_path / "b", again)
    flip(tmp_path / "c" / "commitlog" / start.name, at + 90)
    with_store(tmp_path / "c", check)
    name = layout.file_name(at)
    kept = [(tmp_path / "c" / "damaged" / n).read_bytes() for n in (name, f"{name}.1")]
    assert b"m9." in kept[0] and b"second" in kept[1]


def test_a_log_whose_disk_is_not_mounted_does_not_cost_the_queues(tmp_path: Path) -> None:
    disk, store_root = tmp_path / "disk", tmp_path / "store"

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"one")

    async def check(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == [b"one"]

    with_store(store_root, work, store_path_commit_log=str(disk))
    disk.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreLoadError, match=r"there is no log in .*disk, .*: mount its disk"):
        with_store(store_root, nothing, store_path_commit_log=str(disk))
    disk.rmdir()
    (tmp_path / "elsewhere").rename(disk)
    with_store(store_root, check, store_path_commit_log=str(disk))
