"""The log's next file is created before it is needed, in a thread, and deleted if it is not
needed."""

import asyncio
import threading
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.preallocation import Allocation, NextFile
from mq.daemons.broker.store.message_store import MessageStore
from tests.daemons.broker.store.stores import bodies, put, with_store
from tests.waiting import until

FILE = 4096


def names(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def test_the_event_loop_syncs_no_log_folder_except_for_the_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    sync = files.sync_folder

    def watched(folder: Path) -> None:
        if folder.name == "commitlog":
            waited.append(threading.get_ident())
        sync(folder)

    async def work(store: MessageStore) -> None:
        monkeypatch.setattr(files, "sync_folder", watched)
        await put(store, "orders", 0, b"x" * 900)
        for number in range(1, 4):
            await put(store, "orders", 0, *[b"x" * 900] * 3)
            await until(lambda: store.next_file.is_ready)
            await put(store, "orders", 0, b"x" * 900)
            assert store.log.files[-1].start == number * FILE
        assert waited.count(threading.get_ident()) == 1
        monkeypatch.undo()

    with_store(tmp_path, work)


def test_an_unused_file_is_deleted_by_a_clean_stop(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x" * 900] * 4)
        await until(lambda: store.next_file.is_ready)
        assert names(tmp_path) == [0, FILE]

    with_store(tmp_path, work)
    assert names(tmp_path) == [0]


def test_a_late_file_replaces_none_of_the_log(tmp_path: Path) -> None:
    """Seed 30218: a slave created the file while a thread created the same one, then truncated its
    log.
    """

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x" * 900] * 4)
        await until(lambda: store.next_file.is_ready)
        store.log.take_ready = lambda start: None  # as if the thread were late
        await put(store, "orders", 0, b"x" * 900)
        assert store.log.files[-1].start == FILE and store.next_file.is_ready
        await store.next_file.discard()
        assert names(tmp_path) == [0, FILE]

    with_store(tmp_path, work)
    assert names(tmp_path) == [0, FILE]


def test_a_start_after_a_kill_deletes_an_unused_file(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"before")

    with_store(tmp_path, work)
    (tmp_path / "abort").touch()
    (tmp_path / "commitlog" / f"{FILE:020d}").write_bytes(bytes(FILE))

    async def reopened(store: MessageStore) -> None:
        assert names(tmp_path) == [0]
        await put(store, "orders", 0, *[b"x" * 900] * 5)
        assert bodies(store, "orders", 0) == [b"before", *[b"x" * 900] * 5]

    with_store(tmp_path, reopened)


def test_a_file_that_comes_too_late_is_closed_and_the_log_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    sync = files.sync_folder

    def slowly(folder: Path) -> None:
        if threading.current_thread() is not threading.main_thread():
            let_go.wait(30)
        sync(folder)

    async def main() -> None:
        log = CommitLog([tmp_path], FILE)
        log.load()
        own = [log.add_file()]
        log.position = FILE - 1
        ahead = NextFile(log, Allocation(log))
        monkeypatch.setattr(files, "sync_folder", slowly)
        ahead.check()
        own.append(log.add_file())
        own[1].write(b"of the log", 0)
        let_go.set()
        log.position = 2 * FILE - 1
        ahead.check()
        ahead.close()
        assert log.files == own
        assert own[1].read(0, 10) == b"of the log"
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            f"{start:020d}"
            for start in (0, FILE)  # and the third was deleted
        ]
        log.close()

    asyncio.run(main())
