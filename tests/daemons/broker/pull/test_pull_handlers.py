"""Replies to pulls: which code with which next offset, and which records."""

import struct
from pathlib import Path

import pytest

from mq.client.machine import files
from mq.daemons.broker.store import layout
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import ONE_WAY
from mq.protocol.tags import tags_code
from tests import answered
from tests.daemons.broker.pulls import (
    TOPIC,
    PullBroker,
    bodies,
    numbered,
    outcome,
    pull,
    request,
    serve,
    start_pull,
)
from tests.daemons.broker.store.stores import evict, put
from tests.daemons.peer import Peer

FOUND = ResponseCode.SUCCESS
NOT_FOUND = ResponseCode.PULL_NOT_FOUND
RETRY = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED

# All of the log is far from its end.
FAR_BACK = {"accessMessageInMemoryMaxRatio": "0"}


def queue_file(broker: PullBroker, start: int) -> Path:
    return broker.queue.files.folder / f"{start:020d}"


# codes and next offsets -----------------------------------------------------------------------


@answered.by_broker(RequestCode.PULL_MESSAGE)
@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [(0, FOUND, 5), (4, FOUND, 5), (5, NOT_FOUND, 5), (6, MOVED, 5), (-1, MOVED, 0)],
)
def test_a_queue_with_messages_is_answered_as_by_java(
    tmp_path: Path, offset: int, code: int, next_offset: int
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(5))
        reply = await pull(peer, request(offset))
        assert outcome(reply) == (code, next_offset)
        assert (reply.fields["minOffset"], reply.fields["maxOffset"]) == ("0", "5")
        assert reply.fields["suggestWhichBrokerId"] == "0"
        assert bodies(reply) == (numbered(5)[offset:] if code == FOUND else [])

    serve(tmp_path, script)


def test_messages_that_are_not_in_memory_are_returned_too(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(50))
        await broker.stores.messages.flusher.drain()
        evict(broker.stores.messages.log)
        for offset in (40, 0):
            reply = await pull(peer, request(offset))
            assert outcome(reply) == (FOUND, min(offset + 32, 50))
            assert bodies(reply) == numbered(50)[offset : offset + 32]
        assert broker.stores.messages.log.is_in_memory(0)

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("offset", "code"), [(0, NOT_FOUND), (3, MOVED), (-1, MOVED), (1 << 62, MOVED)]
)
def test_an_empty_queue_is_answered_as_by_java(tmp_path: Path, offset: int, code: int) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        assert outcome(await pull(peer, request(offset))) == (code, 0)
        assert broker.stores.messages.queues_of(TOPIC) == [0]

    serve(tmp_path, script)


def test_a_pull_below_the_minimum_gets_the_true_minimum(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*[b"x" * 900] * 10)
        await broker.stores.messages.flusher.drain()
        assert await broker.stores.messages.retention.clean(manual=True) == 2
        reply = await pull(peer, request(0, hold=60_000))
        assert outcome(reply) == (MOVED, 8)
        assert (reply.fields["minOffset"], reply.fields["maxOffset"]) == ("8", "10")
        assert len(bodies(await pull(peer, request(8)))) == 2

    serve(tmp_path, script, fileReservedTime="0")


def test_messages_whose_log_file_is_deleted_are_skipped(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*[b"x" * 900] * 10)  # four to a file
        broker.stores.messages.log.remove_first()  # and the queues have not followed yet
        assert outcome(await pull(peer, request(0, most=2))) == (RETRY, 2)
        reply = await pull(peer, request(2))
        assert (outcome(reply), len(bodies(reply))) == ((FOUND, 10), 6)

    serve(tmp_path, script)


def test_a_pull_continues_after_a_missing_queue_file_with_the_next_at_once(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(25))
        broker.queue.persist()
        path = queue_file(broker, 0)
        broker.stores.messages.queues.descriptors.forget(path)
        path.unlink()
        reply = await pull(peer, request(3, hold=60_000))
        assert outcome(reply) == (NOT_FOUND, 20)
        assert bodies(await pull(peer, request(20))) == numbered(25)[20:]

    serve(tmp_path, script)


