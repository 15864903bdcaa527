"""What appending writes: records, blanks at the ends of files, replies; and what is taken back."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.key_query import query_by_key
from mq.daemons.broker.store.mapped_file import MappedFile
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.store.stores import (
    HOST,
    Sink,
    append,
    bodies,
    fill_disk,
    hold_fsyncs,
    leave_refused,
    put,
    with_store,
)

# A record of topic "orders" without properties is 97 bytes longer than its body.
OVERHEAD = 97


def log_bytes(root: Path, start: int) -> bytes:
    return (root / "commitlog" / f"{start:020d}").read_bytes()


def test_a_record_is_written_as_java_reads_it(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        store.appender.append(
            store.queue("TopicTest", 3),
            b"Hello",
            b"\0\x09TAGS\x01TagA",
            flag=7,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            born_host=bytes.fromhex("7F0000010000C350"),
            reconsume_times=2,
            prepared_offset=9,
        )
        store.appender.commit()

    with_store(tmp_path, work)
    record = log_bytes(tmp_path, 0)[:115]
    assert record[:56].hex().upper() == (
        "00000072DAA320A777D1898200000003000000070000000000000000000000000000000000000000"
        "0000018BCFE568007F0000010000C350"
    )
    assert record[64:].hex().upper() == (
        "7F00000100002A9F0000000200000000000000090000000548656C6C6F09546F7069635465737400"
        "09544147530154616741" + "00"
    )


@pytest.mark.parametrize(
    ("last_body", "goes_to"),
    [(3, 3988), (4, 4096)],
    ids=["just fits before the room for a blank", "is a byte too long"],
)
def test_a_record_stays_in_a_file_only_if_a_blank_fits_behind_it(
    tmp_path: Path, last_body: int, goes_to: int
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x" * 900] * 4)  # up to 3988, 108 bytes are left
        assert await put(store, "orders", 0, b"y" * last_body) == [goes_to]

    with_store(tmp_path, work)


def test_a_full_file_ends_in_a_blank_and_the_next_begins_with_the_record(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x" * 900] * 5)

    with_store(tmp_path, work)
    first, second = log_bytes(tmp_path, 0), log_bytes(tmp_path, 4096)
    assert first[3988:] == bytes.fromhex("0000006CCBD43194") + bytes(100)
    assert second[:8] == bytes.fromhex("000003E5DAA320A7")
    assert second[20:36] == bytes.fromhex("00000000000000040000000000001000")

    async def reopened(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == [b"x" * 900] * 5

    with_store(tmp_path, reopened)


def test_messages_reserved_together_lie_in_one_file(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x" * 900] * 3)  # one more would fit, two would not
        store.appender.reserve(2 * (900 + OVERHEAD))
        assert await put(store, "orders", 0, *[b"y" * 900] * 2) == [4096, 4096 + 997]

    with_store(tmp_path, work)
    assert log_bytes(tmp_path, 0)[2991:2999] == bytes.fromhex("00000451CBD43194")


def test_what_one_who_waited_puts_as_a_file_ends_is_stored(tmp_path: Path) -> None:
    """A pop that is woken puts a check point: while the message behind makes room for itself."""
    told: list[object] = []

    class Pop:
        def __init__(self, store: MessageStore) -> None:
            self.store = store

        def wake(self) -> None:
            append(self.store, Sink(), 1, topic="points", body=b"point")
            self.store.appender.call_when_stored(told.append)

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x" * 900] * 3)  # up to 2991
        store.queue("orders", 0).waiting[Pop(store)] = None
        append(store, Sink(), 2, body=b"y" * 100)
        append(store, Sink(), 3, topic="others", body=b"z" * 900)  # the file has no room for this
        store.appender.commit()
        assert told == [None]
        await check(store)

    async def check(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == [*[b"x" * 900] * 3, b"y" * 100]
        assert bodies(store, "points", 0) == [b"point"]
        assert bodies(store, "others", 0) == [b"z" * 900]

    with_store(tmp_path, work)
    with_store(tmp_path, check)


def test_what_fits_in_no_file_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        with pytest.raises(StoreRefused, match="mappedFileSizeCommitLog") as refused:
            await put(store, "orders", 0, b"x" * (4096 - OVERHEAD - 7))
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert store.queue("orders", 0).appended == 0
        assert await put(store, "orders", 0, b"x" * (4096 - OVERHEAD - 8)) == [0]

    with_store(tmp_path, work)


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


def test_a_disk_that_can_be_written_again_takes_messages_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the half-written batch could not be taken out of the log at once."""

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


