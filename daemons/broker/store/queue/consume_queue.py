"""Consume queues: the places of the messages of one queue in the commit log.

Entry n (layout.ENTRY) describes the message with queue offset n. New entries are kept in memory, in
`_tail`, and written to the file a few times a second; after a crash they are rebuilt from the log.

    minimum   the first queue offset that can be read
    readable  one past the last that can be read
    written   one past the last whose record is written to the log
    appended  the queue offset of the next message

readable ≤ written ≤ appended; readable lags written while a sync flush is pending.
"""

import logging
from pathlib import Path
from typing import Protocol

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log.mapped_file import DescriptorCache
from mq.daemons.broker.store.queue.extension import QueueExtension
from mq.daemons.broker.store.queue.queue_files import QueueFiles, find_end
from mq.protocol.names import is_system_topic

log = logging.getLogger(__name__)

# The largest queue offset gap that is filled. A longer one is taken as damage to the queue offset
# itself.
MOST_FILLED = 1_000_000

_ENTRY_SIZE = layout.ENTRY_SIZE
_FILLER_SIZE = layout.FILLER_SIZE
_SKIPPED_AT_ONCE = 4096  # entries read at once while a gap is skipped


class QueueWaiter(Protocol):
    """Waits for the next message of a queue; usually a suspended pull."""

    def wake(self) -> None:
        """The queue has new messages, or was emptied or deleted."""
        ...


