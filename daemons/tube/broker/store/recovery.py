"""Recovery of a store.

The data files are authoritative; the index is rebuilt from them if it may be wrong.

1. Choose the start: the checkpoint, before which everything is on the disk; without one, as from
   Java, the last data file with content. If the index ends before that, further back.
2. If that is before the checkpoint, lower the checkpoint: its guarantee no longer holds. 3. Read
record after record: token, length, checksum of the payload, its offset in the index, and
   whether the index matches. The first invalid one is the end of the data. Wrong parts of the index
   are rebuilt from the data; its part after the end is removed.
4. Copy the removed data to `damaged/` first, and report it: offset, bytes, reason. 5. Rewrite the
read part in place, and fsync it with the rebuilt index; write the checkpoint, before
   anything is served.

After a kill during this the next start recovers the store in the same way: nothing is removed
before its copy is on the disk, and the checkpoint never covers more than exists.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from zlib import crc32

from mq.client.machine import clock, files
from mq.daemons.broker.store import Damage, StoreLoadError, data_end, keep_file, keep_part
from mq.daemons.state_file import make_folder
from mq.daemons.tube.broker.store import checkpoint as checkpoints
from mq.daemons.tube.broker.store.checkpoint import Checkpoint
from mq.daemons.tube.broker.store.layout import (
    CHECKPOINT,
    DAMAGED,
    DATA_SUFFIX,
    HEAD,
    HEAD_SIZE,
    INDEX,
    INDEX_FOLDER,
    INDEX_SIZE,
    INDEX_SUFFIX,
    MAX_RECORD,
    PREFIX,
    TOKEN,
)
from mq.daemons.tube.broker.store.segments import Segment, Segments, create, found

_READ_AT_ONCE = 4 * 1024 * 1024
_CRC_MASK = 0x7FFF_FFFF
# A last file without writes for this time gets a successor, so that it can expire
# (DataStoreUtils.MAX_FILE_NO_WRITE_DURATION).
_STALE_MS = 2 * 24 * 3600 * 1000


@dataclass
class RecoveredStore:
    """A store that can be served: its files, and the notes about it."""

    data: Segments
    index: Segments
    checkpoint: Checkpoint
    damages: list[Damage] = field(default_factory=list)
    records: int = 0  # read and verified ones
    reindexed: int = 0  # bytes of the index that were rebuilt from the data


def recover(folder: Path, data_size: int, index_size: int) -> RecoveredStore:
    """Open the store in a folder; create it if it does not exist.

    Raises OSError, and StoreLoadError if a person must decide; nothing was removed then.
    """
    make_folder(folder / INDEX_FOLDER)
    safe = checkpoints.read(folder / CHECKPOINT)
    opened: list[Segment] = []
    try:
        data = _open(folder, DATA_SUFFIX, data_size, opened)
        index = _open(folder / INDEX_FOLDER, INDEX_SUFFIX, index_size, opened)
        return _Recovery(folder, data, index, safe).run()
    except BaseException:
        for segment in opened:
            segment.close()
        raise


def _open(folder: Path, suffix: str, size: int, opened: list[Segment]) -> Segments:
    segments = []
    for segment in found(folder, suffix):
        opened.append(segment)
        segments.append(segment)
    return Segments(folder, suffix, size, segments)


class _Bad(Exception):
    """The data at an offset is not a record. The text explains it."""


class _Recovery:
    def __init__(
        self, folder: Path, data: Segments, index: Segments, safe: Checkpoint | None
    ) -> None:
        self._folder = folder
        self._data = data
        self._index = index
        self._safe = safe
        self._damages: list[Damage] = []
        self._records = 0
        self._reindexed = 0

    def run(self) -> RecoveredStore:
        had = bool(self._data.segments)
        self._join_data()
        self._join_index()
        begin = self._where_to_begin()
        self._lower_checkpoint(begin)
        end = self._read(begin)
        self._write_again(self._data, begin.data)
        self._write_again(self._index, begin.index)
        self._sync()
        if end != self._safe or begin != self._safe or not had:
            checkpoints.write(self._folder / CHECKPOINT, end)
        self._succeed_stale()
        return RecoveredStore(
            self._data, self._index, end, self._damages, self._records, self._reindexed
        )

    def _lower_checkpoint(self, begin: Checkpoint) -> None:
        """Lower the checkpoint to the start of the rebuilt part."""
        if self._safe is not None and begin.data < self._safe.data:
            checkpoints.write(self._folder / CHECKPOINT, begin)

    # the files as a sequence ------------------------------------------------------------------

    def _join_data(self) -> None:
        """Make the data files contiguous; files after a gap from a power cut are removed."""
        segments = self._data.segments
        for number, (one, following) in enumerate(pairwise(segments)):
            if one.end == following.start:
                continue
            if self._safe is None or one.end < self._safe.data:
                raise StoreLoadError(
                    f"{one.path} ends at {one.end}, and {following.path.name} is the next file: "
                    f"bytes are missing or too many. Restore the missing files, or move "
                    f"{following.path.name} and all later ones away"
                )
            self._quarantine(number + 1, "the data ends before this file")
            break
        if not segments:
            start = self._safe.data if self._safe is not None else 0
            self._adopt(self._data, create(self._folder, DATA_SUFFIX, start))

    def _quarantine(self, first: int, why: str) -> None:
        for segment in self._data.segments[first:]:
            size = segment.end - segment.start
            if size:
                self._damages.append(Damage(str(segment.path), segment.start, size, why))
                damaged = self._folder / DAMAGED
                keep_file(damaged, segment.path, segment.descriptor, segment.start, size)
        for segment in reversed(self._data.segments[first:]):
            files.remove(segment.path)
            segment.close()
        files.sync_folder(self._folder)
        self._data = Segments(
            self._folder, DATA_SUFFIX, self._data.size, self._data.segments[:first]
        )

    def _join_index(self) -> None:
        """Make the index files contiguous; the rest is rebuilt from the data."""
        kept: list[Segment] = []
        gone = 0
        for one in self._index.segments:
            if kept and (gone or kept[-1].end != one.start or kept[-1].end % INDEX_SIZE):
                gone += 1
                self._damages.append(
                    Damage(str(one.path), one.start, one.end - one.start,
                           "the index has a gap before this file: it is rebuilt")
                )  # fmt: skip
                files.remove(one.path)
                one.close()
            else:
                kept.append(one)
        folder = self._folder / INDEX_FOLDER
        if gone:
            files.sync_folder(folder)
        self._index = Segments(folder, INDEX_SUFFIX, self._index.size, kept)

    def _adopt(self, all_of: Segments, segment: Segment) -> None:
        segments = [*all_of.segments, segment]
        joined = Segments(all_of.folder, all_of.suffix, all_of.size, segments)
        if all_of is self._data:
            self._data = joined
        else:
            self._index = joined

    # where to begin ---------------------------------------------------------------------------

    def _where_to_begin(self) -> Checkpoint:
        safe = self._safe
        index = self._index.segments
        if safe is not None and self._data.start <= safe.data <= self._data.end:
            if index and index[0].start <= safe.index <= index[-1].end:
                return safe
        elif safe is not None and safe.data > self._data.end:
            self._damages.append(
                Damage(str(self._data.segments[-1].path), self._data.end,
                       safe.data - self._data.end, "the data is shorter than the checkpoint")
            )  # fmt: skip
        earliest: Checkpoint | None = None
        for segment in reversed(self._data.segments):
            head = self._first_head(segment)
            if head is None:
                continue
            earliest = Checkpoint(segment.start, head)
            if index and index[0].start <= head <= index[-1].end:
                return earliest
        return self._begin_index(earliest)

    def _begin_index(self, earliest: Checkpoint | None) -> Checkpoint:
        """Rebuild the whole index if it does not reach the start of the data."""
        for segment in self._index.segments if earliest is not None else ():
            files.remove(segment.path)
            segment.close()
        folder, size = self._folder / INDEX_FOLDER, self._index.size
        if earliest is None:  # no data: the index has the number of messages
            if self._index.segments:
                return Checkpoint(self._data.end, self._end_of_entries())
            start = self._safe.index if self._safe is not None else 0
            earliest = Checkpoint(self._data.end, start)
        made = create(folder, INDEX_SUFFIX, earliest.index)
        self._index = Segments(folder, INDEX_SUFFIX, size, [made])
        return earliest

    def _end_of_entries(self) -> int:
        """Return the end of the index records that point before the end of the data."""
        for segment in reversed(self._index.segments):
            at = (segment.end - segment.start) // INDEX_SIZE * INDEX_SIZE
            while at:
                entry = INDEX.unpack(files.pread(segment.descriptor, INDEX_SIZE, at - INDEX_SIZE))
                if entry[1] + entry[2] <= self._data.end:
                    return segment.start + at
                at -= INDEX_SIZE
        return self._index.start

    def _first_head(self, segment: Segment) -> int | None:
        """Return the offset in the index of a file's first record; None if it is invalid."""
        piece = files.pread(segment.descriptor, HEAD_SIZE, 0)
        if len(piece) < HEAD_SIZE:
            return None
        length, token, _, _, at_index, *_ = HEAD.unpack(piece)
        good = token == TOKEN and PREFIX < length <= MAX_RECORD - 4
        return at_index if good and at_index >= 0 and at_index % INDEX_SIZE == 0 else None

    # reading ----------------------------------------------------------------------------------

    def _read(self, begin: Checkpoint) -> Checkpoint:
        """Read the records from there on; return the ends."""
        writer = _IndexWriter(self._index, begin.index)
        end = begin.data
        why = ""
        try:
            for entry in self._records_from(begin):
                writer.put(entry)
                end += INDEX.unpack(entry)[2]
                self._records += 1
        except _Bad as bad:
            why = str(bad)
        self._cut(end, why)
        self._damages += writer.finish()
        self._reindexed = writer.made
        self._index = writer.index
        return Checkpoint(end, writer.position)

    def _records_from(self, begin: Checkpoint) -> Iterator[bytes]:
        """Yield the index record of each valid record. Raises _Bad at the first invalid one."""
        at_index = begin.index
        for segment in self._data.segments:
            if segment.end <= begin.data:
                continue
            position = max(begin.data - segment.start, 0)
            for head, size in _read_file(segment, position):
                if head[4] != at_index:
                    raise _Bad(f"it is for {head[4]} of the index, which is at {at_index}")
                yield INDEX.pack(head[3], segment.start + position, size, head[7], head[5])
                position += size
                at_index += INDEX_SIZE

    def _cut(self, end: int, why: str) -> None:
        """End the data at an offset, and keep a copy of the rest."""
        number = next(
            n for n, one in enumerate(self._data.segments) if one.start <= end <= one.end
        )  # of two at a border the earlier one; the later one stays if it is empty
        last = self._data.segments[number]
        later = self._data.segments[number + 1 :]
        if later and (why or last.end > end):
            self._quarantine(number + 1, why or "the data ends before this file")
        if last.end > end:
            within = end - last.start
            written = data_end(last.descriptor, within)
            self._damages.append(
                Damage(str(last.path), end, last.end - end, why or "no whole record")
            )
            if written > within:
                damaged = self._folder / DAMAGED
                keep_part(damaged, last.descriptor, within, written, end)
            files.ftruncate(last.descriptor, within)
            last.end = end

    def _write_again(self, all_of: Segments, begin: int) -> None:
        """Rewrite the read data in place, so that the following fsync covers it.

        After a failed fsync the kernel presents dropped data as written until the power is off, and
        no later fsync writes it.
        """
        for segment in all_of.segments:
            position, end = max(begin - segment.start, 0), segment.end - segment.start
            while position < end:
                piece = files.pread(segment.descriptor, _READ_AT_ONCE, position)
                if not piece:
                    raise OSError(errno.EIO, "the file has become shorter", str(segment.path))
                files.write_all(segment.descriptor, piece, position)
                position += len(piece)

    def _sync(self) -> None:
        for segment in (*self._data.segments, *self._index.segments):
            segment.sync()
            segment.synced = segment.end
        for folder in (self._folder, self._folder / INDEX_FOLDER):
            files.sync_folder(folder)

    def _succeed_stale(self) -> None:
        now = clock.milliseconds()
        for one in (self._data, self._index):
            last = one.segments[-1]
            if last.end > last.start and now - last.modified_ms() >= _STALE_MS:
                one.roll()


