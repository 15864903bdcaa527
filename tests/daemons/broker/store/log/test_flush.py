"""The replies to senders while the disk is slow, and when it fails."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from tests.daemons.broker.store.stores import Sink, append, bodies, hold_fsyncs, put, with_store

SYNC = FlushDiskType.SYNC_FLUSH
TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


@contextmanager
def held_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that confirms nothing inside the block, or until the event is set."""
    gate = hold_fsyncs(monkeypatch)
    try:
        yield gate
    finally:
        gate.set()


async def codes(sink: Sink, count: int) -> list[tuple[int, int]]:
    """(opaque, code) of the next replies."""
    replies: list[Command] = []
    while len(replies) < count:
        replies += await sink.next_write()
    return [(reply.opaque, reply.code) for reply in replies]


def test_a_slow_disk_is_reported_and_the_message_keeps_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        sink = Sink()
        with held_disk(monkeypatch):
            append(store, sink, 1)
            (reply,) = await sink.next_write()
            assert reply.code == TIMEOUT
            assert "syncFlushTimeout" in (reply.remark or "")
            assert reply.fields == {"msgId": "id1", "queueOffset": "0"}
            assert store.max_offset("orders", 0) == 0
        assert await store.flusher.drain()
        assert bodies(store, "orders", 0) == [b"body"]
        assert sink.writes == []  # answered once

    with_store(tmp_path, work, flush=SYNC, sync_flush_timeout=50)


def test_a_sender_that_arrives_while_the_disk_hangs_gets_its_timeout_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        sink = Sink()
        with held_disk(monkeypatch):
            for opaque in (1, 2, 3):
                append(store, sink, opaque)
                assert await codes(sink, 1) == [(opaque, TIMEOUT)]
        assert await store.flusher.drain()
        assert store.max_offset("orders", 0) == 3

    with_store(tmp_path, work, flush=SYNC, sync_flush_timeout=50)


def test_the_timeout_is_counted_from_each_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        loop = asyncio.get_running_loop()
        sink = Sink()
        with held_disk(monkeypatch):
            append(store, sink, 1)
            await asyncio.sleep(0.3)
            began = loop.time()
            append(store, sink, 2)
            assert await codes(sink, 2) == [(1, TIMEOUT), (2, TIMEOUT)]
            assert loop.time() - began >= 0.49

    with_store(tmp_path, work, flush=SYNC, sync_flush_timeout=500)


def test_records_written_during_an_fsync_are_covered_by_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        sink = Sink()
        with held_disk(monkeypatch) as gate:
            for opaque in range(10):
                append(store, sink, opaque)
                store.appender.commit()
            assert store.flusher.waiting_replies == 10
            before = store.flusher.flushes
            gate.set()
            assert await codes(sink, 10) == [(opaque, 0) for opaque in range(10)]
        assert store.flusher.flushes - before == 2

    with_store(tmp_path, work, flush=SYNC)


def test_nothing_past_the_flushed_offset_is_readable_while_files_roll(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        puts = [asyncio.ensure_future(put(store, "orders", 0, b"x" * 700)) for _ in range(30)]
        while not all(done.done() for done in puts):
            await asyncio.sleep(0)
            queue = store.queue("orders", 0)
            if queue.readable:
                entry = queue.entry(queue.readable - 1)
                assert entry is not None and entry[0] + entry[1] <= store.flushed_offset
        await asyncio.gather(*puts)
        assert store.max_offset("orders", 0) == 30
        assert store.flushed_offset == store.max_physical_offset

    with_store(tmp_path, work, flush=SYNC)


def test_after_a_failed_fsync_every_sender_gets_a_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"good")
        sink = Sink()
        sent = 0
        with monkeypatch.context() as patch:

            def fail(descriptor: int) -> None:
                raise OSError(5, "Input/output error")

            patch.setattr(files, "fdatasync", fail)
            async with asyncio.timeout(30):
                # In every turn, so that a batch is open in the turn in which the error arrives.
                while store.appender.refusal is None:
                    append(store, sink, sent)
                    sent += 1
                    await asyncio.sleep(0)
            answers = dict(await codes(sink, sent))
        assert answers == dict.fromkeys(range(sent), REFUSED)
        assert not await store.flusher.drain()
        assert bodies(store, "orders", 0) == [b"good"]

    with_store(tmp_path, work, flush=SYNC)
    assert (tmp_path / "abort").exists()  # so that the next start reads the log
