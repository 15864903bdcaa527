"""Messages that cannot be written are removed, and their senders get the refusal."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import files
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.store.appended import OVERHEAD, BrokenSink, log_bytes
from tests.daemons.broker.store.stores import (
    HOST,
    Sink,
    append,
    bodies,
    fill_disk,
    leave_refused,
    put,
    with_store,
)


@pytest.mark.parametrize("room", [0, 50, 130])
def test_a_batch_that_cannot_be_written_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"first")
        end = store.log.position
        with monkeypatch.context() as patch:
            fill_disk(patch, room)
            with pytest.raises(StoreRefused, match="No space left on device") as refused:
                await put(store, "orders", 0, b"lost", b"lost too", keys=("k",))
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        queue = store.queue("orders", 0)
        assert (queue.appended, queue.written, queue.readable) == (1, 1, 1)
        assert queue.put_bytes == end
        assert (store.log.position, store.log.written) == (end, end)
        assert log_bytes(tmp_path, 0)[end:] == bytes(4096 - end)
        assert query_by_key(store, "orders", "k", 10, 0, 1 << 62)[2] == []
        assert (store.appender.publisher.messages, store.appender.failed_writes) == (1, 1)
        assert await put(store, "orders", 0, b"second") == [end]
        assert bodies(store, "orders", 0) == [b"first", b"second"]

    with_store(tmp_path, work)


def test_messages_are_accepted_again_when_the_disk_can_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the half-written batch could not be removed from the log at once."""

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"first")
        end = store.log.position
        with monkeypatch.context() as patch:
            fill_disk(patch, 50)
            patch.setattr(files, "ftruncate", fail)
            for body in (b"lost", b"refused at once"):
                with pytest.raises(StoreRefused, match="cannot write the commit log"):
                    await put(store, "orders", 0, body)
            store.appender.clear_again()
            assert store.appender.refusal is not None
        assert log_bytes(tmp_path, 0)[end : end + 50] != bytes(50)
        store.appender.clear_again()
        assert log_bytes(tmp_path, 0)[end:] == bytes(4096 - end)
        assert await put(store, "orders", 0, b"second") == [end]
        assert bodies(store, "orders", 0) == [b"first", b"second"]

    with_store(tmp_path, work)


