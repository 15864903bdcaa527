"""Residency: what of the log is in memory. The event loop must not wait for a disk.

Reading a page of the mapped log that is not in memory stops everything until a disk has given it.
So before messages are looked at, the kernel is asked whether their pages are there, wherever in the
log they lie, and if not a thread has them read. Who catches up wants next what lies behind them:
that is read with them, and when half of it has been asked for, what follows (docs/decisions/0054).

What has not been flushed is in memory: the kernel cannot let go of it.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterator

from mq.client.machine import clock
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
_MOST_OF_RECORD = 64 * CHUNK
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


class NotInMemory(Exception):
    """A disk would have to be waited for. `chunks` are those missed, by number, sorted."""

    def __init__(self, chunks: Collection[int]) -> None:
        self.chunks = sorted(set(chunks))
        super().__init__(f"not in memory: chunks {self.chunks}")


class Residency:
    """Knows which chunks of a log are in memory, as far as the kernel tells.

    The log is looked at in chunks, numbered from its offset 0.
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._present: set[int] = set()
        self._whole: set[int] = set()  # regions of which all is present
        self._until = 0.0  # of the monotonic clock
        # Asked for in vain. The kernel reads on its own behind the page that it was asked for, not
        # all of the chunk: what it says later would not be of the whole.
        self._missing: dict[int, None] = {}
        self._under_way: dict[int, asyncio.Task[None]] = {}
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
        if physical >= self._log.flushed:
            return True
        first = physical // CHUNK
        last, size, _ = _unpack(entries, len(entries) - _ENTRY_SIZE)
        end = (last + size - 1) // CHUNK + 1
        present = self._trusted()
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
        """The chunks of a record that are not in memory."""
        if physical >= self._log.flushed:
            return []
        present = self._trusted()
        end = physical + max(1, min(size, _MOST_OF_RECORD))
        return [
            chunk
            for chunk in range(physical // CHUNK, (end - 1) // CHUNK + 1)
            if chunk not in present and not self._is_there(chunk)
        ]

    def leading(self, entries: bytes) -> int:
        """How many entries come before the first whose record is not in memory."""
        if self.holds(entries):
            return len(entries) // _ENTRY_SIZE
        count = 0
        for physical, size, _ in _iterate(entries):
            if self.missing(physical, size):
                break
            count += 1
        return count

    def require(self, entries: bytes, most_bytes: int) -> None:
        """Raise NotInMemory unless the records of these entries can be read at once: the first, and
        of the others so many bytes together with it."""
        if self.holds(entries):
            return
        missing: list[int] = []
        total = 0
        for physical, size, _ in _iterate(entries):
            if total and total + size > most_bytes:
                break
            total += max(size, 0)
            missing += self.missing(physical, size)
        if missing:
            raise NotInMemory(missing)

    def _trusted(self) -> set[int]:
        now = clock.monotonic()
        if now > self._until:
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
        if chunk in self._missing or chunk in self._under_way:
            return False
        if not self._kernel_has(chunk):
            if len(self._missing) >= _MOST_MISSING:
                del self._missing[next(iter(self._missing))]
            self._missing[chunk] = None
            return False
        self._present.add(chunk)
        behind = self._next.pop(chunk, None)
        if behind is not None:
            self._read_on(behind)
        return True

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
                    await asyncio.to_thread(self._read_all, chunks)
        finally:
            for chunk in chunks:
                del self._under_way[chunk]
                self._missing.pop(chunk, None)

    def _read_all(self, chunks: list[int]) -> None:
        """In a thread."""
        parts = [part for chunk in chunks for part in self._parts(chunk)]
        for file, position, size in parts:
            file.begin_reading(position, size)
        buffer = memoryview(bytearray(min(len(chunks) * CHUNK, _READ_AT_ONCE)))
        for file, position, size in _joined(parts, len(buffer)):
            file.read_into(buffer[:size], position)

    def _parts(self, chunk: int) -> Iterator[Part]:
        at = max(chunk * CHUNK, self._log.minimum)
        end = min((chunk + 1) * CHUNK, self._log.written)
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
