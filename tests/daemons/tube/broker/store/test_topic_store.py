"""A store receives messages: the content of its files, readability, and a failing disk."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import files
from mq.daemons.tube.broker.store import topic_store
from mq.daemons.tube.broker.store.errors import FlushMode
from mq.daemons.tube.broker.store.layout import HEAD, INDEX
from mq.daemons.tube.broker.store.topic_store import FlushSettings, MessageIds
from tests.daemons.tube.broker.store.stores import (
    NOW,
    Kept,
    Sender,
    data_files,
    index_files,
    opened,
    payloads,
    records,
)


async def turn() -> None:
    """Run the due callbacks of this turn of the loop."""
    for _ in range(3):
        await asyncio.sleep(0)


def fail(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, when: Callable[[str], bool]
) -> list[str]:
    """Make a system call fail for files whose path ``when`` accepts; record which did."""
    real = getattr(files, name)
    failed: list[str] = []

    def call(descriptor: int, *rest: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if when(path):
            failed.append(path)
            raise OSError(number, os.strerror(number), path)
        return real(descriptor, *rest)

    monkeypatch.setattr(files, name, call)
    return failed


def test_files_are_as_the_original_writes_them(tmp_path: Path) -> None:
    async def main() -> None:
        store = opened(tmp_path)
        store.append(10_003, b"hello", 907060870, 0x7F000001, 96354, 1, 42, NOW, lambda *_: None)
        await turn()

    asyncio.run(main())
    (data,), (index,) = data_files(tmp_path), index_files(tmp_path)
    assert data.name == "00000000000000000000.tube"
    assert index.name == "00000000000000000000.index"
    assert data.read_bytes() == bytes.fromhex(
        "00000035 02c998b8 3610a686 00002713 0000000000000000 0000018bcfe56800 7f000001 00017862"
        "000000000000002a 00000001 68656c6c6f"
    )
    assert index.read_bytes() == bytes.fromhex(
        "00002713 0000000000000000 00000039 00017862 0000018bcfe56800"
    )


def test_messages_of_a_turn_are_one_write_each_for_data_and_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    real = files.pwrite

    def pwrite(descriptor: int, *rest: Any) -> int:
        writes.append(descriptor)
        return real(descriptor, *rest)

    monkeypatch.setattr(files, "pwrite", pwrite)

    async def main() -> None:
        store = opened(tmp_path)
        writes.clear()
        sender = Sender(store)
        for number in range(4):
            sender.send(b"%d" % number)
        await turn()
        assert sender.taken == [(b"0", 0), (b"1", 28), (b"2", 56), (b"3", 84)]

    asyncio.run(main())
    assert len(writes) == 2
    assert payloads(tmp_path) == [b"0", b"1", b"2", b"3"]


def test_a_file_is_full_behind_the_record_that_reaches_its_size(tmp_path: Path) -> None:
    async def main() -> None:
        sender = Sender(opened(tmp_path))  # 1000 bytes of data, 5 records of the index
        for number in range(12):
            sender.send(b"%03d" % number * 100)
        await turn()
        assert len(sender.taken) == 12

    asyncio.run(main())
    assert [int(path.name[:20]) for path in data_files(tmp_path)] == [0, 1056, 2112, 3168]
    assert [int(path.name[:20]) for path in index_files(tmp_path)] == [0, 140, 280]
    assert payloads(tmp_path) == [b"%03d" % number * 100 for number in range(12)]
    assert [head[4] for head, _ in records(tmp_path)] == list(range(0, 12 * 28, 28))


def test_with_sync_nothing_is_told_or_readable_before_the_fsync(tmp_path: Path) -> None:
    async def main() -> None:
        kept = Kept()
        store = opened(tmp_path, FlushMode.sync, kept)
        sender = Sender(store)
        sender.send(b"a")
        await turn()
        sender.send(b"b")
        await turn()
        assert (sender.taken, store.max_index, store.max_data) == ([], 0, 0)
        assert len(kept) == 1
        kept.flush()
        assert sender.taken == [(b"a", 0), (b"b", 28)]
        assert (store.max_index, store.max_data) == (56, 106)

    asyncio.run(main())


def test_with_sync_what_comes_during_an_fsync_waits_for_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        kept = Kept()
        store = opened(tmp_path, FlushMode.sync, kept)
        sender = Sender(store)
        sender.send(b"a")
        await turn()
        kept.clear()
        upto, segments = store.flushing()
        sender.send(b"b")
        await turn()
        store.flushed(upto, segments, None)
        assert sender.taken == [(b"a", 0)]
        assert list(kept) == [store]

    asyncio.run(main())


def test_a_failing_fsync_refuses_all_that_waits_and_all_that_comes(tmp_path: Path) -> None:
    async def main() -> None:
        kept = Kept()
        store = opened(tmp_path, FlushMode.sync, kept)
        sender = Sender(store)
        sender.send(b"a")
        await turn()
        sender.send(b"taken, not yet written")
        kept.flush(OSError(errno.EIO, "EIO"))
        await turn()
        kept.flush()  # a later successful fsync does not cover the lost data
        sender.send(b"c")
        assert [refused.code for refused in sender.refused] == [500, 503, 503]
        assert (sender.taken, store.max_data) == ([], 0)

    asyncio.run(main())


@pytest.mark.parametrize("suffix", [".tube", ".index"])
@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 419), (errno.EIO, 500)])
def test_a_write_that_fails_leaves_the_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, number: int, code: int
) -> None:
    async def main() -> None:
        store = opened(tmp_path)
        sender = Sender(store)
        sender.send(b"before")
        await turn()
        with monkeypatch.context() as patch:
            failed = fail(patch, "pwrite", number, lambda path: path.endswith(suffix))
            sender.send(b"lost")
            sender.send(b"too")
            await turn()
            assert failed
        assert [refused.code for refused in sender.refused] == [code, code]
        sender.send(b"behind")
        await turn()
        assert sender.taken == [(b"before", 0), (b"behind", 28)]

    asyncio.run(main())
    assert payloads(tmp_path) == [b"before", b"behind"]
    entry = INDEX.unpack(index_files(tmp_path)[0].read_bytes()[28:])
    assert entry[1:3] == (58, 58)


def test_a_write_that_cannot_be_taken_back_ends_the_intake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        store = opened(tmp_path)
        sender = Sender(store)
        fail(monkeypatch, "pwrite", errno.EIO, lambda path: path.endswith(".index"))
        fail(monkeypatch, "ftruncate", errno.EIO, lambda path: path.endswith(".tube"))
        sender.send(b"a")
        await turn()
        sender.send(b"b")
        assert [refused.code for refused in sender.refused] == [500, 503]
        assert store.is_broken and store.max_data == 0

    asyncio.run(main())


def test_a_write_that_cannot_be_taken_back_leaves_nobody_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        kept = Kept()
        sender = Sender(opened(tmp_path, FlushMode.sync, kept))
        sender.send(b"waits for an fsync")
        await turn()
        with monkeypatch.context() as patch:
            fail(patch, "pwrite", errno.EIO, lambda path: True)
            fail(patch, "ftruncate", errno.EIO, lambda path: True)
            sender.send(b"b")
            await turn()
        kept.flush()
        assert sorted(refused.code for refused in sender.refused) == [500, 500]

    asyncio.run(main())


def test_beginning_a_file_waits_for_no_disk_and_its_flush_has_both_files_and_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    async def main() -> None:
        kept = Kept()
        sender = Sender(opened(tmp_path, FlushMode.sync, kept))
        for name in ("fdatasync", "fsync"):
            real = getattr(files, name)

            def sync(descriptor: int, real: Callable[[int], None] = real) -> None:
                synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
                real(descriptor)

            monkeypatch.setattr(files, name, sync)
        for number in range(3):
            sender.send(b"%d" % number * 1000)
        await turn()
        assert not synced and not sender.taken
        kept.flush()
        assert len(sender.taken) == 3

    asyncio.run(main())
    first, second, third = map(str, data_files(tmp_path))
    assert synced == [first, second, str(tmp_path), third, str(tmp_path)]


def no_room(path: object, *_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_no_new_file_is_a_refusal_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        sender = Sender(opened(tmp_path))
        sender.send(b"x" * 1000)
        await turn()
        with monkeypatch.context() as patch:
            patch.setattr(files, "open", no_room)
            sender.send(b"refused")
            assert [refused.code for refused in sender.refused] == [419]
        assert len(data_files(tmp_path)) == 1
        sender.send(b"taken")
        await turn()

    asyncio.run(main())
    assert payloads(tmp_path) == [b"x" * 1000, b"taken"]


def test_more_than_the_disk_can_follow_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_store, "MAX_WAITING", 100)

    async def main() -> None:
        kept = Kept()
        sender = Sender(opened(tmp_path, FlushMode.sync, kept))
        sender.send(b"x" * 100)
        sender.send(b"y")
        assert [refused.code for refused in sender.refused] == [419]
        await turn()
        kept.flush()
        sender.send(b"z")
        await turn()
        kept.flush()
        assert [payload for payload, _ in sender.taken] == [b"x" * 100, b"z"]

    asyncio.run(main())


def test_with_memory_messages_are_told_at_once_and_written_when_the_cache_is_full(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        settings = FlushSettings(cache_count=3)
        store = opened(tmp_path, FlushMode.memory, settings=settings)
        sender = Sender(store)
        for number in range(3):
            sender.send(b"%d" % number)
        await turn()
        assert len(sender.taken) == 3
        assert payloads(tmp_path) == []
        sender.send(b"3")
        assert payloads(tmp_path) == [b"0", b"1", b"2"]
        store.write_cached()
        assert (payloads(tmp_path)[3:], store.max_index) == ([b"3"], 4 * 28)

    asyncio.run(main())


def test_with_memory_what_was_told_is_kept_until_the_disk_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        store = opened(tmp_path, FlushMode.memory, settings=FlushSettings(cache_count=2))
        sender = Sender(store)
        with monkeypatch.context() as patch:
            fail(patch, "pwrite", errno.ENOSPC, lambda path: path.endswith(".tube"))
            for number in range(3):
                sender.send(b"%d" % number)
            assert [refused.code for refused in sender.refused] == [419]
        store.write_cached()

    asyncio.run(main())
    assert payloads(tmp_path) == [b"0", b"1"]


def test_a_threshold_of_messages_asks_for_a_flush(tmp_path: Path) -> None:
    async def main() -> None:
        kept = Kept()
        sender = Sender(opened(tmp_path, kept=kept, settings=FlushSettings(threshold=2)))
        sender.send(b"a")
        await turn()
        assert not kept
        sender.send(b"b")
        await turn()
        assert len(kept) == 1

    asyncio.run(main())


def test_bytes_that_are_held_ask_for_a_flush(tmp_path: Path) -> None:
    async def main() -> None:
        kept = Kept()
        sender = Sender(opened(tmp_path, kept=kept, settings=FlushSettings(data_hold=54)))
        sender.send(b"ab")
        await turn()
        assert len(kept) == 1

    asyncio.run(main())


def test_time_asks_for_a_flush(tmp_path: Path) -> None:
    async def main() -> None:
        asked = asyncio.Event()
        store = opened(tmp_path, settings=FlushSettings(interval=1))
        store._request_flush = lambda _: asked.set()
        Sender(store).send(b"a")
        async with asyncio.timeout(30):
            await asked.wait()

    asyncio.run(main())


def test_a_sender_whose_answer_fails_keeps_nobody_from_theirs(tmp_path: Path) -> None:
    async def main() -> None:
        store = opened(tmp_path)

        def broken(*_: object) -> None:
            raise RuntimeError("the connection")

        store.append(0, b"a", 0, 0, -1, 0, 1, NOW, broken)
        sender = Sender(store)
        sender.send(b"b")
        await turn()
        assert sender.taken == [(b"b", 28)]

    asyncio.run(main())


def test_ids_grow_whatever_the_clock_does() -> None:
    ids = MessageIds()
    given = [ids.next(NOW), ids.next(NOW), ids.next(NOW - 1000), ids.next(NOW + 1)]
    assert given == sorted(set(given))
    assert 0 < given[0] < 1 << 63


def test_a_head_is_52_bytes() -> None:
    assert HEAD.size == 52