# filters ----------------------------------------------------------------------------------------


def test_messages_with_other_tags_are_skipped_by_the_next_offset(
    tmp_path: Path,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        for number, tag in enumerate(["A", "B", "", "A", "C", "B"]):
            await broker.put(b"%s%d" % (tag.encode(), number), tag=tag)
        for tags, wanted, code in (
            ("A", [b"A0", b"A3"], FOUND),
            ("A || C", [b"A0", b"A3", b"C4"], FOUND),
            ("X", [], RETRY),
            ("*", [b"A0", b"B1", b"2", b"A3", b"C4", b"B5"], FOUND),
        ):
            reply = await pull(peer, request(0, tags=tags))
            assert (outcome(reply), bodies(reply)) == ((code, 6), wanted)
        reply = await pull(peer, request(0, tags="A", most=1))
        assert (outcome(reply), bodies(reply)) == ((FOUND, 3), [b"A0"])

    serve(tmp_path, script)


def test_a_pull_does_not_stop_where_entries_on_disk_meet_those_in_memory(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        for number in range(1, 4):
            await broker.put(*numbered(6), tag="a" if number == 2 else "b")
            if number == 2:
                broker.queue.persist()
        reply = await pull(peer, request(0))
        assert (outcome(reply), len(bodies(reply))) == ((FOUND, 18), 18)
        reply = await pull(peer, request(0, tags="a"))
        assert (outcome(reply), len(bodies(reply))) == ((FOUND, 18), 6)
        reply = await pull(peer, request(12 - 2, tags="b"))
        assert (outcome(reply), len(bodies(reply))) == ((FOUND, 18), 6)

    serve(tmp_path, script)


def test_a_woken_pull_gets_the_message_that_woke_it_after_those_on_disk(
    tmp_path: Path,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        start_pull(peer, request(0, tags="a", hold=60_000))
        await pull(peer, request(0, queue_id=3))  # answered after the previous one, which waits
        await broker.put(*numbered(3), tag="b")
        broker.queue.persist()
        await broker.put(b"it", tag="a")
        reply = await peer.receive()
        assert (outcome(reply), bodies(reply)) == ((FOUND, 4), [b"it"])

    serve(tmp_path, script)


def test_tags_with_one_hash_are_left_to_the_client(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        assert tags_code("Aa") == tags_code("BB")
        await broker.put(b"wanted", tag="Aa")
        await broker.put(b"stranger", tag="BB")
        assert bodies(await pull(peer, request(0, tags="Aa"))) == [b"wanted", b"stranger"]

    serve(tmp_path, script)


def test_a_pull_with_a_filter_examines_800_messages_at_most(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*[b"other"] * 900, tag="B")
        await broker.put(b"wanted", tag="A")
        assert outcome(await pull(peer, request(0, tags="A"))) == (RETRY, 800)
        reply = await pull(peer, request(800, tags="A"))
        assert (outcome(reply), bodies(reply)) == ((FOUND, 901), [b"wanted"])

    serve(tmp_path, script, mappedFileSizeConsumeQueue="20000")


# limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "settings", "found"),
    [
        (3, {}, 3),
        (0, {}, 1),  # the first is always returned
        (100, {}, 20),  # a queue file
        (32, {"maxTransferCountOnMessageInMemory": "5"}, 5),
        (32, {"maxTransferBytesOnMessageInMemory": "450"}, 4),
        (32, {"maxTransferBytesOnMessageInMemory": "10"}, 1),
        (32, FAR_BACK, 20),
    ],
)
def test_a_reply_has_at_most_what_the_request_and_the_settings_allow(
    tmp_path: Path, most: int, settings: dict[str, str], found: int
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*[b"0123456789"] * 25)  # records of 107 bytes
        broker.queue.persist()
        reply = await pull(peer, request(0, most=most))
        assert (outcome(reply), len(bodies(reply))) == ((FOUND, found), found)

    serve(tmp_path, script, **settings)


BULK = str(1024 * 1024)


@pytest.mark.parametrize(
    ("asked", "settings", "found"),
    [
        (BULK, {}, 200),
        ("262144", {}, 32),  # the default of a consumer of 5.x
        (str(0x7FFFFFFF), {}, 32),  # no limit in the request
        (BULK, {"maxTransferBytesOnBulkPull": "0"}, 32),
        (BULK, {"maxTransferBytesOnBulkPull": "5350"}, 50),
        (BULK, {"maxTransferBytesOnBulkPull": "1"}, 1),
        (BULK, {"mappedFileSizeCommitLog": "4096"}, 38),  # a log file
        (BULK, {**FAR_BACK, "mappedFileSizeCommitLog": "4096"}, 38),
    ],
)
def test_a_request_for_a_large_reply_gets_what_the_settings_allow(
    tmp_path: Path, asked: str, settings: dict[str, str], found: int
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        for start in range(0, 200, 10):
            await broker.put(*[b"%010d" % (start + n) for n in range(10)])  # records of 107 bytes
        reply = await pull(peer, request(0, most=1000, maxMsgBytes=asked))
        assert (outcome(reply), bodies(reply)) == (
            (FOUND, found),
            [b"%010d" % n for n in range(found)],
        )

    large = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "20000"}
    ordinary = {"maxTransferBytesOnMessageInMemory": "262144"}
    serve(tmp_path, script, **{**large, **ordinary, **settings})


def test_a_large_reply_has_only_messages_of_its_queue_though_others_lie_between(
    tmp_path: Path,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        for n in range(150):
            await broker.put(b"%d" % n)
            if n % 3:
                await put(broker.stores.messages, TOPIC, 1, b"other")
        for trusted in (0, 10_000):  # as after a restart: each record is checked
            broker.queue.trusted = trusted
            reply = await pull(peer, request(7, most=130, maxMsgBytes=BULK))
            assert bodies(reply) == [b"%d" % n for n in range(7, 137)]

    sizes = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "20000"}
    serve(tmp_path, script, **sizes)


def test_a_large_reply_skips_damaged_messages(tmp_path: Path) -> None:
    """An entry that points at another message is repaired from the log, or skipped."""

    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*[b"%03d" % n for n in range(150)])
        broker.queue.persist()
        broker.queue.trusted = 150
        (file,) = (tmp_path / "store" / "consumequeue" / TOPIC / "0").iterdir()
        with open(file, "r+b") as entries:
            entries.seek(20 * 50)
            entries.write(bytes(8))  # the first message of the log
        reply = await pull(peer, request(0, most=150, maxMsgBytes=BULK))
        assert bodies(reply) == [b"%03d" % n for n in range(150)]

    sizes = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "20000"}
    serve(tmp_path, script, **sizes)


def test_a_size_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(b"x")
        assert (await pull(peer, request(0, maxMsgBytes="many"))).code == 1

    serve(tmp_path, script)


# damage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_file_gone", [False, True])
@pytest.mark.parametrize(
    ("damage", "tags"),
    [
        (bytes(20), "*"),
        (bytes(20), "A"),
        (b"\xff" * 20, "*"),
        (b"\xff" * 20, "A"),
        (struct.pack(">qiq", 50, 0, 0), "A"),
        # With a size and another tag it looks like a correct one that does not match.
        (struct.pack(">qiq", 1 << 40, 100, 0), "*"),
    ],
)
def test_a_damaged_entry_is_repaired_and_its_message_delivered(
    tmp_path: Path, damage: bytes, tags: str, first_file_gone: bool
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*[b"x" * 900] * 6, tag="A")
        await broker.put(b"next", tag="A")
        broker.queue.persist()
        if first_file_gone:
            broker.stores.messages.log.remove_first()
            broker.queue.set_minimum(broker.stores.messages.log.minimum)
        with open(queue_file(broker, 0), "r+b") as file:
            file.seek(5 * 20)
            file.write(damage)
        start = broker.queue.minimum
        reply = await pull(peer, request(start, tags=tags))
        assert outcome(reply) == (FOUND, 7)
        assert bodies(reply) == [*[b"x" * 900] * (6 - start), b"next"]
        with open(queue_file(broker, 0), "rb") as file:
            file.seek(5 * 20)
            _, _, code = layout.ENTRY.unpack(file.read(20))
        assert code == tags_code("A")

    serve(tmp_path, script)


def test_the_message_of_an_entry_that_cannot_be_repaired_on_disk_is_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(3))
        broker.queue.persist()
        with open(queue_file(broker, 0), "r+b") as file:
            file.write(bytes(20))

        def fail(*_: object) -> int:
            raise OSError(30, "Read-only file system")

        with monkeypatch.context() as patch:
            patch.setattr(files, "pwrite", fail)
            assert bodies(await pull(peer, request(0))) == numbered(3)

    serve(tmp_path, script)


