"""Messages that were packed elsewhere are written in order with all others."""

import errno
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log.mapped_file import MappedFile
from mq.daemons.broker.store.message_store import MessageStore
from tests.daemons.broker.store.appended import OVERHEAD
from tests.daemons.broker.store.stores import (
    Sink,
    append,
    with_store,
)


def pack(store: MessageStore, *contents: bytes) -> None:
    """Append packed records, as the native path does; the bytes are not real records."""
    appender, queue = store.appender, store.queue("orders", 0)
    place = appender.place()
    assert place is not None
    start, memory, timestamp = place
    memory[: len(b"".join(contents))] = b"".join(contents)
    entries, position = b"", start
    for content in contents:
        entries += layout.ENTRY.pack(position, len(content), 0)
        position += len(content)
    size = position - start
    appender.append_packed(
        (size, [(queue, len(contents), entries, size)], b"", len(contents)), timestamp
    )


def test_packed_records_are_written_in_order_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def noted(self: MappedFile, data: bytes | memoryview, position: int) -> None:
        written.append(len(data))
        files.write_all(self.descriptor, data, position)

    async def work(store: MessageStore) -> None:
        pack(store, b"a" * 10)
        pack(store, b"b" * 20, b"c" * 30)
        append(store, Sink(), 1, b"between")
        pack(store, b"d" * 40)
        store.appender.commit()
        assert written == [10 + 20 + 30 + OVERHEAD + 7 + 40]
        pack(store, b"e" * 50)  # where the others were in memory
        store.appender.commit()
        log = store.log
        assert bytes(log.files[0].view[:60]) == b"a" * 10 + b"b" * 20 + b"c" * 30
        behind = 60 + OVERHEAD + 7
        assert bytes(log.files[0].view[behind : behind + 90]) == b"d" * 40 + b"e" * 50
        assert store.appender.publisher.messages == 6
        assert store.queue("orders", 0).readable == 6

    async def make_file(store: MessageStore) -> None:
        store.appender.reserve(1)
        monkeypatch.setattr(MappedFile, "write", noted)
        await work(store)
        monkeypatch.undo()

    with_store(tmp_path, make_file)


def test_packed_records_are_written_at_once_if_the_buffer_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.broker.store.log.append._PACKED_AT_ONCE", 100)
    monkeypatch.setattr("mq.daemons.broker.store.log.append._LEAST_ROOM", 50)

    async def work(store: MessageStore) -> None:
        store.appender.reserve(1)
        for number in range(10):
            pack(store, b"%d" % number * 40)
            assert store.log.written == number // 2 * 80
        store.appender.commit()
        assert bytes(store.log.files[0].view[:400]) == b"".join(b"%d" % n * 40 for n in range(10))

    with_store(tmp_path, work)


def test_packed_records_that_cannot_be_written_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        store.appender.reserve(1)
        with monkeypatch.context() as patch:

            def full(self: MappedFile, data: bytes, position: int) -> None:
                raise OSError(errno.ENOSPC, "No space left on device")

            patch.setattr(MappedFile, "write", full)
            pack(store, b"a" * 40)
            refusal = store.appender.commit()
        assert refusal is not None and store.queue("orders", 0).appended == 0
        pack(store, b"b" * 30)
        store.appender.commit()
        assert bytes(store.log.files[0].view[:40]) == b"b" * 30 + bytes(10)
        assert store.queue("orders", 0).readable == 1

    with_store(tmp_path, work)
