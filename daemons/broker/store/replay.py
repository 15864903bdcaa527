"""Replay: the records of the log are read forward and put into queues and index anew.

Where there is a native path it reads the records that are as most are, many at once. The others
go one by one, in their order: delayed ones, halves of transactions, those of hosts with IPv6
addresses, of a queue whose numbers do not go up by one, and whatever may be damage.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.errors import Damage
from mq.daemons.broker.store.index import PUT, Index, key_hash
from mq.daemons.broker.store.mapped_file import MappedFile
from mq.daemons.broker.store.queue_generations import QueueGenerations
from mq.daemons.broker.store.queues import Queues, implausible
from mq.daemons.broker.store.records import (
    BadRecord,
    EndOfLog,
    Record,
    UnreadableRecord,
    keys_of,
    queue_tags_code,
    read_file,
)
from mq.daemons.broker.store.resync import RecordSearch
from mq.daemons.broker.store.windows import LogReader
from mq.protocol.native import failures, native
from mq.protocol.properties import decode

log = logging.getLogger(__name__)

_read_records: Any = getattr(native, "read_records", None)

# Bytes of the log that the native path gets at once; a record that is longer is Python's.
_PIECE = 256 * 1024
# Records that go one by one before the native path is asked again, where there is one.
_A_FEW = 16


class Replay:
    """One over a log whose queues and index know nothing from the offset on that it begins at.

    ``delays`` are milliseconds by delay level. ``check`` raises BadRecord for a record that is none
    though its checksum is right, and is asked before it counts; only for one with a zero in topic
    or properties it has something to find. ``on_damage`` is told of each record that is left out,
    by its physical offset and the reason. ``on_hole`` is called for each unreadable part
    of the log that is followed by whole records; replay continues after it.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: Queues,
        index: Index | None,
        delays: dict[int, int],
        lives: QueueGenerations,
        check: Callable[[Record], None],
        on_damage: Callable[[int, str], None],
        on_hole: Callable[[Damage], None],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._delays = delays
        self._lives = lives
        self._check = check
        self._on_damage = on_damage
        self._on_hole = on_hole
        self._seen: set[ConsumeQueue] = set()
        self._from_minimum = False
        self._native = _read_records
        #: Queues whose files disagree with the log.
        self.suspect: dict[ConsumeQueue, None] = {}
        self.records = 0
        self.end = 0  # behind the last record

    def run(self, start: int) -> str:
        """Read from a physical offset to `end`; returns why what follows there is no record, "" if
        nothing was written there. Raises OSError."""
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
        """The records that are to be put one by one; those between them are put meanwhile. Raises
        BadRecord."""
        position = self.end
        reader: LogReader | None = None
        while (file := self._log.file_at(position)) is not None:
            if self._native is not None:
                position = self._put_usual(file, position)
            if reader is None or reader.start != file.start:
                reader = LogReader(file)
            most = 1 << 60 if self._native is None else _A_FEW
            count = 0
            try:
                for record in islice(read_file(reader, position - file.start), most):
                    yield record
                    position = record.physical + record.size
                    count += 1
            except EndOfLog:
                return
            except UnreadableRecord as error:
                position = self._pass_over(reader, position, error)
                continue
            if count < most:
                position = file.end

    def _pass_over(self, reader: LogReader, position: int, error: UnreadableRecord) -> int:
        """The offset of the next whole record after an unreadable one.

        Raises the error if there is none: then the log ends before the unreadable record.
        """
        found = RecordSearch(reader).next_record(position - reader.start + 1)
        following = reader.end if found is None else reader.start + found
        if found is None and not self._goes_on_at(following):
            raise error
        size = following - position
        self._on_hole(Damage(str(reader.path), position, size, str(error), is_cut=False))
        return following

    def _goes_on_at(self, physical: int) -> bool:
        """Whether a whole record begins at an offset, where a file of the log may begin."""
        file = self._log.file_at(physical)
        try:
            return file is not None and next(read_file(LogReader(file), 0), None) is not None
        except (BadRecord, EndOfLog):
            return False

    # natively -------------------------------------------------------------------------------

    def _put_usual(self, file: MappedFile, position: int) -> int:
        """Put the records from an offset on that are as most are; returns where others begin."""
        while True:
            # Not as memory: it reaches behind what was written, where a full tmpfs has none.
            data = file.read_part(position - file.start, _PIECE)
            taken = self._put_piece(data, position)
            if not taken:
                return position
            position += taken

    def _put_piece(self, data: bytes, physical: int) -> int:
        """Put those with which bytes at an offset begin; returns how many bytes they are."""
        taken, room, index = 0, len(data), self._index
        while self._native is not None and taken < room:
            begin = physical + taken
            origin = 0 if index is None else index.origin
            try:
                found = self._native(data, taken, begin, room, origin)
            except failures:  # it has changed nothing
                log.exception("the log is read by Python: the native path has failed")
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
        """Put what the native path has read of so many bytes at an offset, unless Python has to
        look at them: some records of a queue were deleted with it and some not, say."""
        index = self._index
        if index is not None and (begin <= index.end_offset or len(items) > index.room * PUT.size):
            return False
        covers = self._lives.covers
        kept = []
        for topic, queue_id, first, count, entries, _ in touched:
            if implausible(topic, queue_id, first + count - 1):
                return False
            if not covers(topic, queue_id, begin):
                kept.append((topic, queue_id, first, entries))
            elif not covers(topic, queue_id, begin + size):
                return False
            else:
                self._lives.left_out(topic, queue_id, begin)
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
        if record.is_queued and not self._is_gone(record):
            code = queue_tags_code(record.topic, properties, record.store_timestamp, self._delays)
            entry = layout.ENTRY.pack(record.physical, record.size, code)
            self._restore(record.topic, record.queue_id, record.queue_offset, entry)
        if self._index is not None and record.is_indexed:
            keys = keys_of(properties)
            if keys and record.physical > self._index.end_offset:
                items = [PUT.pack(key_hash(record.topic, key), record.physical) for key in keys]
                self._index.put(b"".join(items), record.store_timestamp)

    def _is_gone(self, record: Record) -> bool:
        where = record.topic, record.queue_id, record.physical
        if not self._lives.covers(*where):
            return False
        self._lives.left_out(*where)
        return True

    def _restore(self, topic: str, queue_id: int, first: int, entries: bytes) -> None:
        """Give a queue entries from a number on, unless its files disagree with the log."""
        queue = self._queues.get_or_make(topic, queue_id)
        if queue not in self._seen:
            self._seen.add(queue)
            if queue.appended != first and not self._begins_here(queue):
                self.suspect[queue] = None
        if queue not in self.suspect and not queue.restore_all(first, entries):
            self.suspect[queue] = None

    def _begins_here(self, queue: ConsumeQueue) -> bool:
        """A queue whose older messages, if it had any, went with log files that are gone."""
        return queue.appended == 0 and self._from_minimum
