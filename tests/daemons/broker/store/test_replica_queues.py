"""Where the queues of a slave start, and which queue offset a message has there."""

import struct
from pathlib import Path

import pytest

from mq.daemons import state_file
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.queue import generations
from mq.daemons.broker.store.replica.queue_offset_gaps import QueueOffsetGap
from mq.daemons.broker.store.replica.replica import NotReplicated, Replica
from mq.protocol.message import decode_record
from mq.protocol.record import AT
from tests.daemons.broker.store.replicas import (
    PATHS,
    Firsts,
    firsts_of,
    log_of,
    on_slave,
    read_by,
    receive,
    written,
)
from tests.daemons.broker.store.stores import LOG_FILE, bodies, crashed_copy, put, with_store


@pytest.fixture(params=PATHS, autouse=True)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    read_by(request.param, monkeypatch)


BODY_AT = AT["body_length"] + 4


def deleted_and_made_again(root: Path) -> tuple[bytes, Firsts]:
    """The log of a master whose topic has two generations."""

    async def fill(store: MessageStore) -> tuple[bytes, Firsts]:
        for number in range(6):
            await put(store, "orders", number % 2, b"old %d" % number)
        await put(store, "bills", 0, b"a bill")
        store.delete_topic("orders")
        for number in range(3):
            await put(store, "orders", number % 2, b"new %d" % number)
        return log_of(store), firsts_of(store)

    return with_store(root, fill)


@pytest.mark.parametrize("size", [50, 1 << 20])
def test_a_topic_recreated_by_the_master_has_its_new_messages(tmp_path: Path, size: int) -> None:
    data, firsts = deleted_and_made_again(tmp_path / "master")
    killed = tmp_path / "killed"

    async def check(store: MessageStore, replica: Replica) -> None:
        receive(replica, data, size, firsts)
        await store.flusher.drain()
        crashed_copy(store, killed)
        await check_bodies(store)

    async def check_bodies(store: MessageStore, replica: Replica | None = None) -> None:
        assert bodies(store, "orders", 0) == [b"new 0", b"new 2"]
        assert bodies(store, "orders", 1) == [b"new 1"]
        assert bodies(store, "bills", 0) == [b"a bill"]

    on_slave(tmp_path / "slave", check)
    on_slave(tmp_path / "slave", check_bodies)
    on_slave(killed, check_bodies)

    async def made_master(store: MessageStore) -> None:
        await check_bodies(store)
        await put(store, "orders", 1, b"newer")
        assert bodies(store, "orders", 1) == [b"new 1", b"newer"]

    with_store(killed, made_master)


def test_no_message_counts_as_deleted_on_a_slave_that_lost_its_log_and_starts_earlier(
    tmp_path: Path,
) -> None:
    """Its power failed before anything was on its disk, and another master's log starts earlier."""
    begin = 2 * LOG_FILE

    async def fill(store: MessageStore) -> tuple[bytes, Firsts]:
        while store.log.written < begin:
            await put(store, "filler", 0, b"x" * 1800)
        await put(store, "orders", 0, b"old")
        store.delete_topic("orders")
        await put(store, "orders", 0, b"new")
        return log_of(store), firsts_of(store)

    data, firsts = with_store(tmp_path / "master", fill)
    slave, killed = tmp_path / "slave", tmp_path / "killed"

    async def copy(store: MessageStore, replica: Replica) -> None:
        replica.receive(begin, data[begin:])
        replica.decide({queue: firsts.get(queue) for queue in replica.queues_in_doubt()})
        crashed_copy(store, slave)

    async def begin_earlier(store: MessageStore, replica: Replica) -> None:
        assert replica.has_nothing
        replica.receive(0, other)
        crashed_copy(store, killed)

    async def check(store: MessageStore) -> None:
        assert bodies(store, "orders", 0) == [b"kept"]

    async def fill_other(store: MessageStore) -> bytes:
        await put(store, "orders", 0, b"kept")
        return log_of(store)

    other = with_store(tmp_path / "other", fill_other)
    on_slave(tmp_path / "before", copy)
    (slave / "commitlog" / layout.file_name(begin)).write_bytes(bytes(LOG_FILE))
    on_slave(slave, begin_earlier)
    with_store(slave, check)
    with_store(killed, check)


