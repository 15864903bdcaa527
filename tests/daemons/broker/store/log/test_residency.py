"""Missing chunks are reported, and read together with the following ones."""

import asyncio
import threading
from pathlib import Path

import pytest

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log import residency
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import MappedFile
from mq.daemons.broker.store.log.residency import AHEAD, CHUNK, NotInMemory, Residency
from tests.daemons.broker.store.stores import Reads, evict, forget_pages

MEGABYTE = 1024 * 1024
FILE = 8 * MEGABYTE
FAR = 1 << 62


@pytest.fixture
def full(tmp_path: Path) -> CommitLog:
    """Two full files of a log, flushed."""
    log = CommitLog([tmp_path], FILE)
    for _ in range(2):
        log.add_file().write(b"x" * FILE, 0)
    log.set_end(2 * FILE)
    return log


@pytest.fixture
def reads(full: CommitLog, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return forget_pages(monkeypatch)


def entries(*offsets: int, size: int = 1000) -> bytes:
    return b"".join(layout.ENTRY.pack(offset, size, 0) for offset in offsets)


def missing(pages: Residency, *offsets: int, most_bytes: int = FAR) -> list[int]:
    """The chunks of some records that are not in memory."""
    try:
        pages.require(entries(*offsets), most_bytes)
    except NotInMemory as absent:
        return absent.chunks
    return []


def chunks_read(reads: Reads) -> list[int]:
    """Chunks, each as often as it was read."""
    return sorted(
        start // CHUNK + number for start, size, _ in reads.done for number in range(size // CHUNK)
    )


def evicted(log: CommitLog, chunks: list[int], *offsets: int) -> Residency:
    """Request the records at these offsets, which are reported as missing.

    A read without waiting makes Linux start to read, and is repeated: if the disk is faster than
    the processor, the page is in memory by then, and the kernel reports that.
    """
    for _ in range(50):
        evict(log)
        pages = Residency(log)
        if missing(pages, *offsets) == chunks:
            return pages
    raise AssertionError(f"the kernel never said that {chunks} are missing")


def test_the_kernel_reports_what_is_in_memory(full: CommitLog) -> None:
    async def main() -> None:
        wanted = [0, FILE - 1]
        chunks = [0, FILE // CHUNK - 1, FILE // CHUNK]
        pages = evicted(full, chunks, *wanted)
        await pages.load(NotInMemory(chunks))
        assert missing(pages, *wanted) == []
        assert missing(pages, FILE + 5 * MEGABYTE) == [(FILE + 5 * MEGABYTE) // CHUNK]
        await pages.close()
        full.close()

    asyncio.run(main())


def test_loaded_chunks_are_in_memory_with_the_following_ones(full: CommitLog, reads: Reads) -> None:
    async def main() -> None:
        pages = Residency(full)
        assert missing(pages, CHUNK * 3) == [3]
        await pages.load(NotInMemory([3]))
        assert chunks_read(reads) == list(range(3, 4 + AHEAD // CHUNK))
        assert all(is_thread for _, _, is_thread in reads.done)
        assert missing(pages, CHUNK * 3, CHUNK * 20) == []

    asyncio.run(main())


def test_only_their_own_chunks_are_read_of_distant_records(full: CommitLog, reads: Reads) -> None:
    async def main() -> None:
        pages = Residency(full)
        with pytest.raises(NotInMemory) as absent:
            pages.require(entries(*(CHUNK * 9 * n for n in range(8))), FAR)
        await pages.load(absent.value)
        assert chunks_read(reads) == [9 * n for n in range(8)]

    asyncio.run(main())


def test_only_as_many_bytes_are_required_as_a_reply_has(full: CommitLog, reads: Reads) -> None:
    pages = Residency(full)
    assert missing(pages, 0, 9 * CHUNK, 18 * CHUNK, most_bytes=2000) == [0, 9]
    assert missing(pages, 0, 9 * CHUNK, most_bytes=10) == [0]
    assert not reads.done


def test_the_next_part_is_read_ahead_half_way_and_once(full: CommitLog, reads: Reads) -> None:
    async def main() -> None:
        pages = Residency(full)
        await pages.load(NotInMemory([0]))
        first = 1 + AHEAD // CHUNK
        assert missing(pages, 0, 4 * CHUNK) == []
        await pages.close()
        assert chunks_read(reads) == list(range(first))
        for _ in range(2):
            assert missing(pages, first // 2 * CHUNK) == []
            await pages.close()
            assert chunks_read(reads) == list(range(first + AHEAD // CHUNK))

    asyncio.run(main())


def test_only_missing_chunks_are_read_ahead(full: CommitLog, reads: Reads) -> None:
    async def main() -> None:
        pages = Residency(full)
        first = 1 + AHEAD // CHUNK
        await pages.load(NotInMemory([first + 5]))
        await pages.load(NotInMemory([0]))
        before = list(reads.done)
        assert missing(pages, first // 2 * CHUNK) == []
        await pages.close()
        assert sum(size for _, size, _ in reads.done[len(before) :]) == 5 * CHUNK
        assert len(reads.done) == len(before) + 1  # one read for all, not one for each chunk
        assert len(set(chunks_read(reads))) == len(chunks_read(reads))

    asyncio.run(main())


def test_several_readers_of_the_same_chunk_wait_for_one_read(full: CommitLog, reads: Reads) -> None:
    async def main() -> None:
        pages = Residency(full)
        await asyncio.gather(*(pages.load(NotInMemory([5])) for _ in range(8)))
        assert len(chunks_read(reads)) == len(set(chunks_read(reads)))

    asyncio.run(main())


def test_a_chunk_is_missing_until_the_kernel_has_read_all_of_it(
    full: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        pages = Residency(full)
        monkeypatch.setattr(MappedFile, "is_in_memory", lambda *_: False)
        assert missing(pages, 0) == [0]
        monkeypatch.setattr(MappedFile, "is_in_memory", lambda *_: True)  # of the page asked for
        assert missing(pages, 0) == [0]
        gate, real = threading.Event(), MappedFile.read_into

        def slow(self: MappedFile, buffer: memoryview, position: int) -> None:
            assert gate.wait(30)
            real(self, buffer, position)

        monkeypatch.setattr(MappedFile, "read_into", slow)
        reading = asyncio.ensure_future(pages.load(NotInMemory([0])))
        await asyncio.sleep(0)
        assert missing(pages, 0) == [0]
        gate.set()
        await reading
        assert missing(pages, 0) == []

    asyncio.run(main())


def test_no_reader_waits_for_a_chunk_outside_the_log(full: CommitLog) -> None:
    async def main() -> None:
        pages = Residency(full)
        for place in (-1, -(1 << 63), 1 << 62, (1 << 63) - 1, 2 * FILE):
            assert missing(pages, place) == []
            assert missing(pages, place, 0, place) == []
        await pages.load(NotInMemory([-1, 1 << 40]))
        full.close()
        await pages.load(NotInMemory([0]))

    asyncio.run(main())


def test_the_size_in_an_entry_may_be_damaged(full: CommitLog, reads: Reads) -> None:
    pages = Residency(full)
    damaged = entries(0, size=0x7FFFFFFF)
    with pytest.raises(NotInMemory) as absent:
        pages.require(damaged, FAR)
    assert len(absent.value.chunks) == residency._MAX_OF_RECORD // CHUNK
    assert missing(pages, 0, most_bytes=-1) == [0]


def test_unflushed_data_is_in_memory(full: CommitLog, reads: Reads) -> None:
    full.flushed = FILE
    pages = Residency(full)
    assert missing(pages, FILE - 5000) == [FILE // CHUNK - 1]
    assert missing(pages, FILE, 2 * FILE - 1000) == []
    assert not reads.done


def test_everything_between_two_distant_records_is_checked_once(
    full: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residency, "_REGION", 16)
    monkeypatch.setattr(residency, "_TRUSTED_SECONDS", 1000.0)
    asked: list[int] = []

    def is_in_memory(self: MappedFile, position: int) -> bool:
        asked.append(self.start + position)
        return self.start + position != 100 * CHUNK

    monkeypatch.setattr(MappedFile, "is_in_memory", is_in_memory)
    pages = Residency(full)
    for _ in range(2):
        assert pages.holds(entries(0, 95 * CHUNK))
        assert len(asked) == 96
    assert not pages.holds(entries(0, 97 * CHUNK))  # one chunk of that region is missing
    assert pages.leading(entries(0, 97 * CHUNK, 100 * CHUNK, 101 * CHUNK)) == 2
