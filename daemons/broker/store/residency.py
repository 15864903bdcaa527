"""Residency: what of the log is in memory. The event loop must not wait for a disk.

Reading a page of the mapped log that is not in memory stops everything until a disk has given it.
So before messages are looked at, the kernel is asked whether their pages are there, wherever in the
log they lie, and if not a thread has them read. Who catches up wants next what lies behind them:
that is read with them, and when half of it has been asked for, what follows (docs/decisions/0054).

What has not been flushed is in memory: the kernel cannot let go of it.

A part that counts as present has been entered in the page table (`MappedFile.admit`), so that it
can be read through the mapping: only a kernel that is short of memory takes it away within
`_TRUSTED_SECONDS`. Unreadable blocks are remembered; no record on them is read.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Collection, Iterator

from mq.client.machine import clock, files
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.mapped_file import MappedFile

# Bytes of which the first page tells of the others: what Linux reads at once behind a page that is
# missing, unless it is told otherwise.
CHUNK = 128 * 1024
AHEAD = 4 * 1024 * 1024  # bytes that are read with what is missing, and each time behind that

# For so long what was in memory is taken to be there. A chunk is asked for in a microsecond.
_TRUSTED_SECONDS = 0.2
# Chunks of a region, of which it is remembered when all of it is there: the records that a filter
# looks at lie up to hundreds of megabytes apart, where there are many queues.
_REGION = 128
_MOST_REGIONS = 64  # between two records; beyond it each is asked for
# What an entry says of the size of its record may be damage.
_MOST_OF_RECORD = 128 * CHUNK
# Bytes of a read: the fewer there are, the fewer times its thread needs the interpreter's lock.
_READ_AT_ONCE = 1024 * 1024
# Reads at once, of all pulls: the disk is there for the writes, too, and threads for other work.
_MOST_READS = 2
# What is remembered of readers that catch up, and of what was missing; beyond it some is forgotten,
# and asked for again.
_MOST_READERS = 1000
_MOST_MISSING = 10_000

_ENTRY_SIZE = layout.ENTRY_SIZE
_iterate = layout.ENTRY.iter_unpack
_unpack = layout.ENTRY.unpack_from

#: A file, a position in it, and the bytes of what there is of a chunk, or of several in a row.
Part = tuple[MappedFile, int, int]


# An unreadable block is not read again for this time: a read may take seconds to fail.
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
    """A disk would have to be waited for. `chunks` are those missed, by number, sorted."""

    def __init__(self, chunks: Collection[int]) -> None:
        self.chunks = sorted(set(chunks))
        super().__init__(f"not in memory: chunks {self.chunks}")


class Residency:
    """Knows which chunks of a log are in memory, as far as the kernel tells.

    The log is looked at in chunks, numbered from its offset 0. With ``waits`` a
    missing chunk is read at once, and NotInMemory is never raised.
    """

    def __init__(self, commit_log: CommitLog, *, waits: bool = False) -> None:
        self._log = commit_log
        self.waits = waits
        self._present: set[int] = set()
        self._whole: set[int] = set()  # regions of which all is present
        self._until = 0.0  # of the monotonic clock
        self._end = (0, 0)  # the admitted part of the unflushed end of the log
        # Asked for in vain. The kernel reads on its own behind the page that it was asked for, not
        # all of the chunk: what it says later would not be of the whole.
        self._missing: dict[int, None] = {}
        self._under_way: dict[int, asyncio.Task[None]] = {}
        #: By chunk: the time until which it counts as unreadable, and the offsets of its blocks.
        self._unreadable: dict[int, tuple[float, list[int]]] = {}
        self._next: dict[int, int] = {}  # where to read on once a chunk is asked for
        self._turns = asyncio.Semaphore(_MOST_READS)

    async def close(self) -> None:
        """Wait for reads that are under way."""
        if self._under_way:
            await asyncio.wait(set(self._under_way.values()))

    # what is there --------------------------------------------------------------------------------

    def holds(self, entries: bytes) -> bool:
        """Whether all that lies between the first and the last of these records is in memory.

        If not, `missing` tells of each.
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
        """For how long that is taken to be so, by the monotonic clock; 0 if it is not."""
        self._trusted()
        return self._until if self.holds(entries) else 0

    def missing(self, physical: int, size: int) -> list[int]:
        """The chunks of a record that are not in memory. Raises UnreadableLog."""
        present = self._trusted()
        end = physical + max(1, min(size, _MOST_OF_RECORD))
        if physical >= self._log.flushed and self._admits_end(physical, end):
            return []
        return [
            chunk
            for chunk in range(physical // CHUNK, (end - 1) // CHUNK + 1)
            if chunk not in present
            and not self._is_there(chunk)
            and not self._is_beside_unreadable(chunk, physical, end)
        ]

    def leading(self, entries: bytes) -> int:
        """How many entries come before the first whose record is not in memory."""
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
        """Raise NotInMemory unless the records of these entries can be read at once: the first, and
        of the others so many bytes together with it.

        Returns the entries before the first one with an unreadable record. Raises UnreadableLog if
        that is the first of all.
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

        Raises UnreadableLog if that is the first of all.
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

        It is in memory unless its write has failed; the rest of its chunk may be on disk only.
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
        if chunk in self._unreadable and not self._is_asked_again(chunk):
            return False
        if self.waits:
            return self._wait_for(chunk)
        if chunk in self._missing or chunk in self._under_way:
            return False
        if not self._kernel_has(chunk) or not self._admit(chunk):
            if len(self._missing) >= _MOST_MISSING:
                del self._missing[next(iter(self._missing))]
            self._missing[chunk] = None
            return False
        self._present.add(chunk)
        behind = self._next.pop(chunk, None)
        if behind is not None:
            self._read_on(behind)
        return True

    def _wait_for(self, chunk: int) -> bool:
        if self._admit(chunk):
            self._present.add(chunk)
            return True
        self._note_unreadable({chunk: self._failed_blocks(chunk)})
        return False

    def _admit(self, chunk: int) -> bool:
        """Put a chunk into the page table; False if the disk cannot read it."""
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

    def _is_asked_again(self, chunk: int) -> bool:
        """Whether the disk may be asked for an unreadable chunk again: it may have recovered."""
        until, _ = self._unreadable[chunk]
        if clock.monotonic() < until:
            return False
        del self._unreadable[chunk]
        return True

    def _is_beside_unreadable(self, chunk: int, physical: int, end: int) -> bool:
        """Whether the part of a record in a chunk can be read, though not all of the chunk can.

        Raises UnreadableLog for a record on a block that cannot be read.
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
            with contextlib.suppress(OSError):  # of a file that has been closed
                failed += (file.start + at for at in file.failed_blocks(position, size))
        return failed

    def _kernel_has(self, chunk: int) -> bool:
        offset = max(chunk * CHUNK, self._log.minimum)
        end = min((chunk + 1) * CHUNK, self._log.flushed)
        return offset >= end or self._log.is_in_memory(offset)

    # reading --------------------------------------------------------------------------------------

    async def bring_in(self, absent: NotInMemory) -> None:
        """Have it read, and what follows it. What is not there at all is left to who asks next."""
        reads = self.begin(absent)
        await asyncio.wait(reads)
        for read in reads:
            read.result()

    def begin(self, absent: NotInMemory) -> set[asyncio.Task[None]]:
        """Have it read, without waiting; returns what to wait for."""
        chunks = absent.chunks
        first, end = chunks[0], chunks[-1] + 1
        if len(chunks) * 2 < end - first:  # between them there is more that nobody has asked for
            return self._start(chunks, chunks)
        ahead = range(first, end + AHEAD // CHUNK)
        self._note_reader(ahead)
        return self._start(ahead, chunks)

    def _read_on(self, first: int) -> None:
        if first * CHUNK < self._log.flushed:
            chunks = range(first, first + AHEAD // CHUNK)
            self._note_reader(chunks)
            self._start(chunks, ())

    def _note_reader(self, chunks: range) -> None:
        if len(self._next) >= _MOST_READERS:
            del self._next[next(iter(self._next))]
        self._next[chunks[len(chunks) // 2]] = chunks.stop

    def _start(self, chunks: Collection[int], needed: Collection[int]) -> set[asyncio.Task[None]]:
        """Have what is not there read, and what is needed in any case: of that the kernel may have
        begun to read a part.

        The kernel is asked here, not in the thread: each of its answers would have the thread and
        the loop wait for the interpreter's lock in turn, for 4 MB of which nothing is to be read.
        """
        reads = {self._under_way[chunk] for chunk in chunks if chunk in self._under_way}
        mine = [
            chunk
            for chunk in chunks
            if chunk not in self._under_way
            and (chunk in needed or chunk in self._missing or not self._kernel_has(chunk))
        ]
        if mine:
            read = asyncio.ensure_future(self._read(mine))
            self._under_way.update(dict.fromkeys(mine, read))
            # Of what is read ahead nobody asks how it went: who needs it asks again.
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
                del self._under_way[chunk]
                self._missing.pop(chunk, None)

    def _read_all(self, chunks: list[int]) -> dict[int, list[int]]:
        """In a thread. Returns the offsets of unreadable blocks by chunk."""
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
    """Parts that follow one another as one, of so many bytes at most."""
    joined: list[Part] = []
    for file, position, size in parts:
        if joined:
            before, begin, length = joined[-1]
            if before is file and begin + length == position and length + size <= most:
                joined[-1] = file, begin, length + size
                continue
        joined.append((file, position, size))
    return joined