def test_a_message_whose_room_is_made_as_the_disk_fails_is_refused_with_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where those before it cannot be taken out of the log at once, it would go with them later."""
    real = os.pwrite
    calls = 0

    def fail_for_a_moment(descriptor: int, data: bytes | memoryview, position: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:  # a part is written; the rest, and taking it back, fails
            return real(descriptor, data[:50], position)
        if calls <= 3:
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, data, position)

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"first")
        monkeypatch.setattr(files, "pwrite", fail_for_a_moment)
        refused = asyncio.gather(
            put(store, "orders", 0, b"a" * 2000),
            put(store, "orders", 1, b"b" * 2500),  # there is no room for it behind that one
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in await refused] == [StoreRefused, StoreRefused]
        store.appender.clear_again()
        await put(store, "orders", 1, b"last")
        assert bodies(store, "orders", 0) == [b"first"]
        assert bodies(store, "orders", 1) == [b"last"]

    with_store(tmp_path, work)


def test_what_was_refused_and_could_not_be_taken_back_is_so_at_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is well again, and the store is stopped before it has looked."""

    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, b"first")
        await leave_refused(store, monkeypatch)

    async def check(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == [b"first"]
        assert not store.report.damages

    with_store(tmp_path, work)
    with_store(tmp_path, check)


def test_every_sender_of_a_batch_taken_back_is_told_under_its_own_number(
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
def test_without_a_next_file_nothing_is_put_over_the_blank(
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


def test_hosts_of_either_family_are_stored_and_read_again(tmp_path: Path) -> None:
    six = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")

    async def work(store: MessageStore) -> None:
        for body, host in ((b"v6", six), (b"v4", HOST)):
            store.appender.append(
                store.queue("orders", 0),
                body,
                b"\0\0",
                flag=0,
                sys_flag=0,
                born_timestamp=1,
                born_host=host,
            )
        await put(store, "orders", 0, b"v4 again")
        first = store.record_at(0)
        assert first is not None and len(first) == OVERHEAD + 2 + 12
        assert first[36:40] == bytes.fromhex("00000010")
        assert first[48:68] == six
        assert 0 < store.log.store_timestamp(0) == store.appender.publisher.last_timestamp

    with_store(tmp_path, work)
    (tmp_path / "checkpoint").unlink()
    for file in (tmp_path / "consumequeue" / "orders" / "0").iterdir():
        file.unlink()

    async def reopened(store: MessageStore) -> None:
        assert store.report.records == 3 and not store.report.damages
        assert store.max_offset("orders", 0) == 3

    with_store(tmp_path, reopened)


def test_replies_of_one_turn_leave_in_one_write_after_the_messages_can_be_read(
    tmp_path: Path,
) -> None:
    async def work(store: MessageStore) -> None:
        sink, other = Sink(), Sink()
        append(store, sink, 1)
        append(store, other, 2)
        append(store, sink, 3)
        assert (sink.writes, store.max_offset("orders", 0)) == ([], 0)
        replies = await sink.next_write()
        assert [reply.opaque for reply in replies] == [1, 3]
        assert [reply.opaque for reply in await other.next_write()] == [2]
        assert store.max_offset("orders", 0) == 3

    with_store(tmp_path, work)


def test_a_sender_that_does_not_wait_is_answered_before_the_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: MessageStore) -> None:
        gate = hold_fsyncs(monkeypatch)
        try:
            waits, does_not = Sink(), Sink()
            append(store, waits, 1)
            append(store, does_not, 2, promptly=True)
            assert [reply.code for reply in await does_not.next_write()] == [0]
            assert (waits.writes, store.max_offset("orders", 0)) == ([], 0)
        finally:
            gate.set()
        assert [reply.code for reply in await waits.next_write()] == [0]
        assert store.max_offset("orders", 0) == 2

    with_store(tmp_path, work, flush=FlushDiskType.SYNC_FLUSH)


def test_no_message_is_taken_before_every_cause_to_refuse_is_gone(tmp_path: Path) -> None:
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


class Waiter:
    """Waits for a queue's next message, as a held pull does."""

    def __init__(self, error: Exception | None = None) -> None:
        self.woken = 0
        self._error = error

    def wake(self) -> None:
        self.woken += 1
        if self._error is not None:
            raise self._error


class BrokenSink(Sink):
    def flush(self) -> None:
        raise RuntimeError("the sink is broken")


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("promptly", [False, True])
def test_an_error_of_one_who_waits_for_a_message_touches_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, flush: FlushDiskType, promptly: bool
) -> None:
    async def work(store: MessageStore) -> None:
        told: list[object] = []

        def broken(refusal: StoreRefused | None) -> None:
            raise RuntimeError("the callback is broken")

        good = Sink()
        waiters = [Waiter(RuntimeError("the waiter is broken")), Waiter()]
        for waiter in waiters:
            store.queue("orders", 0).waiting[waiter] = None
        for turn in (1, 2):  # with SYNC_FLUSH one flush covers both
            store.appender.call_when_stored(broken)
            append(store, BrokenSink(), turn, promptly=promptly)
            append(store, good, turn)
            store.appender.call_when_stored(told.append)
            store.appender.index("orders", (f"k{turn}",), store.log.position)
            store.appender.commit()
        replies = [*await good.next_write(), *await good.next_write()]
        assert [reply.opaque for reply in replies] == [1, 2]
        assert told == [None, None]
        assert [waiter.woken for waiter in waiters] == [2, 2]
        assert store.max_offset("orders", 0) == 4
        assert store.queue("orders", 0) in store.checkpointer.dirty
        assert store.key_index is not None and store.key_index.files

    with_store(tmp_path, work, flush=flush)
    with_store(tmp_path, all_there, flush=flush)
    for what in ("sink", "callback", "waiter"):
        assert f"the {what} is broken" in caplog.text


async def all_there(store: MessageStore) -> None:
    assert len(bodies(store, "orders", 0)) == 4


def test_an_error_of_one_who_is_told_of_a_refusal_touches_no_other(
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
def test_a_message_that_cannot_be_put_together_leaves_nothing_behind(
    tmp_path: Path, in_batch: bool
) -> None:
    """An error amid the work must not leave a record without an entry, nor shift those behind."""

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


def pack(store: MessageStore, *contents: bytes) -> None:
    """Append what has been packed elsewhere, as the native path does: bytes that are no records."""
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


def test_what_is_packed_elsewhere_is_written_in_its_order_with_the_rest(
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


def test_with_little_room_in_memory_what_is_packed_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.broker.store.append._PACKED_AT_ONCE", 100)
    monkeypatch.setattr("mq.daemons.broker.store.append._LEAST_ROOM", 50)

    async def work(store: MessageStore) -> None:
        store.appender.reserve(1)
        for number in range(10):
            pack(store, b"%d" % number * 40)
            assert store.log.written == number // 2 * 80
        store.appender.commit()
        assert bytes(store.log.files[0].view[:400]) == b"".join(b"%d" % n * 40 for n in range(10))

    with_store(tmp_path, work)


def test_what_was_packed_and_cannot_be_written_is_taken_back(
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
