"""Disk reads of pulls, and that others do not wait meanwhile."""

import asyncio
import threading
from pathlib import Path

import pytest

from mq.daemons.broker.store.log.mapped_file import MappedFile
from mq.daemons.broker.store.log.residency import AHEAD, CHUNK
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
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
from tests.daemons.broker.store.stores import Reads, forget_pages
from tests.daemons.peer import Peer

FOUND = ResponseCode.SUCCESS
NOT_FOUND = ResponseCode.PULL_NOT_FOUND


async def make_cold(broker: PullBroker, monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Mark everything stored as not in memory; returns the list of reads from now on."""
    await broker.stores.messages.flusher.drain()
    broker.services.pulls._residency._until = 0.0  # what was found there a moment ago is forgotten
    return forget_pages(monkeypatch)


@pytest.mark.parametrize(
    ("wanted", "most", "found"),
    [
        ({}, 32, 32),
        ({"maxMsgBytes": str(1 << 20)}, 100, 100),
        ({"tags": "b"}, 32, 32),
        ({"tags": "nobody's"}, 32, 0),
        ({"subscription": "TAGS = 'b'", "expressionType": "SQL92"}, 32, 32),
    ],
)
def test_a_pull_of_messages_not_in_memory_gets_as_many_as_any_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: dict[str, str],
    most: int,
    found: int,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        for number in range(200):
            await broker.put(b"%d" % number, tag="ab"[number % 2])
        for is_native in (True, False):
            reads = await make_cold(broker, monkeypatch)
            if not is_native:
                broker.services.pulls.native._path = None
            reply = await pull(peer, request(0, most=most, **wanted))  # type: ignore[arg-type]
            assert len(bodies(reply)) == found
            assert bool(reads.done) is (wanted.get("tags") != "nobody's")
            assert all(is_thread for _, _, is_thread in reads.done)
            assert broker.stats.counters.longest_read >= 0
            monkeypatch.undo()

    settings = {**LARGE, "enablePropertyFilter": "true"}
    serve(tmp_path, script, **settings)


@pytest.mark.parametrize("then", [0, 9])
def test_a_pull_that_waits_for_the_disk_commits_at_its_arrival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: int
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(10))
        reads = await make_cold(broker, monkeypatch)
        start_pull(peer, request(5, commitOffset="5", sysFlag="5", opaque=501))
        fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "commitOffset": str(then)}
        update = Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields, opaque=502)
        peer.writer.write(encode(update))
        replies = {reply.opaque: reply for reply in [await peer.receive(), await peer.receive()]}
        assert bodies(replies[501]) == numbered(10)[5:]
        assert reads.done
        assert broker.stores.offsets.query("g", TOPIC, 0) == then
        monkeypatch.undo()

    serve(tmp_path, script)


def test_the_offset_in_a_cold_pull_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(10))
        reads = await make_cold(broker, monkeypatch)
        await pull(peer, request(5, commitOffset="5", sysFlag="5"))
        assert reads.done
        assert broker.stores.offsets.query("g", TOPIC, 0) == 5
        monkeypatch.undo()

    serve(tmp_path, script)


LARGE = {"mappedFileSizeCommitLog": "16777216", "mappedFileSizeConsumeQueue": "20000"}


def test_a_filter_by_tags_reads_only_matching_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        for number in range(60):
            await broker.put(bytes(CHUNK), tag="a" if number == 50 else "b")
        reads = await make_cold(broker, monkeypatch)
        reply = await pull(peer, request(0, tags="a"))
        assert outcome(reply) == (FOUND, 60)
        assert not reads.has(20 * CHUNK) and reads.has(51 * CHUNK)

    serve(tmp_path, script, **LARGE)


def test_following_messages_are_read_ahead_for_a_consumer_that_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*[bytes(CHUNK)] * 100)
        reads = await make_cold(broker, monkeypatch)
        offset = waited = 0
        while offset < 100:
            before = len(reads.done)
            reply = await pull(peer, request(offset))
            offset = int(reply.fields["nextBeginOffset"])
            await broker.services.pulls.close()  # reading ahead takes no time
            waited += len(reads.done) > before
        ends = [start + size for start, size, _ in reads.done]
        assert len(ends) == len(set(ends))  # nothing is read twice
        assert broker.stats.counters.group(TOPIC, "g", 0).pulls > 40
        assert waited <= 100 * CHUNK // (AHEAD // 2)

    serve(tmp_path, script, **LARGE)


def test_messages_just_flushed_are_not_assumed_to_be_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that frees its page cache at once: only unflushed data stays there."""

    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(b"flushed")
        reads = await make_cold(broker, monkeypatch)
        assert bodies(await pull(peer, request(0))) == [b"flushed"]
        assert reads.done and reads.done[0][2]
        monkeypatch.undo()

    serve(tmp_path, script)


def test_a_woken_pull_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(b"old")
        reads = await make_cold(broker, monkeypatch)
        start_pull(peer, request(1, hold=60_000))
        await pull(peer, request(0, queue_id=3))  # answered after the previous one, which waits
        await broker.put(b"new")
        assert bodies(await peer.receive()) == [b"new"]
        assert not reads.done

    # The flush follows later.
    serve(tmp_path, script, flushIntervalCommitLog="60000", **LARGE)


def test_a_cold_read_does_not_block_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*[b"x" * 900] * 6)  # in two files
        reads = await make_cold(broker, monkeypatch)
        gate = threading.Event()
        real = MappedFile.read_into

        def slow(self: MappedFile, buffer: memoryview, position: int) -> None:
            assert gate.wait(30)
            real(self, buffer, position)

        monkeypatch.setattr(MappedFile, "read_into", slow)
        try:
            start_pull(peer, request(0, opaque=1))
            assert outcome(await pull(peer, request(0, opaque=2, queue_id=1))) == (NOT_FOUND, 0)
        finally:
            gate.set()
        reply = await peer.receive()
        assert (reply.opaque, outcome(reply)) == (1, (FOUND, 6))
        assert bodies(reply) == [b"x" * 900] * 6
        assert reads.done and all(is_thread for _, _, is_thread in reads.done)
        assert (
            broker.stats.counters.found,
            broker.stats.counters.transferred,
            broker.stats.counters.missed,
        ) == (1, 6, 1)

    serve(tmp_path, script)