def test_a_message_is_refused_with_earlier_ones_whose_write_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the messages before it cannot be removed from the log at once, it would be removed with
    them later.
    """
    real = os.pwrite
    calls = 0

    def fail_for_a_moment(descriptor: int, data: bytes | memoryview, position: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:  # a part is written; the rest, and its removal, fails
            return real(descriptor, data[:50], position)
        if calls <= 3:
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, data, position)

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"first")
        monkeypatch.setattr(files, "pwrite", fail_for_a_moment)
        refused = asyncio.gather(
            put(store, "orders", 0, b"a" * 2000),
            put(store, "orders", 1, b"b" * 2500),  # it does not fit after the first one
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in await refused] == [StoreRefused, StoreRefused]
        store.appender.clear_again()
        await put(store, "orders", 1, b"last")
        assert bodies(store, "orders", 0) == [b"first"]
        assert bodies(store, "orders", 1) == [b"last"]

    with_store(tmp_path, work)


def test_refused_messages_that_could_not_be_removed_are_removed_by_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has recovered, and the store is stopped before it has tried again."""

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"first")
        await leave_refused(store, monkeypatch)

    async def check(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == [b"first"]
        assert not store.report.damages

    with_store(tmp_path, work)
    with_store(tmp_path, check)


def test_every_sender_of_a_removed_batch_gets_its_own_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        sink = Sink()
        append(store, sink, 5)
        append(store, sink, 6, promptly=True)
        with monkeypatch.context() as patch:
            fill_disk(patch)
            store.appender.commit()
        replies = (await sink.next_write()) + (await sink.next_write())
        assert [(reply.opaque, reply.code) for reply in replies] == [
            (5, ResponseCode.SERVICE_NOT_AVAILABLE),
            (6, ResponseCode.SERVICE_NOT_AVAILABLE),
        ]
        assert all(reply.is_response and not reply.fields for reply in replies)

    with_store(tmp_path, work)


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_without_a_next_file_nothing_overwrites_the_blank(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    in_the_way = tmp_path / "commitlog" / f"{4096:020d}"

    async def work(store: MessageStore) -> None:
        in_the_way.mkdir()
        await put(store, "orders", 0, *[b"x" * 900] * 3)
        for body in (b"x" * 1500, b"small enough for what was left"):
            with pytest.raises(StoreRefused, match="Is a directory"):
                await put(store, "orders", 0, body)
        assert log_bytes(tmp_path, 0)[2991:] == bytes.fromhex("00000451CBD43194") + bytes(1097)
        in_the_way.rmdir()
        assert await put(store, "orders", 0, b"after") == [4096]
        assert store.flushed_offset <= store.max_physical_offset
        assert bodies(store, "orders", 0) == [*[b"x" * 900] * 3, b"after"]

    with_store(tmp_path, work, flush=flush)

    async def reopened(store: MessageStore) -> None:
        assert bodies(store, "orders", 0)[-1] == b"after"

    with_store(tmp_path, reopened)


def test_messages_are_refused_until_every_cause_is_removed(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        appender = store.appender
        for cause in ("disk", "index"):
            code = ResponseCode.SERVICE_NOT_AVAILABLE
            appender.refuse(cause, StoreRefused(code, f"because of the {cause}"))
        with pytest.raises(StoreRefused, match="because of the disk"):
            await put(store, "orders", 0, b"no")
        appender.accept("disk")
        with pytest.raises(StoreRefused, match="because of the index"):
            await put(store, "orders", 0, b"no")
        appender.accept("index")
        await asyncio.wait_for(put(store, "orders", 0, b"yes"), 30)
        assert bodies(store, "orders", 0) == [b"yes"]

    with_store(tmp_path, work)


def test_an_error_of_one_refused_waiter_affects_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        told: list[StoreRefused | None] = []

        def broken(refusal: StoreRefused | None) -> None:
            raise RuntimeError("the callback is broken")

        good = Sink()
        append(store, BrokenSink(), 1)
        append(store, good, 2)
        store.appender.call_when_stored(broken)
        store.appender.call_when_stored(told.append)
        with monkeypatch.context() as patch:
            fill_disk(patch)
            store.appender.commit()
        (reply,) = await good.next_write()
        assert (reply.opaque, reply.code) == (2, ResponseCode.SERVICE_NOT_AVAILABLE)
        assert [refusal.code for refusal in told if refusal] == [reply.code]

    with_store(tmp_path, work)


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_message_that_cannot_be_encoded_leaves_nothing_behind(
    tmp_path: Path, in_batch: bool
) -> None:
    """An error in between must leave no record without an entry, and must not shift later
    entries."""

    async def work(store: MessageStore) -> None:
        queue = store.queue("orders", 0)

        def broken(*_: object) -> int:
            raise RuntimeError("the extension is broken")

        common: Any = {"sys_flag": 0, "born_timestamp": 1, "born_host": HOST, "reconsume_times": 0}
        await put(store, "orders", 0, b"one")
        store.appender.extend = broken
        with pytest.raises(RuntimeError, match="the extension is broken"):
            if in_batch:
                messages = [(b"no", b"\0\0", 0, 0, ())] * 2
                store.appender.append_batch(queue, messages, **common)
            else:
                store.appender.append(queue, b"no", b"\0\0", flag=0, **common)
        store.appender.extend = None
        await put(store, "orders", 0, b"two")
        assert bodies(store, "orders", 0) == [b"one", b"two"]
        assert store.max_physical_offset == 2 * (OVERHEAD + 3)

    with_store(tmp_path, work)