def _read_file(segment: Segment, position: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield head and size of each record of a file, verified. Raises _Bad."""
    length = segment.end - segment.start
    base, buffer = position, b""
    while position < length:
        at = position - base
        if len(buffer) - at < HEAD_SIZE:
            base, at = position, 0
            buffer = files.pread(segment.descriptor, _READ_AT_ONCE, position)
            if len(buffer) < HEAD_SIZE:
                raise _Bad("the file ends within a record")
        head = HEAD.unpack_from(buffer, at)
        size = head[0] + 4
        if head[1] != TOKEN:
            raise _Bad("not the token of a record")
        if not HEAD_SIZE < size <= MAX_RECORD:
            raise _Bad(f"its length is {head[0]}")
        if len(buffer) - at < size:
            base, at = position, 0
            buffer = files.pread(segment.descriptor, max(size, _READ_AT_ONCE), position)
            if len(buffer) < size:
                raise _Bad("the file ends within a record")
        if crc32(memoryview(buffer)[at + HEAD_SIZE : at + size]) & _CRC_MASK != head[2]:
            raise _Bad("its checksum is wrong")
        yield head, size
        position += size


class _IndexWriter:
    """Compares the index with the data, and corrects differences."""

    def __init__(self, index: Segments, position: int) -> None:
        self.index = index
        self.position = position
        self.made = 0
        self._differs = False
        self._pending: list[bytes] = []
        self._known = self._entries_from(position)

    def put(self, entry: bytes) -> None:
        if not self._differs and next(self._known, b"") != entry:
            self._cut()
            self._differs = True
        if self._differs:
            if self.index.is_full:
                self._write()
            if self.index.is_full:
                self.index.roll()
            self._pending.append(entry)
            self.made += INDEX_SIZE
            last = self.index.segments[-1]
            room = self.index.size - (last.end - last.start)
            if len(self._pending) * INDEX_SIZE >= min(room, _READ_AT_ONCE):
                self._write()
        self.position += INDEX_SIZE

    def finish(self) -> list[Damage]:
        """Write the rest, and end the index there."""
        self._write()
        damages = []
        dropped = self.index.end - self.position
        if dropped > 0:
            damages.append(
                Damage(str(self.index.folder), self.position, dropped,
                       "the index has more than the data")
            )  # fmt: skip
            self._cut()
        return damages

    def _write(self) -> None:
        if self._pending:
            self.index.write(b"".join(self._pending))
            self._pending.clear()

    def _cut(self) -> None:
        """End the index at the position."""
        segments = self.index.segments
        while len(segments) > 1 and segments[-1].start >= self.position:
            gone = segments.pop()
            files.remove(gone.path)
            gone.close()
        files.sync_folder(self.index.folder)
        last = segments[-1]
        if last.end > self.position:
            files.ftruncate(last.descriptor, self.position - last.start)
            last.end = self.position
        index = self.index
        self.index = Segments(index.folder, index.suffix, index.size, segments)

    def _entries_from(self, position: int) -> Iterator[bytes]:
        for segment in list(self.index.segments):
            at = max(position - segment.start, 0)
            while segment.start + at < segment.end:
                piece = files.pread(segment.descriptor, _READ_AT_ONCE // 28 * 28, at)
                if len(piece) < INDEX_SIZE:
                    return
                for start in range(0, len(piece) - INDEX_SIZE + 1, INDEX_SIZE):
                    yield piece[start : start + INDEX_SIZE]
                at += len(piece) // INDEX_SIZE * INDEX_SIZE
