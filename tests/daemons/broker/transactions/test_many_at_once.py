"""Halves prepared in a batch, and ended by one request: each is a transaction of its own."""

import errno
import os
from itertools import count
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.app import Broker
from mq.daemons.broker.store.index.key_query import query_by_key
from mq.daemons.broker.store.layout import ENTRY_SIZE
from mq.daemons.broker.transactions import transaction_handlers
from mq.daemons.broker.transactions.records import final_properties
from mq.daemons.broker.transactions.usual_halves import UsualHalf, UsualHalves
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.transaction import ENDED, pack_halves
from mq.protocol.message import StoredMessage, decode_record
from mq.protocol.message_id import decode_offset_id
from mq.protocol.record import RECORD_HEAD
from tests.daemons.broker.transactions.batches import Place, end, message, prepare, send
from tests.daemons.broker.transactions.producers import (
    COMMIT,
    GROUP,
    HALF,
    OPERATION,
    ROLLBACK,
    TOPIC,
    TransactionPeer,
    kept,
    operations,
    run,
)


def test_a_batch_is_stored_as_the_same_halves_as_its_messages_one_by_one(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        alone = await peer.prepare(b"one", TAGS="t", KEYS="k", own="x", WAIT="true")
        reply = await send(peer, message(b"two", TAGS="t", KEYS="k", own="x"), message(b"three"))
        assert (reply.fields["queueId"], reply.fields["queueOffset"]) == ("2", "1")
        one, two, three = kept(broker, HALF)
        assert one.queue_offset == alone.offset
        assert two.properties == {**one.properties, "UNIQ_KEY": "two"}
        assert [half.body for half in (two, three)] == [b"two", b"three"]
        assert [half.sys_flag for half in (two, three)] == [0, 0]
        where = [decode_offset_id(each).offset for each in reply.fields["msgId"].split(",")]
        assert [half.physical_offset for half in (two, three)] == where
        assert await peer.consumed() == []
        await peer.end(alone, COMMIT)
        assert (await end(peer, [(where[0], 1), (where[1], 2)])).fields == {ENDED: "2"}
        finals = await peer.read(TOPIC, 2)
        assert [final.body for final in finals] == [b"one", b"two", b"three"]
        assert [final.sys_flag for final in finals] == [8, 8, 8]
        assert [final.prepared_transaction_offset for final in finals][1:] == where
        assert finals[1].properties == final_properties(two.properties)
        entries = [broker.stores.messages.entries.at(TOPIC, 2, n) for n in (0, 1)]
        assert [None if entry is None else entry[2] for entry in entries] == [ord("t")] * 2
        assert [operation.body for operation in operations(broker)] == [b"0", b"1", b"2"]

    run(tmp_path, script)


@pytest.mark.parametrize(
    ("common", "properties"),
    [
        ("PGROUP\x01P", {}),
        ("TRAN_MSG\x01true", {}),
        ("TRAN_MSG\x01false\x02PGROUP\x01P", {}),
        ("TRAN_MSG\x01true\x02PGROUP\x01P\x02DELAY\x013", {}),
        ("TRAN_MSG\x01true\x02PGROUP\x01P", {"DELAY": "3"}),
        ("TRAN_MSG\x01true\x02PGROUP\x01P", {"TIMER_DELIVER_MS": "3"}),
        ("TRAN_MSG\x01true\x02PGROUP\x01P", {"TIMER_DEL_UNIQKEY": "Other+id"}),
        ("TRAN_MSG\x01true\x02PGROUP\x01P", {"own": "x" * 32_500}),
    ],
)
def test_an_invalid_batch_of_halves_is_refused_as_a_whole(
    tmp_path: Path, common: str, properties: dict[str, str]
) -> None:
    """With the code that Java's brokers use for every such batch: clients then send one by one."""

    async def script(broker: Broker, peer: TransactionPeer) -> None:
        reply = await send(peer, message(b"good"), message(b"bad", **properties), common=common)
        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert kept(broker, HALF) == []
        assert await peer.consumed() == []

    run(tmp_path, script)


def test_a_client_cannot_choose_the_target_of_its_halves(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        lies = {"REAL_TOPIC": "Secret", "REAL_QID": "7", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
        text = "".join(f"\x02{name}\x01{value}" for name, value in lies.items())
        common = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}{text}"
        await send(peer, message(b"x", **lies, TRAN_MSG="false", PGROUP="other"), common=common)
        (half,) = kept(broker, HALF)
        assert half.properties == {
            **{"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "x", "WAIT": "true"},
            **{"CLUSTER": "DefaultCluster", "REAL_TOPIC": TOPIC, "REAL_QID": "2"},
        }

    run(tmp_path, script)


def test_a_broker_may_refuse_batches_of_transactions(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        reply = await send(peer, message(b"x"))
        assert reply.code == ResponseCode.NO_PERMISSION

    run(tmp_path, script, rejectTransactionMessage="true")


def test_a_batch_that_is_sent_twice_is_one_of_transactions(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        first = await prepare(peer, b"a", b"b")
        second = await prepare(peer, b"a", b"b")
        assert (await end(peer, [*second, *first])).fields == {ENDED: "2"}
        assert (await end(peer, first)).code == ResponseCode.SYSTEM_ERROR
        assert await peer.consumed() == [b"a", b"b"]

    run(tmp_path, script)


def test_halves_after_one_that_cannot_end_are_not_tried(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        places = await prepare(peer, b"a", b"b", b"c", b"d")
        assert (await end(peer, [places[1]], ROLLBACK)).code == ResponseCode.SUCCESS
        assert (await end(peer, places)).fields == {ENDED: "1"}
        refused = await end(peer, places[1:])
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "not open" in str(refused.remark)
        twice = [places[2], places[2], places[3]]
        assert (await end(peer, twice)).fields == {ENDED: "1"}
        assert (await end(peer, places[3:], ROLLBACK)).fields == {}
        assert await peer.consumed() == [b"a", b"c"]

    run(tmp_path, script)


def test_one_request_ends_no_more_than_fits_into_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_handlers, "_MOST_AT_ONCE", 3)
    monkeypatch.setattr(transaction_handlers, "_BYTES_AT_ONCE", 5000)

    async def script(broker: Broker, peer: TransactionPeer) -> None:
        small = await prepare(peer, *(b"%d" % n for n in range(5)))
        assert (await end(peer, small)).fields == {ENDED: "3"}
        assert (await end(peer, small[3:])).fields == {ENDED: "2"}
        large = await prepare(peer, b"a" * 1500, b"b" * 1500, b"c" * 1500)
        assert (await end(peer, large)).fields == {ENDED: "2"}

    run(tmp_path, script)


def test_an_invalid_body_is_refused_before_anything_ends(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        ((physical, offset),) = await prepare(peer, b"a")
        header = {"producerGroup": GROUP, "tranStateTableOffset": str(offset), "msgId": "id"}
        header |= {"commitLogOffset": str(physical), "commitOrRollback": str(COMMIT)}
        command = Command(RequestCode.END_TRANSACTION, header, b"x" * 17)
        reply = await peer.session.invoke(peer.address, command, 5)
        assert reply.code != ResponseCode.SUCCESS
        assert "17 bytes" in str(reply.remark)
        assert await peer.consumed() == []

    run(tmp_path, script)


def test_halves_prepared_in_a_batch_are_open_after_a_start(tmp_path: Path) -> None:
    places: list[Place] = []

    async def before(broker: Broker, peer: TransactionPeer) -> None:
        places.extend(await prepare(peer, *(b"%d" % n for n in range(6))))
        assert (await end(peer, places[:2])).fields == {ENDED: "2"}
        assert (await end(peer, places[2:3], ROLLBACK)).code == ResponseCode.SUCCESS

    async def after(broker: Broker, peer: TransactionPeer) -> None:
        assert (await end(peer, places)).code == ResponseCode.SYSTEM_ERROR
        assert (await end(peer, places[3:])).fields == {ENDED: "3"}
        assert await peer.consumed() == [b"0", b"1", b"3", b"4", b"5"]

    run(tmp_path, before)
    run(tmp_path, after)


PROPERTIES: list[dict[str, str]] = [
    {},
    {"TAGS": "t", "KEYS": "k1 k2", "own": "ü"},
    {"WAIT": "true", "TAGS": "ß"},
    {"DELAY": "1"},
    {"TIMER_DECK": "x"},
    {"own": "a=b", "KEYS": "k"},
    {"UNIQ_KEY": ""},
]


def finals_of(folder: Path, usual: bool, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The result of committing halves of every kind, and how they are found."""
    found: list[object] = []

    async def script(broker: Broker, peer: TransactionPeer) -> None:
        broker.delivery.transactions.native.leave_to_python()
        places = []
        for n, properties in enumerate(PROPERTIES):
            half = await peer.prepare(b"%d" % n * 40, 1_700_000_000_000, **properties)
            places.append((half.physical, half.offset))
        places += await prepare(peer, b"8", b"9")
        with monkeypatch.context() as patch:
            read = UsualHalves.read
            taken: list[bool] = []

            def noted(self: UsualHalves, physical: int, offset: int) -> UsualHalf | None:
                half = read(self, physical, offset) if usual else None
                taken.append(half is not None)
                return half

            patch.setattr(UsualHalves, "read", noted)
            assert (await end(peer, places)).fields == {ENDED: str(len(places))}
            expected = [True, True, True, False, False, True, True, True, True]
            assert taken == (expected if usual else [False] * len(places))
        store = broker.stores.messages
        for topic, queue in ((TOPIC, 2), ("SCHEDULE_TOPIC_XXXX", 0), (OPERATION, 0)):
            for offset in range(store.max_offset(topic, queue)):
                entry = store.entries.at(topic, queue, offset)
                assert entry is not None
                record = store.record_at(entry[0])
                assert record is not None
                final = decode_record(record)
                fixed = vars_of(final)
                found.append((entry[1:] if topic != "SCHEDULE_TOPIC_XXXX" else entry[1], fixed))
        for key in ("k", "k1", "k2", b"8".decode(), "0" * 40):
            _, _, records = query_by_key(store, TOPIC, key, 10, 0, 1 << 62)
            found.append((key, [decode_record(record).body for record in records]))

    run(folder, script)
    return found


def vars_of(message: StoredMessage) -> dict[str, object]:
    """Everything except the times and the port, which differ from run to run."""
    names = "topic queue_id queue_offset physical_offset flag sys_flag reconsume_times store_size"
    names += " body body_crc properties prepared_transaction_offset"
    return {name: getattr(message, name) for name in names.split()} | {
        "in_order": list(message.properties)
    }


def test_the_fast_way_commits_halves_like_the_slow_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same records, entries and items of the index as by the slow way."""
    usual = finals_of(tmp_path / "usual", True, monkeypatch)
    assert len(usual) > 2 * len(PROPERTIES)
    assert usual == finals_of(tmp_path / "any", False, monkeypatch)


def test_a_damaged_half_is_not_committed(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        ((physical, offset), whole) = await prepare(peer, b"a" * 64, b"b")
        file = broker.stores.messages.log.file_at(physical)
        assert file is not None
        file.write(b"A", physical - file.start + RECORD_HEAD.size)
        assert (await end(peer, [(physical, offset)])).code == ResponseCode.SYSTEM_ERROR
        assert (await end(peer, [whole, (physical, offset)])).fields == {ENDED: "1"}
        assert await peer.consumed() == [b"b"]

    run(tmp_path, script)


def test_the_halves_of_a_request_are_not_kept_while_the_disk_works(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        first, *more, last = await prepare(peer, b"one", b"two", b"three")
        header = {"producerGroup": GROUP, "tranStateTableOffset": str(first[1]), "msgId": "id"}
        header |= {"commitLogOffset": str(first[0]), "commitOrRollback": str(COMMIT)}
        body = pack_halves(more) + bytes(1 << 20)
        command = Command(RequestCode.END_TRANSACTION, header, body, opaque=1)
        (channel,) = broker.listener.channels
        broker.listener.dispatcher.handle(command, channel)
        assert not command.body
        assert (await end(peer, [last])).code == ResponseCode.SUCCESS
        assert await peer.consumed() == [b"one", b"two", b"three"]

    run(tmp_path, script, flushDiskType="SYNC_FLUSH")


def test_halves_before_an_unreadable_one_are_reported_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        halves = await prepare(peer, b"one", b"two", b"three")
        queue = broker.stores.messages.queues.get(HALF, 0)
        assert queue is not None
        queue.persist()
        pread, reads = files.pread, count(1)

        def fail(descriptor: int, size: int, position: int) -> bytes:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            # The first read is for the first half, the second for the native path after it.
            if "consumequeue" in path and size > ENTRY_SIZE and next(reads) > 1:
                raise OSError(errno.EIO, "the disk")
            return pread(descriptor, size, position)

        monkeypatch.setattr(files, "pread", fail)
        ended = await end(peer, halves)
        monkeypatch.undo()
        assert (ended.code, int(ended.fields[ENDED])) in {(0, 1), (0, 3)}  # 3 without that path
        assert len(await peer.consumed()) == int(ended.fields[ENDED])

    run(tmp_path, script)
