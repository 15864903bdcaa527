"""Replica: the log of a slave, which grows by exactly the bytes of its master's log.

Data arrives in pieces of the master's files, split anywhere. Only whole records are written, in one
write, as a master writes them: then recovery knows every state that a crash may leave, and a
checkpoint never covers half a record. So there are two ends:

    received   one past the last byte that has arrived; an incomplete record is kept in memory
    written    one past the last whole record (CommitLog.written): what is acknowledged, and
               requested again after a lost connection

The entries of each record in queues and index are published by batch as on a master: with
SYNC_FLUSH after the fsync.

A record that arrives damaged is requested once more. If it arrives with the same bytes again, the
master's log is damaged, and the record is taken as it is.

A record whose queue offset is not the next of its queue is buffered until the master has been asked
about it (`queue_offset_gaps`), and a record of an unknown topic until the topics of the master have
been copied.

The replication connection carries records only. A slave copies topics and groups over another
connection, which may be seconds late. A record that is acknowledged before its topic is known here
would be lost to consumers if the master died. So replication stops before such a record (`doubt`)
until the master's topics and groups have been copied. A copy covers all records before the physical
offset at which the master's log ended when the copy started: a topic that the copy lacks has been
deleted since.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreError
from mq.daemons.broker.store.index.index import PUT, key_hash
from mq.daemons.broker.store.log.append import Appender
from mq.daemons.broker.store.log.batch import Batch
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.flush import Flusher
from mq.daemons.broker.store.log.records import (
    BadRecord,
    Record,
    keys_of,
    queue_tags_code,
    read_record,
)
from mq.daemons.broker.store.queue.queues import Queues, implausible
from mq.daemons.broker.store.replica.queue_offset_gaps import (
    QueueOffsetGap,
    QueueOffsetGaps,
    RestartQueues,
)
from mq.protocol.checksum import crc32
from mq.protocol.native import failures, native
from mq.protocol.properties import decode
from mq.protocol.record import BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, SMALLEST_RECORD


class UnknownTopic(NamedTuple):
    """A record belongs to a topic, or to a queue of it, that is not configured here."""

    topic: str
    queue_id: int
    physical: int


class UnknownTopicDetector:
    """Finds records of unknown topics. ``knows`` returns whether a queue is configured."""

    def __init__(self) -> None:
        self.knows: Callable[[str, int], bool] = lambda topic, queue_id: True
        self.doubt: UnknownTopic | None = None
        self._covered = -1  # the last copy covers all records before this physical offset

    def forget(self) -> None:
        """Restart for another connection."""
        self.doubt = None
        self._covered = -1

    def is_covered(self, topic: str, queue_id: int, physical: int) -> bool:
        """Whether a queue is configured here, or no longer exists at the master."""
        return physical < self._covered or self.knows(topic, queue_id)

    def check(self, record: Record) -> None:
        """Set `doubt` if the topic of a record has to be copied first."""
        place = record.topic, record.queue_id
        if (
            record.is_queued
            and not self.is_covered(*place, record.physical)
            and not implausible(*place, record.queue_offset)
        ):
            self.doubt = UnknownTopic(*place, record.physical)

    def decide(self, covered: int) -> None:
        """Resolve a doubt. A copy covers all records before a physical offset."""
        self.doubt = None
        self._covered = max(self._covered, covered)


log = logging.getLogger(__name__)

# A record is in memory until it has arrived completely. Java stores messages of up to 4 MiB by
# default (maxMessageSize), and no peer accepts a frame of over 16 MiB.
MOST_RECORD = 64 * 1024 * 1024


# Records that Python reads before the native path is tried again.
_PYTHON_RECORDS = 16

_read_records: Any = getattr(native, "read_records", None)


class NotReplicated(StoreError):
    """The received data cannot be put into this store. The text says why."""


class Replica:
    """Grows a log by the data of a master.

    ``delays`` are milliseconds by delay level. ``restart_queues`` is that of `QueueOffsetGaps`.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: Queues,
        appender: Appender,
        flusher: Flusher,
        delays: dict[int, int],
        restart_queues: RestartQueues,
        *,
        makes_index: bool,
    ) -> None:
        self.received = commit_log.written
        self.topics = UnknownTopicDetector()
        self._log = commit_log
        self._queues = queues
        self._appender = appender
        self._flusher = flusher
        self._delays = delays
        self._gaps = QueueOffsetGaps(commit_log, queues, restart_queues)
        self._makes_index = makes_index
        # start of a log without records, once the master has sent it
        self._first: int | None = None
        self._rest = bytearray()  # bytes of a record that has arrived in part
        self._needed = 0  # bytes of it that must be there before it is read again
        self._native = _read_records
        self._at_once = 1 << 30 if self._native is None else _PYTHON_RECORDS
        # physical offset of a damaged record, and the checksum of its bytes
        self._doubtful = (-1, 0)

    @property
    def has_nothing(self) -> bool:
        """Whether the log has no record. It may have a file: a kill during the first record, or
        during a truncation of everything, leaves that.
        """
        return self._log.written <= self._log.minimum

    @property
    def safe(self) -> int:
        """The offset up to which the log is as safe here as the flush mode guarantees."""
        if self.has_nothing:
            return 0
        return self._log.written if self._appender.await_flush is None else self._log.flushed

    @property
    def end(self) -> int:
        """One past the last whole record."""
        return self._log.written

    def begin(self) -> int:
        """Drop an incomplete record. Returns the physical offset from which to request data, 0 for
        where the master lets a new slave start.
        """
        self._rest = bytearray()
        self._needed = 0
        self._first = None
        self._gaps.forget()
        self.topics.forget()
        self.received = self._log.written
        return 0 if self.has_nothing else self.received

    def receive(self, offset: int, data: bytes) -> None:
        """Append bytes of the master's log, which start at a physical offset, to those received.

        Raises NotReplicated if they do not belong there or are not a log of this store, OSError if
        they cannot be written. Whole records before the error are stored; `begin` continues after
        them. If `doubt` is set afterwards, the caller has to ask the master before it passes more
        data.
        """
        if self._flusher.halt is not None:
            raise NotReplicated(str(self._flusher.halt))
        self.check_next(offset)
        if offset != self.received:
            self._begin_at(offset)
        self.received += len(data)
        if self._rest:
            self._rest += data
            if self.doubt is not None or len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
        self._take_all(data)

    def _take_all(self, data: bytes) -> None:
        taken = 0
        while size := self._take(data, taken):
            taken += size
        self._rest = bytearray(memoryview(data)[taken:])

    @property
    def doubt(self) -> QueueOffsetGap | UnknownTopic | None:
        """The question to the master that has to be answered before more is stored, or None."""
        return self.topics.doubt or self._gaps.doubt

    def queues_in_doubt(self) -> list[tuple[str, int]]:
        """As `QueueOffsetGaps.queues_in_doubt`."""
        return self._gaps.queues_in_doubt()

    def decide(self, firsts: Mapping[tuple[str, int], int | None]) -> None:
        """Continue after a doubt, as `QueueOffsetGaps.decide`. Raises as `receive`."""
        self._gaps.decide(firsts)
        self._take_all(bytes(self._rest))

    def decide_number(self, physical: int | None, end: int) -> None:
        """Continue after a doubt about a gap, as `QueueOffsetGaps.decide_number`. Raises as
        `receive`.
        """
        self._gaps.decide_number(physical, end)
        self._take_all(bytes(self._rest))

    def topics_copied(self, covered: int) -> None:
        """Continue after an unknown topic, as `UnknownTopicDetector.decide`. Raises as
        `receive`."""
        self.topics.decide(covered)
        self._take_all(bytes(self._rest))

    def check_next(self, offset: int) -> None:
        """Raise NotReplicated if bytes at a physical offset are not the next ones."""
        may_begin = self.has_nothing and self._first is None and not self._rest
        if offset != self.received and not may_begin:
            raise NotReplicated(
                f"the master sends data for offset {offset}, but {self.received} is next here"
            )

    def check_heartbeat(self, offset: int) -> None:
        """Check a heartbeat of a master that has nothing more: it has the next offset. Raises
        NotReplicated.
        """
        if offset != self.received and not self.has_nothing:
            raise NotReplicated(
                f"the master continues at {offset}, but {self.received} is next here"
            )

    def _begin_at(self, offset: int) -> None:
        """Start the log of a store without records where the master starts."""
        if offset % self._log.file_size:
            raise NotReplicated(
                f"the master starts at {offset}, where no file of this log starts: set "
                f"mappedFileSizeCommitLog, here {self._log.file_size}, to the master's value"
            )
        # The log is not created before a valid record arrives: the peer may not be a master.
        self._first = self.received = offset

    def _take(self, received: bytes, start: int) -> int:
        """Store the whole records of received data, from a position on, of one file; returns the
        number of bytes stored.
        """
        begin = self._log.written if self._first is None else self._first
        file_end = begin - begin % self._log.file_size + self._log.file_size
        if self._native is not None and self._appender.extend is None:
            taken = self._take_natively(received, start, begin, file_end)
            if taken:
                return taken
        data = memoryview(received)[start:]
        records: list[Record] = []
        nexts: dict[tuple[str, int], int] = {}  # next queue offsets after these records, by queue
        position = 0
        problem: NotReplicated | None = None
        while len(data) - position >= BLANK.size:
            total, magic = BLANK.unpack_from(data, position)
            problem = self._problem_of(total, magic, begin + position, file_end)
            if problem is not None:
                break
            if len(data) - position < total:
                self._needed = total  # the records before it are stored now
                break
            if magic != MAGIC_BLANK:
                try:
                    record = self._read(data, position, total, begin + position)
                    if record is not None:
                        self.topics.check(record)
                    if self.doubt is not None:
                        break
                    if record is not None and not self._gaps.is_next(record, nexts):
                        if (record.topic, record.queue_id) in nexts:
                            break  # the records before it are stored now
                        record = self._resolve_gap(record, data[position : position + total])
                except NotReplicated as error:
                    problem = error
                    break
                if self.doubt is not None:
                    break
                if record is not None:
                    records.append(record)
                    if record.is_queued:
                        nexts[record.topic, record.queue_id] = self._gaps.next_of(record)
            position += total
            if begin + position == file_end or len(records) == self._at_once:
                break
        else:
            self._needed = BLANK.size
        if position:
            self._put(data[:position], records)
        if problem is not None:
            raise problem
        return position

    def _take_natively(self, data: bytes, start: int, begin: int, file_end: int) -> int:
        """As `_take`, for ordinary records of existing queues."""
        assert self._native is not None
        try:
            read = self._native(data, start, begin, file_end - begin, 0)
        except failures:  # nothing was changed
            log.exception("the native path failed; reading records with Python")
            self._native, self._at_once = None, 1 << 30
            return 0
        size, touched, items, messages, timestamp = read
        if not messages:
            return 0
        found = []
        for topic, queue_id, first, *_ in touched:
            queue = self._queues.get(topic, queue_id)
            if queue is None or queue.appended != first:
                return 0
            if not self.topics.is_covered(topic, queue_id, begin + size):
                return 0
            found.append(queue)
        self._begin_log()
        self._write(memoryview(data)[start : start + size])
        batch = Batch(begin)
        batch.end, batch.messages, batch.timestamp = begin + size, messages, timestamp
        batch.keyed += items if self._makes_index else b""
        for queue, (_, _, _, count, entries, put_bytes) in zip(found, touched, strict=True):
            queue.append_packed(entries, count)
            queue.put_bytes += put_bytes
            batch.touched[queue] = queue.written = queue.appended
        self._publish((batch,))
        return int(size)

    def _problem_of(
        self, total: int, magic: int, physical: int, file_end: int
    ) -> NotReplicated | None:
        """Return the error in the head of a record, or None."""
        left = file_end - physical
        if magic == MAGIC_BLANK:
            is_right = total == left
        else:
            is_right = magic in (MAGIC_V1, MAGIC_V2) and SMALLEST_RECORD <= total <= left
        if not is_right:
            return NotReplicated(
                f"the master's data at {physical} is not a record of a log with files of "
                f"{self._log.file_size} bytes (size {total}, magic {magic & 0xFFFFFFFF:#x}): "
                f"either its mappedFileSizeCommitLog differs, or its log is damaged there"
            )
        if total > MOST_RECORD:
            return NotReplicated(
                f"the record at {physical} has {total} bytes, more than the {MOST_RECORD} that a "
                f"slave keeps in memory"
            )
        return None

    def _read(self, data: memoryview, position: int, total: int, physical: int) -> Record | None:
        """The record at a position; None if it is damaged at the master, too."""
        try:
            return read_record(data, position, physical)
        except BadRecord as error:
            self._check_repeated(physical, data[position : position + total], str(error))
        try:
            return read_record(data, position, physical, check_body=False)
        except BadRecord:
            return None

    def _resolve_gap(self, record: Record, data: memoryview) -> Record:
        """Return a record with its right queue offset according to the master; a record that the
        master was not asked about becomes the doubt.

        Raises NotReplicated the first time that a wrong one arrives.
        """
        if not self._gaps.is_wrong(record):
            self._gaps.doubts(record)
            return record
        self._check_repeated(record.physical, data, "its queue offset is wrong")
        return self._gaps.right(record)

    def _check_repeated(self, physical: int, data: memoryview, why: str) -> None:
        """Raise NotReplicated if a damaged record arrives with these bytes for the first time."""
        doubtful = physical, crc32(data)
        if doubtful != self._doubtful:
            self._doubtful = doubtful
            raise NotReplicated(
                f"the record at {physical} is damaged: {why}; requesting it again"
            ) from None
        log.error("the master has a damaged record at %d: %s", physical, why)

    def _put(self, data: memoryview, records: list[Record]) -> None:
        """Write whole records, and publish them or pass them to the flusher. Raises OSError."""
        self._begin_log()
        begin = self._log.written
        self._write(data)
        self._publish(self._batches(begin, self._log.written, records))

    def _begin_log(self) -> None:
        """Start a log without records where its first record belongs. Raises OSError."""
        if self._first is not None:
            self._log.begin_at(self._first)  # begin_at syncs the file
            self._first = None

    def _write(self, data: memoryview) -> None:
        """Append bytes to the log. Raises OSError."""
        commit_log, appender = self._log, self._appender
        begin = commit_log.position
        if not commit_log.files or commit_log.files[-1].end == begin:
            commit_log.add_file()
        commit_log.write(data, begin)
        end = begin + len(data)
        commit_log.position = commit_log.written = end
        if end > appender.growth_mark:
            appender.growth_mark = appender.on_growth()

    def _publish(self, batches: Iterable[Batch]) -> None:
        appender = self._appender
        for batch in batches:
            if appender.await_flush is None:
                appender.publisher.publish(batch)
            else:
                appender.await_flush(batch)
        appender.on_written()

    def _batches(self, begin: int, end: int, records: list[Record]) -> list[Batch]:
        """Split records into batches: the index stores one second for all keys of a batch."""
        batch = Batch(begin)
        batch.timestamp = self._appender.publisher.last_timestamp
        batches = [batch]
        for record in records:
            if record.store_timestamp // 1000 != batch.timestamp // 1000 and batch.messages:
                batch = Batch(batch.end)
                batches.append(batch)
            batch.timestamp = record.store_timestamp
            batch.messages += 1
            batch.end = record.physical + record.size
            self._dispatch(record, batch)
        batch.end = end
        return batches

    def _dispatch(self, record: Record, batch: Batch) -> None:
        why = implausible(record.topic, record.queue_id, record.queue_offset)
        if why:
            log.error("%s, at %d", why, record.physical)
            return
        properties = decode(record.properties) if record.properties else {}
        if record.is_queued:
            self._enqueue(record, properties, batch)
        if self._makes_index and record.is_indexed:
            for key in keys_of(properties):
                batch.keyed += PUT.pack(key_hash(record.topic, key), record.physical)

    def _enqueue(self, record: Record, properties: dict[str, str], batch: Batch) -> None:
        queue = self._queues.get_or_make(record.topic, record.queue_id)
        code = queue_tags_code(record.topic, properties, record.store_timestamp, self._delays)
        extend = self._appender.extend
        if extend is not None:
            raw = record.properties.encode()
            field = layout.SHORT.pack(len(raw)) + raw
            code = extend(queue, code, record.store_timestamp, field)
        entry = layout.ENTRY.pack(record.physical, record.size, code)
        if queue.appended == record.queue_offset:
            queue.append(entry)
        else:
            # The first message of a queue whose older messages this log does not have; or some are
            # missing.
            readable = queue.readable
            if not queue.restore(record.queue_offset, entry):
                log.error(
                    "%r: the message at %d has queue offset %d, which is taken or far too high",
                    *(queue, record.physical, record.queue_offset),
                )
                return
            queue.readable = max(readable, queue.minimum)  # until it is published
        queue.written = queue.appended
        queue.put_bytes += record.size
        batch.touched[queue] = queue.appended