def test_a_file_deleted_during_a_cold_read_yields_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*[b"%d" % number * 900 for number in range(6)])  # four to a file
        await make_cold(broker, monkeypatch)
        gate, reading = threading.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        real = MappedFile.read_into

        def slow(self: MappedFile, buffer: memoryview, position: int) -> None:
            loop.call_soon_threadsafe(reading.set)
            assert gate.wait(30)
            real(self, buffer, position)

        monkeypatch.setattr(MappedFile, "read_into", slow)
        start_pull(peer, request(0))
        try:
            async with asyncio.timeout(30):
                await reading.wait()
            broker.stores.messages.log.remove_first()
        finally:
            gate.set()
        reply = await peer.receive()
        assert (outcome(reply), bodies(reply)) == ((FOUND, 6), [b"4" * 900, b"5" * 900])

    serve(tmp_path, script)


def test_a_cold_read_that_fails_unexpectedly_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*[b"x" * 900] * 6)
        await make_cold(broker, monkeypatch)
        real = MappedFile.read_into

        def failing(self: MappedFile, buffer: memoryview, position: int) -> None:
            raise MemoryError("no memory for it")

        monkeypatch.setattr(MappedFile, "read_into", failing)
        reply = await pull(peer, request(0))
        assert (reply.code, reply.remark) == (1, "MemoryError: no memory for it")
        monkeypatch.setattr(MappedFile, "read_into", real)
        assert (await pull(peer, request(0))).code == 0

    serve(tmp_path, script)


def test_a_pull_is_answered_even_if_nothing_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(50))
        await make_cold(broker, monkeypatch)
        monkeypatch.setattr(MappedFile, "is_in_memory", lambda *_: False)
        assert bodies(await pull(peer, request(0))) == numbered(32)

    serve(tmp_path, script)