class ConsumeQueue:
    """One queue of a topic.

    ``folder`` holds its files, ``file_size`` is their size in bytes (a multiple of 20).
    """

    __slots__ = (
        "_kept",
        "_kept_index",
        "_persisted",
        "_stale_end",
        "_tail",
        "appended",
        "deleted",
        "extension",
        "files",
        "minimum",
        "put_bytes",
        "puts",
        "queue_id",
        "readable",
        "topic",
        "topic_field",
        "trusted",
        "waiting",
        "written",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        folder: Path | str,
        file_size: int,
        descriptors: DescriptorCache,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        raw = topic.encode()
        self.topic_field = bytes((len(raw),)) + raw  # as in a record
        self.minimum = 0
        self.readable = 0
        self.written = 0
        self.appended = 0
        # Counted since this process started: messages that became readable, and bytes of records.
        self.puts = 0
        self.put_bytes = 0
        # This process wrote the entries from here on: they need not be compared with the log.
        self.trusted = 0
        # Woken by the next message, in this order. A dict, so that one of ten thousand waiters is
        # removed as fast as the only one.
        self.waiting: dict[QueueWaiter, None] = {}
        self.extension: QueueExtension | None = None  # most have none
        self.files = QueueFiles(folder, file_size, descriptors)
        self._persisted = 0  # entries before it are in files, the others in _tail
        self._tail = bytearray()
        # End of old entries in the last file after `_persisted`: see `set_back`.
        self._stale_end = 0
        # permanently: the next queue of the topic with this id is another object
        self.deleted = False
        # The last entry that `load` found: a start reads it several times.
        self._kept_index = -1
        self._kept = b""

    def __repr__(self) -> str:
        return f"<queue {self.topic}-{self.queue_id} {self.minimum}..{self.readable}>"

    # loading --------------------------------------------------------------------------------

    def load(self) -> None:
        """Find the files and the end of their entries.

        Raises StoreLoadError if the files were created with another size.
        """
        self.files.load()
        end, last = find_end(self.files)
        self._set_end(end)
        if last:
            self._kept_index, self._kept = end - 1, last
        if self.files.first is not None:
            self.minimum = self.files.first

    def _set_end(self, index: int) -> None:
        self.appended = self.written = self.readable = self._persisted = self.trusted = index
        if self._kept_index >= index:
            self._kept_index = -1
        self._tail.clear()
        self._stale_end = 0

    def set_minimum(self, physical_minimum: int) -> None:
        """Set `minimum` to the first entry whose record the log still has."""
        first = self._peek(self.minimum) if self.minimum < self.readable else None
        if first is not None and first[0] >= physical_minimum and 0 < first[1] != _FILLER_SIZE:
            return
        self.minimum = self.first_at_or_after(physical_minimum)

    # reading --------------------------------------------------------------------------------

    def entries(self, index: int, count: int) -> bytes:
        """Return up to ``count`` readable entries from an index on. All are in one file or in
        memory, or in both if the file is the last.
        """
        count = min(count, self.readable - index)
        if count <= 0 or index < self.minimum:
            return b""
        if index >= self._persisted:
            start = (index - self._persisted) * _ENTRY_SIZE
            return bytes(self._tail[start : start + count * _ENTRY_SIZE])
        if count == 1:
            return self._read_one(index)
        on_disk = min(count, self._persisted - index)
        data = self.files.read(index, on_disk)
        if on_disk < count and len(data) == on_disk * _ENTRY_SIZE:
            data += self._tail[: (count - on_disk) * _ENTRY_SIZE]
        return data

    def _read_one(self, index: int) -> bytes:
        """Return an entry that is in a file."""
        return self._kept if index == self._kept_index else self.files.read(index, 1)

    def next_file_index(self, index: int) -> int:
        """The first index of the file after the one that holds an index."""
        return min(self.files.file_end(index), self.readable)

    def entry(self, index: int) -> tuple[int, int, int] | None:
        """(physical offset, size, tags code) of one entry, or None if it cannot be read."""
        raw = self.entries(index, 1)
        return layout.ENTRY.unpack(raw) if raw else None

    def last_address(self, most: int) -> int | None:
        """The extension address in the last entry that has one, among the last ``most`` entries."""
        address = None
        index = max(self.minimum, self.readable - most)
        while raw := self.entries(index, most):  # the entries in one file
            index += len(raw) // _ENTRY_SIZE
            for _, _, code in layout.ENTRY.iter_unpack(raw):
                if layout.is_extension_address(code):
                    address = code
        return address

    def last_physical_end(self) -> int:
        """The physical offset after the last record of this queue, 0 if none."""
        if self.appended <= self.minimum:
            return 0
        last = self.entry(self.appended - 1)
        return 0 if last is None else last[0] + last[1]

    def first_at_or_after(self, physical: int) -> int:
        """The index of the first entry whose record is at or after a physical offset."""
        low = self._first()
        found = high = self.readable
        while low < high:
            middle = (low + high) // 2
            # Fillers and unreadable entries have no offset: use the next entry that has one.
            index = self._skip_gap(middle, high)
            entry = self._peek(index) if index < high else None
            if entry is not None and entry[0] < physical:
                low = index + 1
            else:
                high = middle
                found = found if entry is None else index
        return found

    def _first(self) -> int:
        """The first index that may have an entry."""
        first = self.files.first
        return self._persisted if first is None else first

    def _skip_gap(self, index: int, end: int) -> int:
        """The first index from ``index`` on with an entry that is not a filler, or ``end``."""
        count = 1  # usually the first one
        while index < end:
            count = min(count, end - index)
            if index >= self._persisted:
                start = (index - self._persisted) * _ENTRY_SIZE
                raw = bytes(self._tail[start : start + count * _ENTRY_SIZE])
            elif count == 1:
                raw = self._read_one(index)
            else:
                raw = self.files.read(index, min(count, self._persisted - index))
            if not raw:
                index = self.files.file_end(index)
            for _, size, _ in layout.ENTRY.iter_unpack(raw):
                if 0 < size != _FILLER_SIZE:
                    return index
                index += 1
            count = _SKIPPED_AT_ONCE
        return end

    def _peek(self, index: int) -> tuple[int, int, int] | None:
        if index >= self._persisted:
            return layout.ENTRY.unpack_from(self._tail, (index - self._persisted) * _ENTRY_SIZE)
        raw = self._read_one(index)
        return layout.ENTRY.unpack(raw) if len(raw) == _ENTRY_SIZE else None

    # writing --------------------------------------------------------------------------------

    def append(self, entry: bytes) -> None:
        """Add an entry in memory. It can be read when `readable` moves past it."""
        self._tail += entry
        self.appended += 1

    def append_all(self, entries: list[bytes]) -> None:
        """Add entries as `append` does."""
        self._tail += b"".join(entries)
        self.appended += len(entries)

    def append_packed(self, entries: bytes, count: int) -> None:
        """Add ``count`` entries as `append` does."""
        self._tail += entries
        self.appended += count

    def restore(self, index: int, entry: bytes) -> bool:
        """Add an entry again during the replay of the log; return whether it was new.

        The queue already has the entries before its end. An index after the end leaves a gap, which
        is filled so that each later message keeps its queue offset.
        """
        if index < self.appended:
            return False
        if index > self.appended and self._stale_end:
            self._clear_stale()
        if self.appended == 0 and self.files.first is None:
            # The queue's older messages were deleted with old log files: start in the right file.
            self._set_end(self.files.file_start(index))
            self.minimum = self.appended
        if index - self.appended > MOST_FILLED:
            return False
        if index > self.appended:
            self._tail += self._filling(entry) * (index - self.appended)
            if self.minimum >= self.appended:
                self.minimum = index
            self.appended = self.trusted = index
        if self.extension is not None:
            entry = self.extension.restored(index, entry)
        self._tail += entry
        self.appended += 1
        self.written = self.readable = self.appended
        return True

    def restore_all(self, index: int, entries: bytes) -> bool:
        """As `restore` for consecutive entries, up to the first that is not new."""
        if not self.restore(index, entries[:_ENTRY_SIZE]):
            return False
        if self.extension is not None:
            starts = range(_ENTRY_SIZE, len(entries), _ENTRY_SIZE)
            return all(self.restore(self.appended, entries[n : n + _ENTRY_SIZE]) for n in starts)
        self.append_packed(entries[_ENTRY_SIZE:], len(entries) // _ENTRY_SIZE - 1)
        self.written = self.readable = self.appended
        return True

    def _filling(self, following: bytes) -> bytes:
        """Return the entry that fills a gap before the entry ``following``.

        A gap inside a queue is filled with the following entry. This broker notices that the record
        is another message; Java does not compare them and delivers that message once more. For a
        filler entry, as used before the first message, Java would continue in the next file of the
        log and skip messages (DefaultMessageStore.getMessage). Queues that only the broker reads
        must have no entry twice, so they get fillers.
        """
        if self.minimum >= self.appended or is_system_topic(self.topic):
            return layout.FILLER_ENTRY
        return following

    def undo_unwritten(self) -> None:
        """Remove the entries whose records could not be written."""
        start = (self.written - self._persisted) * _ENTRY_SIZE
        refused = bytes(self._tail[start:])
        self.put_bytes -= sum(size for _, size, _ in layout.ENTRY.iter_unpack(refused))
        del self._tail[start:]
        self.appended = self.written

    def mend(self, index: int, entry: bytes) -> None:
        """Replace a damaged entry. Raises OSError."""
        self._kept_index = -1
        if index >= self._persisted:
            start = (index - self._persisted) * _ENTRY_SIZE
            self._tail[start : start + _ENTRY_SIZE] = entry
            return
        self.files.mend(index, entry)

    @property
    def persisted(self) -> int:
        """One past the last entry that is in a file."""
        return self._persisted

    def persist(self) -> None:
        """Write the entries of written records to the file.

        Nothing is written to a deleted queue: messages that were in flight at the deletion are only
        in the log. Raises OSError; no entry is lost then.
        """
        if self.deleted:
            return
        if self.extension is not None:
            self.extension.persist()  # first: entries refer to it
        while self._persisted < self.written:
            count = min(self.files.file_end(self._persisted), self.written) - self._persisted
            data = bytes(self._tail[: count * _ENTRY_SIZE])
            written = self.files.write(self._persisted, data)
            del self._tail[: written * _ENTRY_SIZE]
            self._persisted += written

    def sync_paths(self, since: int) -> list[str]:
        """The files that hold entries from an index on, which a checkpoint has to fsync."""
        more = [] if self.extension is None else self.extension.sync_paths()
        return [*self.files.sync_paths(since), *more]

    # cutting --------------------------------------------------------------------------------

    def set_back(self, physical: int) -> None:
        """Forget the entries of records at or after a physical offset, before the log is replayed.

        Most entries are restored with the same bytes that are in the file. So the last file keeps
        its content until `cut`, which runs after the replay and removes what was not restored:
        deleting and recreating ten thousand files takes seconds.
        """
        end = self._first_dropped(physical)
        if end >= self._persisted:
            self._drop_tail(end)
            return
        stale_end = self._persisted
        self.files.remove_from(end + 1)
        self._set_end(end)
        last = self.files.last
        if last is not None:
            self._stale_end = min(stale_end, self.files.file_end(last))
            # No checkpoint covers an entry of this file, so its name may not be on disk, either.
            self.files.renamed = self.files.renamed or last == end

    def cut(self, physical: int) -> int:
        """Drop the entries of records at or after a physical offset; return their number."""
        if self._stale_end > self.appended:
            self._clear_stale()
        self._stale_end = 0
        end = self._first_dropped(physical)
        dropped = self.appended - end
        if end >= self._persisted:
            self._drop_tail(end)
            return dropped
        self.files.remove_from(end)
        self._set_end(end)
        self.files.clear_from(self._persisted)
        return dropped

    def _first_dropped(self, physical: int) -> int:
        """The index at which to truncate, `appended` if nothing is dropped. Extension units of the
        dropped entries are kept.
        """
        last = (
            self.entry(self.appended - 1) if self.minimum < self.appended == self.readable else None
        )
        if last is not None and last[1] != _FILLER_SIZE and last[0] + last[1] <= physical:
            return self.appended
        end = self.first_at_or_after(physical)
        while end > self.minimum and (before := self._peek(end - 1)) and before[1] <= 0:
            end -= 1  # zeros that a power failure left before later entries
        if end < self.appended:
            if self.extension is not None:
                self.extension.remember(end, self._entries_from(end))
            self.minimum = min(self.minimum, end)
        return end

    def _drop_tail(self, end: int) -> None:
        if end < self.appended:
            del self._tail[(end - self._persisted) * _ENTRY_SIZE :]
            self.appended = self.written = self.readable = end

    def _clear_stale(self) -> None:
        self._stale_end = 0
        self.files.remove_from(self._persisted)
        self.files.clear_from(self._persisted)

    def clear_after_end(self) -> None:
        """Clear the remains of a power failure after the last entry that was found.

        A later start would read them as entries after the entries between were written.
        """
        if self.files.has_data_from(self._persisted):
            self.files.clear_from(self._persisted)

    def _entries_from(self, index: int) -> bytes:
        parts = []
        while raw := self.entries(index, self.readable - index):  # the entries in one file
            parts.append(raw)
            index += len(raw) // _ENTRY_SIZE
        return b"".join(parts)

    def remove_files_before(self, physical_minimum: int) -> int:
        """Delete files whose records are all deleted, except the last file; return their number."""
        removed = self.files.remove_before(self.first_at_or_after(physical_minimum))
        if self.extension is not None:
            self._clean_extension(self.extension)
        return removed

    def _clean_extension(self, extension: QueueExtension) -> None:
        """Delete the extension files before the unit of the first entry that has one."""
        for _, size, code in layout.ENTRY.iter_unpack(
            self.entries(max(self._first(), self.minimum), _SKIPPED_AT_ONCE)
        ):
            if size != _FILLER_SIZE and layout.is_extension_address(code):
                extension.remove_files_before(code)
                return

    def clear(self) -> None:
        """Delete the queue's files and empty it. Raises OSError; the queue then keeps the remaining
        files.
        """
        self.files.remove_all()
        # Also if the extension stays: without the files before them, no start would find new
        # entries.
        self.minimum = 0
        self._set_end(0)
        if self.extension is not None:
            self.extension.clear()

    def delete(self) -> None:
        """Clear the queue permanently: messages in flight to it are not written any more.

        Raises OSError; the queue then stays in use with the remaining files.
        """
        self.deleted = True
        try:
            self.clear()
        except OSError:
            self.deleted = False
            raise
