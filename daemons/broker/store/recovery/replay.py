"""Replay: reads the records of the log forward and puts them into queues and index again.

The native path, if there is one, reads ordinary records, many at once. Python reads the others one
by one, in order: delayed messages, half messages, records with IPv6 hosts, records of a queue whose
queue offsets do not increase by one, and everything that may be damage.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import Damage
from mq.daemons.broker.store.index.index import PUT, Index, key_hash
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.mapped_file import LogReader, MappedFile
from mq.daemons.broker.store.log.records import (
    BadRecord,
    EndOfLog,
    Record,
    RecordSearch,
    UnreadableRecord,
    keys_of,
    queue_tags_code,
    read_file,
)
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
from mq.daemons.broker.store.queue.generations import QueueGenerations
from mq.daemons.broker.store.queue.queues import Queues, implausible
from mq.protocol.native import failures, native
from mq.protocol.properties import decode

log = logging.getLogger(__name__)

_read_records: Any = getattr(native, "read_records", None)

# Bytes of the log that the native path gets at once; Python reads longer records.
_PIECE = 256 * 1024
# Records that Python reads before the native path is tried again.
_PYTHON_RECORDS = 16


class Replay:
    """Replays a log whose queues and index have nothing from the start offset on.

    ``delays`` are milliseconds by delay level. ``check`` raises BadRecord for a record that is
    invalid although its checksum is right, and is called before the record counts; it can only find
    records with a zero in topic or properties. ``on_damage`` is called for each skipped record with
    its physical offset and the reason. ``on_hole`` is called for each unreadable part of the log
    that is followed by whole records; replay continues after it.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: Queues,
        index: Index | None,
        delays: dict[int, int],
        generations: QueueGenerations,
        check: Callable[[Record], None],
        on_damage: Callable[[int, str], None],
        on_hole: Callable[[Damage], None],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._delays = delays
        self._generations = generations
        self._check = check
        self._on_damage = on_damage
        self._on_hole = on_hole
        self._seen: set[ConsumeQueue] = set()
        self._from_minimum = False
        self._native = _read_records
        # Queues whose files disagree with the log.
        self.suspect: dict[ConsumeQueue, None] = {}
        self.records = 0
        self.end = 0  # physical offset after the last record

    def run(self, start: int) -> str:
        """Read from a physical offset to `end`. Returns why the bytes there are not a record, "" if
        nothing was written there. Raises OSError.
        """
        self.end = start
        self._from_minimum = start == self._log.minimum
        try:
            for record in self._one_by_one():
                self._check(record)
                self.records += 1
                self.end = record.physical + record.size
                self._put(record)
        except BadRecord as error:
            return str(error)
        return ""

    def _one_by_one(self) -> Iterator[Record]:
        """Yield the records that are put one by one; those between them are put by the native path.
        Raises BadRecord.
        """
        position = self.end
        reader: LogReader | None = None
        while (file := self._log.file_at(position)) is not None:
            if self._native is not None:
                position = self._put_natively(file, position)
            if reader is None or reader.start != file.start:
                reader = LogReader(file)
            most = 1 << 60 if self._native is None else _PYTHON_RECORDS
            count = 0
            try:
                for record in islice(read_file(reader, position - file.start), most):
                    yield record
                    position = record.physical + record.size
                    count += 1
            except EndOfLog:
                return
            except UnreadableRecord as error:
                position = self._skip_unreadable(reader, position, error)
                continue
            if count < most:
                position = file.end

    def _skip_unreadable(self, reader: LogReader, position: int, error: UnreadableRecord) -> int:
        """Return the offset of the next whole record after an unreadable one.

        Raises the error if there is none: then the log ends before the unreadable record.
        """
        found = RecordSearch(reader).next_record(position - reader.start + 1)
        following = reader.end if found is None else reader.start + found
        if found is None and not self._has_record_at(following):
            raise error
        size = following - position
        self._on_hole(Damage(str(reader.path), position, size, str(error), is_cut=False))
        return following

    def _has_record_at(self, physical: int) -> bool:
        """Whether a whole record starts at an offset at which a file may start."""
        file = self._log.file_at(physical)
        try:
            return file is not None and next(read_file(LogReader(file), 0), None) is not None
        except (BadRecord, EndOfLog):
            return False

    # natively -------------------------------------------------------------------------------

    def _put_natively(self, file: MappedFile, position: int) -> int:
        """Put the ordinary records from an offset on; returns the offset of the first other one."""
        while True:
            # Not through the mapping: it reaches past the written part, where a full tmpfs has no
            # memory.
            data = file.read_part(position - file.start, _PIECE)
            taken = self._put_piece(data, position)
            if not taken:
                return position
            position += taken

    def _put_piece(self, data: bytes, physical: int) -> int:
        """Put the ordinary records at the start of some bytes; returns the number of bytes put."""
        taken, room, index = 0, len(data), self._index
        while self._native is not None and taken < room:
            begin = physical + taken
            origin = 0 if index is None else index.origin
            try:
                found = self._native(data, taken, begin, room, origin)
            except failures:  # nothing was changed
                log.exception("the native path failed; reading the log with Python")
                self._native = None
                break
            size, touched, items, count, timestamp = found
            if not count or not self._put_many(begin, size, touched, items, timestamp):
                break
            taken += size
            self.records += count
            self.end = begin + size
        return taken

    def _put_many(
        self, begin: int, size: int, touched: list[Any], items: bytes, timestamp: int
    ) -> bool:
        """Put the records that the native path has read. Returns False if Python has to read them,
        for example if only some records of a queue are deleted.
        """
        index = self._index
        if index is not None and (begin <= index.end_offset or len(items) > index.room * PUT.size):
            return False
        covers = self._generations.covers
        kept = []
        for topic, queue_id, first, count, entries, _ in touched:
            if implausible(topic, queue_id, first + count - 1):
                return False
            if not covers(topic, queue_id, begin):
                kept.append((topic, queue_id, first, entries))
            elif not covers(topic, queue_id, begin + size):
                return False
            else:
                self._generations.skipped(topic, queue_id, begin)
        for topic, queue_id, first, entries in kept:
            self._restore(topic, queue_id, first, entries)
        if index is not None and items:
            index.put(items, timestamp)
        return True

    # one by one -----------------------------------------------------------------------------

    def _put(self, record: Record) -> None:
        why = implausible(record.topic, record.queue_id, record.queue_offset)
        if why:
            self._on_damage(record.physical, why)
            return
        properties = decode(record.properties) if record.properties else {}
        if record.is_queued and not self._is_deleted(record):
            code = queue_tags_code(record.topic, properties, record.store_timestamp, self._delays)
            entry = layout.ENTRY.pack(record.physical, record.size, code)
            self._restore(record.topic, record.queue_id, record.queue_offset, entry)
        if self._index is not None and record.is_indexed:
            keys = keys_of(properties)
            if keys and record.physical > self._index.end_offset:
                items = [PUT.pack(key_hash(record.topic, key), record.physical) for key in keys]
                self._index.put(b"".join(items), record.store_timestamp)

    def _is_deleted(self, record: Record) -> bool:
        where = record.topic, record.queue_id, record.physical
        if not self._generations.covers(*where):
            return False
        self._generations.skipped(*where)
        return True

    def _restore(self, topic: str, queue_id: int, first: int, entries: bytes) -> None:
        """Add consecutive entries to a queue, unless its files disagree with the log."""
        queue = self._queues.get_or_make(topic, queue_id)
        if queue not in self._seen:
            self._seen.add(queue)
            if queue.appended != first and not self._starts_here(queue):
                self.suspect[queue] = None
        if queue not in self.suspect and not queue.restore_all(first, entries):
            self.suspect[queue] = None

    def _starts_here(self, queue: ConsumeQueue) -> bool:
        """Whether the older messages of a queue, if it had any, were deleted with old log files."""
        return queue.appended == 0 and self._from_minimum
