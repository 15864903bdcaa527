"""Residency: tracks which parts of the log are in memory, so that the event loop never waits for a
disk.

An access to a page of the mapped log that is not in memory stops everything until the disk has read
it. So before messages are read, the kernel is asked whether their pages are in memory, wherever in
the log they are; if not, a thread reads them. A reader that catches up needs the following messages
next: they are read together with the missing ones, and when half of them have been requested, the
next part is read (docs/decisions/0054).

Unflushed data is in memory: the kernel cannot evict it.

A part that counts as present was entered in the page table (`MappedFile.admit`), so that it can be
read through the mapping: within `_TRUSTED_SECONDS` only a kernel that is short of memory evicts it.
Unreadable blocks are remembered; records on them are not read.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Collection, Iterator

from mq.client.machine import clock, files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import MappedFile

# Bytes whose first page stands for the others: Linux reads this much at once after a missing page,
# unless configured otherwise.
CHUNK = 128 * 1024
AHEAD = 4 * 1024 * 1024  # bytes read together with the missing part, and each time after it

# How long a chunk counts as present after a check, in seconds. A check takes a microsecond.
_TRUSTED_SECONDS = 0.2
# Chunks of a region, which is remembered as a whole if all its chunks are present: with many
# queues, the records that a filter reads are up to hundreds of megabytes apart.
_REGION = 128
_MOST_REGIONS = 64  # between two records; with more, each record is checked separately
# Limits the size of a record in an entry, which may be damaged.
_MAX_OF_RECORD = 128 * CHUNK
# Bytes of a read: fewer reads need the GIL less often.
_READ_AT_ONCE = 1024 * 1024
# Concurrent reads for all pulls: the disk also serves the writes, and threads other work.
_MOST_READS = 2
# Readers that catch up, and missing chunks, that are remembered. Beyond this the oldest are
# forgotten, and checked again.
_MOST_READERS = 1000
_MOST_MISSING = 10_000

_ENTRY_SIZE = layout.ENTRY_SIZE
_iterate = layout.ENTRY.iter_unpack
_unpack = layout.ENTRY.unpack_from

# A file, a position in it, and the bytes of the existing part of one or several adjacent chunks.
Part = tuple[MappedFile, int, int]


# Seconds until an unreadable block is read again: a failing read may take seconds.
_UNREADABLE_SECONDS = 10.0


class UnreadableLog(OSError):
    """A record lies on a block that the disk cannot read."""

    def __init__(self, physical: int) -> None:
        why = f"the commit log cannot be read at offset {physical}: {os.strerror(errno.EIO)}"
        super().__init__(errno.EIO, why)
        self.physical = physical

    def before(self, entries: bytes) -> bytes:
        """The entries before that of the record."""
        for number, (physical, _, _) in enumerate(_iterate(entries)):
            if physical == self.physical:
                return entries[: number * _ENTRY_SIZE]
        return entries


class NotInMemory(Exception):
    """The caller would have to wait for a disk. ``chunks`` are the numbers of the missing chunks,
    sorted.
    """

    def __init__(self, chunks: Collection[int]) -> None:
        self.chunks = sorted(set(chunks))
        super().__init__(f"not in memory: chunks {self.chunks}")


class Residency:
    """Tracks which chunks of a log are in memory, as far as the kernel tells.

    Chunks are numbered from offset 0 of the log. With ``waits`` a missing chunk is read at once,
    and NotInMemory is never raised.
    """

    def __init__(self, commit_log: CommitLog, *, waits: bool = False) -> None:
        self._log = commit_log
        self.waits = waits
        self._present: set[int] = set()
        self._whole: set[int] = set()  # regions whose chunks are all present
        self._until = 0.0  # monotonic clock
        self._end = (0, 0)  # the admitted part of the unflushed end of the log
        # Chunks that were not in memory when checked. The kernel reads only a part of the chunk
        # after the requested page by itself, so a later answer for that page would not hold for
        # the whole chunk.
        self._missing: dict[int, None] = {}
        self._in_flight: dict[int, asyncio.Task[None]] = {}
        # By chunk: the time until which it counts as unreadable, and the offsets of its blocks.
        self._unreadable: dict[int, tuple[float, list[int]]] = {}
        # where to continue reading ahead when this chunk is requested
        self._next: dict[int, int] = {}
        self._turns = asyncio.Semaphore(_MOST_READS)

    async def close(self) -> None:
        """Wait for reads in flight."""
        if self._in_flight:
            await asyncio.wait(set(self._in_flight.values()))

    # what is there --------------------------------------------------------------------------------

    def holds(self, entries: bytes) -> bool:
        """Whether everything between the first and the last of these records is in memory.

        If not, `missing` returns the missing chunks of each record.
        """
        (physical, _, _) = _unpack(entries)
        first = physical // CHUNK
        last, size, _ = _unpack(entries, len(entries) - _ENTRY_SIZE)
        end = (last + size - 1) // CHUNK + 1
        present = self._trusted()
        if physical >= self._log.flushed and self._admits_end(physical, last + size):
            return True
        if 0 < end - first <= _REGION:
            chunks = range(first, end)
            return present.issuperset(chunks) or all(
                chunk in present or self._is_there(chunk) for chunk in chunks
            )
        regions = range(first // _REGION, (end - 1) // _REGION + 1)
        if not 0 < len(regions) <= _MOST_REGIONS:
            return False
        return all(region in self._whole or self._is_whole(region) for region in regions)

    def holds_until(self, entries: bytes) -> float:
        """The monotonic time until which that counts as true; 0 if it is not true."""
        self._trusted()
        return self._until if self.holds(entries) else 0

    def missing(self, physical: int, size: int) -> list[int]:
        """The chunks of a record that are not in memory. Raises UnreadableLog."""
        present = self._trusted()
        end = physical + max(1, min(size, _MAX_OF_RECORD))
        if physical >= self._log.flushed and self._admits_end(physical, end):
            return []
        return [
            chunk
            for chunk in range(physical // CHUNK, (end - 1) // CHUNK + 1)
            if chunk not in present
            and not self._is_there(chunk)
            and not self._is_readable_part(chunk, physical, end)
        ]

    def leading(self, entries: bytes) -> int:
        """The number of entries before the first whose record is not in memory."""
        if self.holds(entries):
            return len(entries) // _ENTRY_SIZE
        count = 0
        for physical, size, _ in _iterate(entries):
            try:
                if self.missing(physical, size):
                    break
            except UnreadableLog:
                if count:
                    break
                raise
            count += 1
        return count

    def require(self, entries: bytes, most_bytes: int) -> bytes:
        """Raise NotInMemory unless the records of these entries can be read at once: the first one,
        and others as long as the total stays within ``most_bytes``.

        Returns the entries before the first one with an unreadable record. Raises UnreadableLog if
        the very first record is unreadable.
        """
        if self.holds(entries):
            return entries
        missing: list[int] = []
        total = 0
        for number, (physical, size, _) in enumerate(_iterate(entries)):
            if total and total + size > most_bytes:
                break
            total += max(size, 0)
            try:
                missing += self.missing(physical, size)
            except UnreadableLog:
                if not number:
                    raise
                entries = entries[: number * _ENTRY_SIZE]
                break
        if missing:
            raise NotInMemory(missing)
        return entries

    def before_unreadable(self, entries: bytes) -> bytes:
        """The entries before the first one with a record that is known to be unreadable.

        Raises UnreadableLog if the very first record is unreadable.
        """
        if not self._unreadable:
            return entries
        for number, (physical, size, _) in enumerate(_iterate(entries)):
            try:
                self.missing(physical, size)
            except UnreadableLog:
                if not number:
                    raise
                return entries[: number * _ENTRY_SIZE]
        return entries

    def _admits_end(self, begin: int, end: int) -> bool:
        """Whether an unflushed part can be read.

        It is in memory unless its write failed; the rest of its chunk may be only on disk.
        """
        first, last = self._end
        if first <= begin and end <= last:
            return True
        if not self._admit_part(begin, end):
            return False
        self._end = (first, end) if first <= begin <= last else (begin, end)
        return True

    def _trusted(self) -> set[int]:
        now = clock.monotonic()
        if now > self._until:
            self._end = (0, 0)
            self._present.clear()
            self._whole.clear()
            self._until = now + _TRUSTED_SECONDS
        return self._present

    def _is_whole(self, region: int) -> bool:
        present = self._present
        chunks = range(region * _REGION, (region + 1) * _REGION)
        if not all(chunk in present or self._is_there(chunk) for chunk in chunks):
            return False
        self._whole.add(region)
        return True

    def _is_there(self, chunk: int) -> bool:
        if chunk in self._unreadable and not self._is_retried(chunk):
            return False
        if self.waits:
            return self._wait_for(chunk)
        if chunk in self._missing or chunk in self._in_flight:
            return False
        if not self._kernel_has(chunk) or not self._admit(chunk):
            if len(self._missing) >= _MOST_MISSING:
                del self._missing[next(iter(self._missing))]
            self._missing[chunk] = None
            return False
        self._present.add(chunk)
        following = self._next.pop(chunk, None)
        if following is not None:
            self._read_ahead(following)
        return True

    def _wait_for(self, chunk: int) -> bool:
        if self._admit(chunk):
            self._present.add(chunk)
            return True
        self._note_unreadable({chunk: self._failed_blocks(chunk)})
        return False

    def _admit(self, chunk: int) -> bool:
        """Enter a chunk in the page table; False if the disk cannot read it."""
        return self._admit_part(chunk * CHUNK, (chunk + 1) * CHUNK)

    def _admit_part(self, begin: int, end: int) -> bool:
        parts = self._parts_between(begin, end)
        return all(file.admit(position, size) for file, position, size in parts)

    # what cannot be read --------------------------------------------------------------------------

    def _note_unreadable(self, failed: dict[int, list[int]]) -> None:
        until = clock.monotonic() + _UNREADABLE_SECONDS
        for chunk, blocks in failed.items():
            if len(self._unreadable) >= _MOST_MISSING:
                del self._unreadable[next(iter(self._unreadable))]
            self._unreadable[chunk] = until, blocks

    def _is_retried(self, chunk: int) -> bool:
        """Whether an unreadable chunk may be read again, because the disk may have recovered."""
        until, _ = self._unreadable[chunk]
        if clock.monotonic() < until:
            return False
        del self._unreadable[chunk]
        return True

    def _is_readable_part(self, chunk: int, physical: int, end: int) -> bool:
        """Whether a record's part of a chunk can be read although the chunk as a whole cannot.

        Raises UnreadableLog for a record on an unreadable block.
        """
        if chunk not in self._unreadable:
            return False
        _, blocks = self._unreadable[chunk]
        if any(block < end and physical < block + files.BLOCK for block in blocks):
            self._log.failures.count += 1
            raise UnreadableLog(physical)
        if self._admit_part(max(physical, chunk * CHUNK), min(end, (chunk + 1) * CHUNK)):
            return True
        del self._unreadable[chunk]  # more of it has failed since: it is read again
        return False

    def _failed_blocks(self, chunk: int) -> list[int]:
        """The offsets in the log of the unreadable blocks of a chunk."""
        failed: list[int] = []
        for file, position, size in self._parts(chunk):
            with contextlib.suppress(OSError):  # raised for a closed file
                failed += (file.start + at for at in file.failed_blocks(position, size))
        return failed

    def _kernel_has(self, chunk: int) -> bool:
        offset = max(chunk * CHUNK, self._log.minimum)
        end = min((chunk + 1) * CHUNK, self._log.flushed)
        return offset >= end or self._log.is_in_memory(offset)

    # reading --------------------------------------------------------------------------------------

    async def load(self, absent: NotInMemory) -> None:
        """Read the missing chunks and the following ones. A chunk that does not exist is left to
        the next caller.
        """
        reads = self.begin(absent)
        await asyncio.wait(reads)
        for read in reads:
            read.result()

    def begin(self, absent: NotInMemory) -> set[asyncio.Task[None]]:
        """Start reading without waiting; returns the tasks to wait for."""
        chunks = absent.chunks
        first, end = chunks[0], chunks[-1] + 1
        if len(chunks) * 2 < end - first:  # most chunks between them are not requested
            return self._start(chunks, chunks)
        ahead = range(first, end + AHEAD // CHUNK)
        self._note_reader(ahead)
        return self._start(ahead, chunks)

    def _read_ahead(self, first: int) -> None:
        if first * CHUNK < self._log.flushed:
            chunks = range(first, first + AHEAD // CHUNK)
            self._note_reader(chunks)
            self._start(chunks, ())

    def _note_reader(self, chunks: range) -> None:
        if len(self._next) >= _MOST_READERS:
            del self._next[next(iter(self._next))]
        self._next[chunks[len(chunks) // 2]] = chunks.stop

    def _start(self, chunks: Collection[int], needed: Collection[int]) -> set[asyncio.Task[None]]:
        """Start reading the chunks that are not in memory, and the needed ones in any case, because
        the kernel may have started to read a part of those.

        The kernel is asked here and not in the thread: there, each answer would make thread and
        event loop wait for the GIL in turn, for 4 MB of which nothing has to be read.
        """
        reads = {self._in_flight[chunk] for chunk in chunks if chunk in self._in_flight}
        mine = [
            chunk
            for chunk in chunks
            if chunk not in self._in_flight
            and (chunk in needed or chunk in self._missing or not self._kernel_has(chunk))
        ]
        if mine:
            read = asyncio.ensure_future(self._read(mine))
            self._in_flight.update(dict.fromkeys(mine, read))
            # Errors of reading ahead are ignored: a reader that needs the chunk tries again.
            read.add_done_callback(lambda read: read.cancelled() or read.exception())
            reads.add(read)
        return reads

    async def _read(self, chunks: list[int]) -> None:
        try:
            async with self._turns:
                with contextlib.suppress(OSError):
                    self._note_unreadable(await asyncio.to_thread(self._read_all, chunks))
        finally:
            for chunk in chunks:
                del self._in_flight[chunk]
                self._missing.pop(chunk, None)

    def _read_all(self, chunks: list[int]) -> dict[int, list[int]]:
        """Runs in a thread. Returns the offsets of unreadable blocks by chunk."""
        parts = [part for chunk in chunks for part in self._parts(chunk)]
        for file, position, size in parts:
            file.begin_reading(position, size)
        buffer = memoryview(bytearray(min(len(chunks) * CHUNK, _READ_AT_ONCE)))
        failed: dict[int, list[int]] = {}
        for file, position, size in _joined(parts, len(buffer)):
            if not file.read_into(buffer[:size], position):
                first, last = file.start + position, file.start + position + size - 1
                for chunk in range(first // CHUNK, last // CHUNK + 1):
                    if blocks := self._failed_blocks(chunk):
                        failed[chunk] = blocks
        return failed

    def _parts(self, chunk: int) -> Iterator[Part]:
        return self._parts_between(chunk * CHUNK, (chunk + 1) * CHUNK)

    def _parts_between(self, begin: int, end: int) -> Iterator[Part]:
        at = max(begin, self._log.minimum)
        end = min(end, self._log.written)
        while at < end:
            file = self._log.file_at(at)
            if file is None:
                return
            stop = min(end, file.end)
            yield file, at - file.start, stop - at
            at = stop


def _joined(parts: list[Part], most: int) -> list[Part]:
    """Join adjacent parts up to ``most`` bytes."""
    joined: list[Part] = []
    for file, position, size in parts:
        if joined:
            before, begin, length = joined[-1]
            if before is file and begin + length == position and length + size <= most:
                joined[-1] = file, begin, length + size
                continue
        joined.append((file, position, size))
    return joined
