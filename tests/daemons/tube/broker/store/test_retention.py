"""Deletion of old files: whole ones, oldest first, never the last or one in use."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from mq.client.machine import clock, files
from mq.daemons.tube.broker.store.flusher import Flusher
from mq.daemons.tube.broker.store.reading import ReadRequest, ThreadRead, read
from mq.daemons.tube.broker.store.recovery import recover
from mq.daemons.tube.broker.store.retention import DEFAULT_MS, delete_expired, kept_ms
from mq.daemons.tube.broker.store.topic_store import TopicStore
from tests.daemons.tube.broker.store.stores import (
    DATA_SIZE,
    INDEX_SIZE,
    Sender,
    data_files,
    index_files,
    opened,
)

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("policy", "milliseconds"),
    [
        ("delete,168h", 168 * HOUR),
        ("delete,90m", 90 * 60_000),
        ("delete,5s", 5000),
        ("delete,3", 3 * HOUR),
        ("delete", DEFAULT_MS),
        ("delete,x", DEFAULT_MS),
        ("delete,-1h", DEFAULT_MS),
        ("", DEFAULT_MS),
    ],
)
def test_a_policy_says_how_long_files_stay(policy: str, milliseconds: int) -> None:
    assert kept_ms(policy) == milliseconds


async def filled(folder: Path) -> TopicStore:
    store = opened(folder)
    sender = Sender(store)
    for number in range(12):
        sender.send(b"%03d" % number * 80)
    for _ in range(3):
        await asyncio.sleep(0)
    assert (len(data_files(folder)), len(index_files(folder))) == (3, 3)
    return store


def test_a_file_that_is_being_flushed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go = threading.Event()
    real = files.fdatasync

    async def main() -> None:
        flusher = Flusher()
        store = opened(tmp_path)
        sender = Sender(store)
        sender.send(b"x" * 1000)
        sender.send(b"y")
        for _ in range(3):
            await asyncio.sleep(0)

        def slow(descriptor: int) -> None:
            may_go.wait(30)
            real(descriptor)

        monkeypatch.setattr(files, "fdatasync", slow)
        flusher.request(store)
        age(*data_files(tmp_path))
        assert await delete_expired(store, HOUR, clock.milliseconds()) == 0
        may_go.set()
        await flusher.settle()
        assert not store.is_broken
        assert await delete_expired(store, HOUR, clock.milliseconds()) == 1
        await flusher.close()
        store.close()

    asyncio.run(main())


def age(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (1, 1))


def test_files_that_have_expired_go_and_the_last_stays(tmp_path: Path) -> None:
    async def main() -> None:
        store = await filled(tmp_path)
        age(*data_files(tmp_path), *index_files(tmp_path))
        assert await delete_expired(store, HOUR, clock.milliseconds()) == 4
        assert (len(data_files(tmp_path)), len(index_files(tmp_path))) == (1, 1)
        assert (store.min_data, store.min_index) == (292 * 8, 28 * 10)
        store.close()
        recovered = recover(tmp_path, DATA_SIZE, INDEX_SIZE)
        assert recovered.data.start == 292 * 8

    asyncio.run(main())


def test_a_young_file_keeps_those_behind_it(tmp_path: Path) -> None:
    async def main() -> None:
        store = await filled(tmp_path)
        age(data_files(tmp_path)[1])
        assert await delete_expired(store, HOUR, clock.milliseconds()) == 0

    asyncio.run(main())


def test_what_the_index_says_of_files_that_have_gone_is_passed_over(tmp_path: Path) -> None:
    async def main() -> None:
        store = await filled(tmp_path)
        age(data_files(tmp_path)[0])
        await delete_expired(store, HOUR, clock.milliseconds())
        found = read(store, ReadRequest(0, 0, None, 1 << 20, 1 << 20))
        assert (found.size, found.scanned) == (292, 28 * 5)  # one file of the index at a time

    asyncio.run(main())


def test_a_file_that_is_being_read_stays(tmp_path: Path) -> None:
    async def main() -> None:
        store = await filled(tmp_path)
        age(*data_files(tmp_path))
        reading = ThreadRead(store, ReadRequest(0, 0, None, 1 << 20, 1 << 20))
        assert await delete_expired(store, HOUR, clock.milliseconds()) == 0
        assert reading.run().size == 292 * 5
        reading.end()
        assert await delete_expired(store, HOUR, clock.milliseconds()) == 2

    asyncio.run(main())


def test_a_file_that_cannot_be_deleted_is_still_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        store = await filled(tmp_path)
        age(*data_files(tmp_path))

        def refuse(path: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        with monkeypatch.context() as patch:
            patch.setattr(files, "unlink", refuse)
            assert await delete_expired(store, HOUR, clock.milliseconds()) == 0
        assert store.min_data == 0
        assert await delete_expired(store, HOUR, clock.milliseconds()) == 2

    asyncio.run(main())
