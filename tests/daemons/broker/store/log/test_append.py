"""What appending writes: records, blanks at the ends of files, replies."""

from pathlib import Path

import pytest

from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store_config import FlushDiskType
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.store.appended import OVERHEAD, BrokenSink, all_there, log_bytes
from tests.daemons.broker.store.stores import (
    HOST,
    Sink,
    append,
    bodies,
    hold_fsyncs,
    put,
    with_store,
)


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
def test_a_record_stays_in_a_file_only_if_a_blank_fits_after_it(
    tmp_path: Path, last_body: int, goes_to: int
) -> None:
    async def work(store: MessageStore) -> None:
        await put(store, "orders", 0, *[b"x" * 900] * 4)  # up to 3988, 108 bytes are left
        assert await put(store, "orders", 0, b"y" * last_body) == [goes_to]

    with_store(tmp_path, work)


def test_a_full_file_ends_in_a_blank_and_the_next_starts_with_the_record(tmp_path: Path) -> None:
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


def test_a_message_put_by_a_waiter_at_the_end_of_a_file_is_stored(tmp_path: Path) -> None:
    """A woken pop puts a check point while a message makes room for itself."""
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


def test_a_message_larger_than_a_file_is_refused_without_a_trace(tmp_path: Path) -> None:
    async def work(store: MessageStore) -> None:
        with pytest.raises(StoreRefused, match="mappedFileSizeCommitLog") as refused:
            await put(store, "orders", 0, b"x" * (4096 - OVERHEAD - 7))
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert store.queue("orders", 0).appended == 0
        assert await put(store, "orders", 0, b"x" * (4096 - OVERHEAD - 8)) == [0]

    with_store(tmp_path, work)


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


class Waiter:
    """Waits for the next message of a queue, as a suspended pull does."""

    def __init__(self, error: Exception | None = None) -> None:
        self.woken = 0
        self._error = error

    def wake(self) -> None:
        self.woken += 1
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("promptly", [False, True])
def test_an_error_of_one_waiter_affects_no_other(
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
