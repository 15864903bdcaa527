"""A log that grows by the bytes of another log."""

import asyncio
import errno
from pathlib import Path

import pytest

from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.replica import replica as replica_module
from mq.daemons.broker.store.replica.replica import NotReplicated, Replica
from mq.daemons.broker.store_config import FlushDiskType
from mq.protocol.native import native
from tests.conftest import share
from tests.daemons.broker.store.replicas import (
    PATHS,
    log_of,
    on_slave,
    read_by,
    receive,
    written,
)
from tests.daemons.broker.store.stores import (
    LOG_FILE,
    bodies,
    crashed_copy,
    fill_disk,
    put,
    with_store,
)


@pytest.fixture(params=PATHS, autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    read_by(request.param, monkeypatch)


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("size", [1, 7, 100, 4000, 1 << 20])
def test_pieces_of_any_size_make_the_same_log_and_queues(
    tmp_path: Path, size: int, flush: FlushDiskType
) -> None:
    data = written(tmp_path / "master")
    assert len(data) > 2 * LOG_FILE

    async def check(store: MessageStore, replica: Replica) -> None:
        receive(replica, data, size)
        await store.flusher.drain()
        await asyncio.sleep(0)
        assert log_of(store) == data
        for queue_id in range(3):
            wanted = [b"%d-" % number * (number % 90) for number in range(queue_id, 60, 3)]
            assert bodies(store, "orders", queue_id) == wanted
        assert len(query_by_key(store, "orders", "k31", 5, 0, 1 << 62)[2]) == 1

    on_slave(tmp_path / "slave", check, flush=flush)


@pytest.mark.skipif(native is None, reason="the native path is not built")
def test_a_replica_reads_the_same_with_python_if_the_native_path_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = written(tmp_path / "master", 12)

    def fail(*_: object) -> None:
        raise RuntimeError("a panic")

    async def check(store: MessageStore, replica: Replica) -> None:
        receive(replica, data, 900)
        assert log_of(store) == data
        assert caplog.text.count("the native path failed") == 1

    monkeypatch.setattr(replica_module, "_read_records", fail)
    on_slave(tmp_path / "slave", check)


@pytest.mark.more
def test_a_kill_at_any_byte_leaves_whole_records_only(tmp_path: Path) -> None:
    data = written(tmp_path / "master", 12)

    for length in range(1, len(data), 37 * (4 // share(4))):
        killed = tmp_path / f"killed-{length}"

        async def begin(
            store: MessageStore, replica: Replica, length: int = length, killed: Path = killed
        ) -> None:
            receive(replica, data[:length], 50)
            crashed_copy(store, killed)

        async def go_on(store: MessageStore, replica: Replica, length: int = length) -> None:
            assert not store.report.damages
            offset = replica.begin()
            assert length - 2000 < offset <= length
            receive(replica, data[offset:], 900)
            assert log_of(store) == data
            assert sum(len(bodies(store, "orders", queue_id)) for queue_id in range(3)) == 12

        on_slave(tmp_path / f"slave-{length}", begin)
        on_slave(killed, go_on)


def test_data_for_another_offset_is_refused(tmp_path: Path) -> None:
    data = written(tmp_path / "master", 9)

    async def check(store: MessageStore, replica: Replica) -> None:
        receive(replica, data[:1000], 100)
        with pytest.raises(NotReplicated, match="1000 is next"):
            replica.receive(1001, b"x")
        with pytest.raises(NotReplicated, match="1000 is next"):
            replica.check_heartbeat(1001)

    on_slave(tmp_path / "slave", check)


def test_an_empty_store_starts_at_the_start_of_a_file(tmp_path: Path) -> None:
    data = written(tmp_path / "master")

    async def check(store: MessageStore, replica: Replica) -> None:
        replica.check_heartbeat(777)  # a heartbeat of a master: there is nothing to compare here
        assert not store.log.files
        with pytest.raises(NotReplicated, match="mappedFileSizeCommitLog"):
            replica.receive(LOG_FILE + 8, data[LOG_FILE + 8 :])
        replica.receive(LOG_FILE, data[LOG_FILE:])
        assert store.log.minimum == LOG_FILE
        assert log_of(store) == data[LOG_FILE:]

    async def again(store: MessageStore, replica: Replica) -> None:
        assert replica.begin() == len(data)
        assert bodies(store, "orders", 0)[-1] == b"57-" * 57

    on_slave(tmp_path / "slave", check)
    on_slave(tmp_path / "slave", again)


def test_a_slave_killed_during_its_first_record_starts_where_its_master_is_then(
    tmp_path: Path,
) -> None:
    data = written(tmp_path / "master")

    async def begin(store: MessageStore, replica: Replica) -> None:
        store.log.add_file()  # as created for the first record before it is written
        crashed_copy(store, tmp_path / "killed")

    async def go_on(store: MessageStore, replica: Replica) -> None:
        assert [file.start for file in store.log.files] == [0]
        assert replica.begin() == 0
        replica.check_heartbeat(LOG_FILE)
        replica.receive(LOG_FILE, data[LOG_FILE:])
        assert store.log.minimum == LOG_FILE
        assert log_of(store) == data[LOG_FILE:]
        assert replica.safe == len(data)

    async def again(store: MessageStore, replica: Replica) -> None:
        assert not store.report.damages
        assert log_of(store) == data[LOG_FILE:]

    on_slave(tmp_path / "slave", begin)
    on_slave(tmp_path / "killed", go_on)
    on_slave(tmp_path / "killed", again)


def test_an_empty_store_is_not_started_by_data_that_is_not_a_record(tmp_path: Path) -> None:
    far = (1 << 63) // LOG_FILE * LOG_FILE - LOG_FILE
    data = written(tmp_path / "master", 3)

    async def check(store: MessageStore, replica: Replica) -> None:
        with pytest.raises(NotReplicated, match="is not a record"):
            replica.receive(far, bytes(100))
        assert (replica.begin(), store.log.written, store.log.files) == (0, 0, [])
        receive(replica, data, 100)
        assert store.log.minimum == 0

    on_slave(tmp_path / "slave", check)


def test_a_damaged_record_is_requested_again_and_then_accepted(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "master", 20))
    at = data.index(b"15-15-")
    data[at] ^= 1

    async def check(store: MessageStore, replica: Replica) -> None:
        with pytest.raises(NotReplicated, match="damaged: the checksum of its body is wrong"):
            receive(replica, bytes(data), 500)
        offset = replica.begin()
        assert offset < at
        receive(replica, bytes(data[offset:]), 1 << 20)
        assert log_of(store) == bytes(data)
        assert len(bodies(store, "orders", 0)) == 7

    on_slave(tmp_path / "slave", check)


def test_data_that_is_not_a_record_is_refused(tmp_path: Path) -> None:
    data = written(tmp_path / "master", 6)

    async def check(store: MessageStore, replica: Replica) -> None:
        with pytest.raises(NotReplicated, match="not a record of a log"):
            receive(replica, data + b"not a record at all", 1 << 20)
        assert log_of(store) == data  # the whole records before it exist

    on_slave(tmp_path / "slave", check)


def test_a_full_disk_loses_no_data_that_is_received_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = written(tmp_path / "master", 20)

    async def check(store: MessageStore, replica: Replica) -> None:
        with monkeypatch.context() as patch:
            fill_disk(patch, 700)
            with pytest.raises(OSError) as error:
                receive(replica, data, 300)
            assert error.value.errno == errno.ENOSPC
        offset = replica.begin()
        assert log_of(store) == data[:offset]
        receive(replica, data[offset:], 300)
        assert log_of(store) == data
        assert sum(len(bodies(store, "orders", queue_id)) for queue_id in range(3)) == 20

    on_slave(tmp_path / "slave", check)


def test_a_delayed_message_with_an_impossible_time_keeps_its_place(tmp_path: Path) -> None:
    """No checksum covers the time. The error left all messages received with it in no queue, and
    after a kill no start opened the store.
    """

    async def fill(store: MessageStore) -> bytes:
        await put(store, "SCHEDULE_TOPIC_XXXX", 0, b"later", properties=b"DELAY\x011")
        await put(store, "orders", 0, b"a chair")
        return bytes(store.log.files[-1].view[: store.log.written])

    data = bytearray(with_store(tmp_path / "master", fill))
    data[56:64] = ((1 << 63) - 1).to_bytes(8, "big")

    async def check(store: MessageStore, replica: Replica) -> None:
        receive(replica, bytes(data), 1 << 20)
        assert bodies(store, "orders", 0) == [b"a chair"]
        crashed_copy(store, tmp_path / "killed")

    async def after_kill(store: MessageStore, replica: Replica) -> None:
        assert bodies(store, "orders", 0) == [b"a chair"]
        assert store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1

    on_slave(tmp_path / "slave", check)
    on_slave(tmp_path / "killed", after_kill)