def test_queues_that_restart_together_are_recorded_in_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All senders wait for the disk meanwhile, and a topic may have a thousand queues."""

    async def fill(store: MessageStore) -> tuple[bytes, Firsts]:
        for body in (b"old", b"new"):
            for queue_id in range(12):
                await put(store, "orders", queue_id, body)
            if body == b"old":
                store.delete_topic("orders")
        return log_of(store), firsts_of(store)

    data, firsts = with_store(tmp_path / "master", fill)
    writes: list[Path] = []
    write = state_file.write_atomically

    def counted(path: Path, content: bytes) -> None:
        writes.append(path)
        write(path, content)

    monkeypatch.setattr(generations, "write_atomically", counted)

    async def check(store: MessageStore, replica: Replica) -> None:
        receive(replica, data, len(data), firsts)
        assert [bodies(store, "orders", queue_id) for queue_id in range(12)] == [[b"new"]] * 12
        assert len(writes) == 2  # the list and its backup

    on_slave(tmp_path / "slave", check)


def wrong_offset(data: bytes, body: bytes, bit: int | None = None) -> bytes:
    """A log with a wrong bit: a record claims that its queue restarts with it, or has a wrong queue
    offset.
    """
    at = data.index(body) - BODY_AT + AT["queue_offset"]
    (offset,) = struct.unpack_from(">q", data, at)
    assert bit is not None or offset.bit_count() == 1
    wrong = 0 if bit is None else offset ^ 1 << bit
    return data[:at] + wrong.to_bytes(8, "big") + data[at + 8 :]


@pytest.mark.parametrize("size", [50, 1 << 20])
@pytest.mark.parametrize("bit", [0, 3, 10, 40])
def test_a_message_keeps_its_place_although_a_wrong_bit_claims_a_gap(
    tmp_path: Path, size: int, bit: int
) -> None:
    """Later messages would have no place: it claims that they are before it."""
    data = written(tmp_path / "master", 30)
    spoiled = wrong_offset(data, b"12-" * 12, bit)  # of 4, the fifth of queue 0

    def feed(replica: Replica, data: bytes) -> None:
        for start in range(0, len(data), size):
            replica.receive(replica.received, data[start : start + size])
            while (doubt := replica.doubt) is not None:
                assert isinstance(doubt, QueueOffsetGap) and doubt.number == 4 ^ 1 << bit
                replica.decide_number(None, 10)

    async def check(store: MessageStore, replica: Replica) -> None:
        with pytest.raises(NotReplicated, match="queue offset is wrong; requesting it again"):
            feed(replica, spoiled)
        feed(replica, spoiled[replica.begin() :])
        assert log_of(store) == spoiled
        assert bodies_at(store, "orders", 0) == [b"%d-" % n * n for n in range(0, 30, 3)]

    on_slave(tmp_path / "slave", check)


def test_a_gap_that_the_master_confirms_is_kept(tmp_path: Path) -> None:
    data = written(tmp_path / "master", 30)
    gap = wrong_offset(data, b"27-" * 27, 4)  # 9, the last of its queue, is 25
    where = gap.index(b"27-" * 27) - BODY_AT

    async def check(store: MessageStore, replica: Replica) -> None:
        replica.receive(0, gap)
        assert replica.doubt is not None and replica.doubt.physical == where
        replica.decide_number(where, 26)
        assert log_of(store) == gap
        assert store.queue("orders", 0).readable == 26
        assert bodies_at(store, "orders", 0)[-1] == b"27-" * 27

    on_slave(tmp_path / "slave", check)


def test_a_gap_is_kept_although_the_master_shows_later_messages_only_when_a_slave_has_them(
    tmp_path: Path,
) -> None:
    """With allAckInSyncStateSet. The missing message is one whose queue cannot be read."""
    data = written(tmp_path / "master", 30)
    at = data.index(b"orders", data.index(b"12-" * 12))
    spoiled = data[:at] + b"/" + data[at + 1 :]  # of 4, the fifth of queue 0

    async def check(store: MessageStore, replica: Replica) -> None:
        for start in range(0, len(spoiled), 50):
            replica.receive(replica.received, spoiled[start : start + 50])
            while isinstance(doubt := replica.doubt, QueueOffsetGap):
                replica.decide_number(None, doubt.number)
        assert log_of(store) == spoiled
        queue = store.queue("orders", 0)
        assert queue.readable == 10
        shown = bodies_at(store, "orders", 0)
        assert shown[5:] == [b"%d-" % number * number for number in range(15, 30, 3)]

    on_slave(tmp_path / "slave", check)


@pytest.mark.parametrize("size", [50, 1 << 20])
@pytest.mark.parametrize("answer", ["shown", "not yet"])
def test_a_wrong_offset_of_the_first_message_removes_no_other_from_its_queue(
    tmp_path: Path, size: int, answer: str
) -> None:
    data = written(tmp_path / "master", 30)
    spoiled = wrong_offset(data, b"1-", 10)  # 0 is 1024, the first of queue 1
    slave, killed = tmp_path / "slave", tmp_path / "killed"

    async def check(store: MessageStore, replica: Replica) -> None:
        for start in range(0, len(spoiled), size):
            replica.receive(replica.received, spoiled[start : start + size])
            while (doubt := replica.doubt) is not None:
                assert isinstance(doubt, QueueOffsetGap) and doubt.number == 1
                if answer == "shown":
                    replica.decide_number(doubt.physical, 10)
                else:
                    replica.decide_number(None, 1)
        check_all(store)
        crashed_copy(store, killed)

    def check_all(store: MessageStore) -> None:
        assert log_of(store) == spoiled
        queue = store.queue("orders", 1)
        assert (queue.minimum, queue.readable) == (1, 10)
        physical = [entry[0] for index in range(1, 10) if (entry := queue.entry(index))]
        shown = [decode_record(store.record_at(one) or b"").body for one in physical]
        assert shown == [b"%d-" % number * number for number in range(4, 30, 3)]

    async def check_again(store: MessageStore) -> None:
        check_all(store)

    on_slave(slave, check)
    with_store(killed, check_again)


def test_a_message_that_the_master_does_not_show_before_the_first_of_a_queue_has_no_place(
    tmp_path: Path,
) -> None:
    data = written(tmp_path / "master", 30)
    spoiled = wrong_offset(data, b"1-", 2)  # 0 is 4

    async def check(store: MessageStore, replica: Replica) -> None:
        replica.receive(0, spoiled)
        for number in range(1, 4):
            assert isinstance(replica.doubt, QueueOffsetGap) and replica.doubt.number == number
            replica.decide_number(None, 10)
        assert replica.doubt is None
        queue = store.queue("orders", 1)
        assert (queue.minimum, queue.readable) == (4, 10)
        assert log_of(store) == spoiled

    on_slave(tmp_path / "slave", check)


def bodies_at(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """The physical offsets of the entries of a queue."""
    queue = store.queue(topic, queue_id)
    physical = [entry[0] for index in range(queue.readable) if (entry := queue.entry(index))]
    return [decode_record(store.record_at(one) or b"").body for one in physical]


@pytest.mark.parametrize("size", [50, 1 << 20])
@pytest.mark.parametrize("is_last", [False, True])
def test_a_queue_is_kept_although_a_wrong_bit_claims_a_restart(
    tmp_path: Path, size: int, is_last: bool
) -> None:
    """Whether or not the log continues after it; and it stays the next message of its queue."""
    count = 13 if is_last else 20
    data = written(tmp_path / "master", count)
    firsts = {("orders", queue_id): data.index(b"%d-" % queue_id) - BODY_AT for queue_id in (1, 2)}
    spoiled = wrong_offset(data, b"12-" * 12)

    async def check(store: MessageStore, replica: Replica) -> None:
        with pytest.raises(NotReplicated, match="queue offset is wrong; requesting it again"):
            receive(replica, spoiled, size, firsts | {("orders", 0): 0})
        offset = replica.begin()
        receive(replica, spoiled[offset:], size, firsts | {("orders", 0): 0})
        assert log_of(store) == spoiled
        found = bodies_at(store, "orders", 0)
        assert found == [b"%d-" % number * number for number in range(0, count, 3)]

    on_slave(tmp_path / "slave", check)


def test_a_message_damaged_in_transit_is_received_again(tmp_path: Path) -> None:
    data = written(tmp_path / "master", 20)

    async def check(store: MessageStore, replica: Replica) -> None:
        with pytest.raises(NotReplicated, match="requesting it again"):
            receive(replica, wrong_offset(data, b"12-" * 12), 1 << 20, {("orders", 0): 0})
        receive(replica, data[replica.begin() :], 1 << 20)
        assert log_of(store) == data
        assert len(bodies(store, "orders", 0)) == 7

    on_slave(tmp_path / "slave", check)