def test_a_message_of_another_queue_is_never_returned(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(b"ours")
        _, secret = await put(broker.stores.messages, "other", 0, b"first", b"not ours")
        broker.queue.mend(0, layout.ENTRY.pack(secret, 104, 0))
        assert bodies(await pull(peer, request(0))) == [b"ours"]

    serve(tmp_path, script)


# requests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hold", [None, 60_000])
def test_a_one_way_pull_is_neither_answered_nor_suspended(tmp_path: Path, hold: int | None) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        start_pull(peer, request(0, opaque=7, hold=hold, flag=ONE_WAY))
        assert outcome(await pull(peer, request(0, opaque=8))) == (NOT_FOUND, 0)
        assert not broker.queue.waiting
        await broker.put(b"one")
        start_pull(peer, request(0, opaque=9, hold=hold, flag=ONE_WAY))
        assert bodies(await pull(peer, request(0, opaque=10))) == [b"one"]

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("others", "code", "remark"),
    [
        ({"topic": "missing"}, ResponseCode.TOPIC_NOT_EXIST, "topic[missing] not exist"),
        ({"queueId": "4"}, ResponseCode.SYSTEM_ERROR, "queueId[4] is illegal"),
        ({"queueId": "-1"}, ResponseCode.SYSTEM_ERROR, "queueId[-1] is illegal"),
        ({"sysFlag": "0"}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "no heartbeat"),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "names no tag"),
        ({"queueOffset": "x"}, ResponseCode.SYSTEM_ERROR, "malformed"),
    ],
)
def test_a_pull_that_cannot_be_served_gets_the_cause(
    tmp_path: Path, others: dict[str, str], code: int, remark: str
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        command = request(0)
        command.fields = {**command.fields, **others}
        reply = await pull(peer, command)
        assert reply.code == code and remark in (reply.remark or "")

    serve(tmp_path, script)


def test_an_offset_in_a_pull_is_committed(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(3))
        await pull(peer, request(2, sysFlag="5", commitOffset="2"))
        assert broker.stores.offsets.query("g", TOPIC, 0) == 2
        await pull(peer, request(2, commitOffset="3"))
        assert broker.stores.offsets.query("g", TOPIC, 0) == 2

    serve(tmp_path, script)


def test_a_removed_permission_applies_to_queues_pulled_before(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        assert (await pull(peer, request(0))).code == NOT_FOUND
        broker.settings.broker = type(broker.settings.broker)(broker_permission=2)
        broker.services.pulls.configure()
        reply = await pull(peer, request(0))
        assert (reply.code, "pulling message is forbidden" in (reply.remark or "")) == (
            ResponseCode.NO_PERMISSION,
            True,
        )

    serve(tmp_path, script)


@answered.by_broker(RequestCode.LITE_PULL_MESSAGE)
def test_the_code_of_lite_pull_consumers_is_served_alike(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(b"one")
        reply = await peer.ask(RequestCode.LITE_PULL_MESSAGE, request(0).fields)
        assert (outcome(reply), bodies(reply)) == ((FOUND, 1), [b"one"])

    serve(tmp_path, script)
