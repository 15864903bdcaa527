"""Replica: how the log of a slave grows, by the very bytes that the log of its master has.

What comes is pieces of the master's files, cut anywhere. Only whole records are written, in one
write, as a master writes them: then what a crash leaves of the log is what recovery knows, and a
checkpoint never vouches for half a record. So there are two ends:

    received   one past the last byte that has come; what is no whole record yet is in memory
    written    one past the last whole record (CommitLog.written): what is acknowledged, and asked
               for again behind a lost connection

From each record its entries in queues and index are made, which a batch publishes as one of a
master does: with SYNC_FLUSH behind the fsync.

A record that is damaged when it comes is asked for once more. If it comes with the same bytes
again, it is the master's log that is damaged, and it is taken as it is.

A record whose number is not the next of its queue is kept until the master has been asked about it
(mq.daemons.broker.store.queue_offset_gaps), and a record of an unknown topic until the topics of
the master have been copied (mq.daemons.broker.store.unknown_topics).
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.append import Appender
from mq.daemons.broker.store.batch import Batch
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.errors import StoreError
from mq.daemons.broker.store.flush import Flusher
from mq.daemons.broker.store.index import PUT, key_hash
from mq.daemons.broker.store.queue_offset_gaps import BeginAnew, QueueOffsetGap, QueueOffsetGaps
from mq.daemons.broker.store.queues import Queues, implausible
from mq.daemons.broker.store.records import (
    BadRecord,
    Record,
    keys_of,
    queue_tags_code,
    read_record,
)
from mq.daemons.broker.store.unknown_topics import UnknownTopic, UnknownTopicDetector
from mq.protocol.checksum import crc32
from mq.protocol.native import failures, native
from mq.protocol.properties import decode
from mq.protocol.record import BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, SMALLEST_RECORD

log = logging.getLogger(__name__)

# A record is in memory until all of it has come. Java stores messages of up to 4 MiB by default
# (maxMessageSize), and no peer takes a frame of over 16 MiB.
MOST_RECORD = 64 * 1024 * 1024


# Records that Python reads before the native path is asked again, where there is one.
_A_FEW = 16

_read_records: Any = getattr(native, "read_records", None)


class NotReplicated(StoreError):
    """What has come cannot be put into this store. The text says why."""


class Replica:
    """Grows a log.

    ``delays`` are milliseconds by delay level. ``begin_anew`` is that of a Numbering.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: Queues,
        appender: Appender,
        flusher: Flusher,
        delays: dict[int, int],
        begin_anew: BeginAnew,
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
        self._numbering = QueueOffsetGaps(commit_log, queues, begin_anew)
        self._makes_index = makes_index
        self._first: int | None = None  # where a log that has nothing is to begin
        self._rest = bytearray()  # of the record that has come in part
        self._wanted = 0  # bytes of it that have to be there before it is looked at again
        self._native = _read_records
        self._at_once = 1 << 30 if self._native is None else _A_FEW
        self._doubtful = (-1, 0)  # where a damaged record was, and the checksum of its bytes

    @property
    def has_nothing(self) -> bool:
        """Whether the log has no record, though it may have a file: a kill amid the first one, or
        amid a cut of everything, leaves that."""
        return self._log.written <= self._log.minimum

    @property
    def safe(self) -> int:
        """Up to where the log is as safe here as the flush mode promises."""
        if self.has_nothing:
            return 0
        return self._log.written if self._appender.await_flush is None else self._log.flushed

    @property
    def end(self) -> int:
        """One past the last whole record."""
        return self._log.written

    def begin(self) -> int:
        """Forget what is no whole record; returns from which physical offset on to ask, 0 for where
        the master has a new slave begin."""
        self._rest = bytearray()
        self._wanted = 0
        self._first = None
        self._numbering.forget()
        self.topics.forget()
        self.received = self._log.written
        return 0 if self.has_nothing else self.received

    def receive(self, offset: int, data: bytes) -> None:
        """Put bytes of the master's log, which belong at a physical offset, behind those received.

        Raises NotReplicated if they do not belong there or are no log of this store, OSError if
        they cannot be written. What was whole before is stored; `begin` goes on behind it. Where
        there is a `doubt` then, who calls asks the master, and gives no more before.
        """
        if self._flusher.halt is not None:
            raise NotReplicated(str(self._flusher.halt))
        self.check_next(offset)
        if offset != self.received:
            self._begin_at(offset)
        self.received += len(data)
        if self._rest:
            self._rest += data
            if self.doubt is not None or len(self._rest) < self._wanted:
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
        """What the master has to be asked about before more is stored."""
        return self.topics.doubt or self._numbering.doubt

    def queues_in_doubt(self) -> list[tuple[str, int]]:
        """As `QueueOffsetGaps.queues_in_doubt`."""
        return self._numbering.queues_in_doubt()

    def decide(self, firsts: Mapping[tuple[str, int], int | None]) -> None:
        """Go on behind a doubt, as `QueueOffsetGaps.decide`. Raises as `receive`."""
        self._numbering.decide(firsts)
        self._take_all(bytes(self._rest))

    def decide_number(self, physical: int | None, end: int) -> None:
        """Continue after a gap, as `QueueOffsetGaps.decide_number`. Raises as `receive`."""
        self._numbering.decide_number(physical, end)
        self._take_all(bytes(self._rest))

    def topics_copied(self, covered: int) -> None:
        """Go on after an unknown topic, as `UnknownTopicDetector.decide`. Raises as `receive`."""
        self.topics.decide(covered)
        self._take_all(bytes(self._rest))

    def check_next(self, offset: int) -> None:
        """Raises NotReplicated if bytes at a physical offset are not what comes next."""
        may_begin = self.has_nothing and self._first is None and not self._rest
        if offset != self.received and not may_begin:
            raise NotReplicated(
                f"the master sends what belongs at {offset}, and {self.received} comes next"
            )

    def check_heartbeat(self, offset: int) -> None:
        """The master has nothing more, and says which offset comes next. Raises NotReplicated."""
        if offset != self.received and not self.has_nothing:
            raise NotReplicated(
                f"the master goes on at {offset}, and {self.received} comes next here"
            )

    def _begin_at(self, offset: int) -> None:
        """A store that has nothing begins where the master does."""
        if offset % self._log.file_size:
            raise NotReplicated(
                f"the master begins at {offset}, where no file of this log begins: "
                f"mappedFileSizeCommitLog, here {self._log.file_size}, has to be the master's"
            )
        # Nothing is begun before a record has come that is one: what answers may be no master.
        self._first = self.received = offset

    def _take(self, received: bytes, start: int) -> int:
        """Store whole records of what has come, from a position on, of one file; returns how many
        bytes that were."""
        begin = self._log.written if self._first is None else self._first
        file_end = begin - begin % self._log.file_size + self._log.file_size
        if self._native is not None and self._appender.extend is None:
            taken = self._take_natively(received, start, begin, file_end)
            if taken:
                return taken
        data = memoryview(received)[start:]
        records: list[Record] = []
        nexts: dict[tuple[str, int], int] = {}  # numbers behind these, by queue
        position = 0
        problem: NotReplicated | None = None
        while len(data) - position >= BLANK.size:
            total, magic = BLANK.unpack_from(data, position)
            problem = self._problem_of(total, magic, begin + position, file_end)
            if problem is not None:
                break
            if len(data) - position < total:
                self._wanted = total  # what is before it goes now
                break
            if magic != MAGIC_BLANK:
                try:
                    record = self._read(data, position, total, begin + position)
                    if record is not None:
                        self.topics.check(record)
                    if self.doubt is not None:
                        break
                    if record is not None and not self._numbering.is_next(record, nexts):
                        if (record.topic, record.queue_id) in nexts:
                            break  # what is before it goes now
                        record = self._numbered(record, data[position : position + total])
                except NotReplicated as error:
                    problem = error
                    break
                if self.doubt is not None:
                    break
                if record is not None:
                    records.append(record)
                    if record.is_queued:
                        nexts[record.topic, record.queue_id] = self._numbering.next_of(record)
            position += total
            if begin + position == file_end or len(records) == self._at_once:
                break
        else:
            self._wanted = BLANK.size
        if position:
            self._put(data[:position], records)
        if problem is not None:
            raise problem
        return position

    def _take_natively(self, data: bytes, start: int, begin: int, file_end: int) -> int:
        """The same for those that are as records usually are, of queues that are there."""
        assert self._native is not None
        try:
            read = self._native(data, start, begin, file_end - begin, 0)
        except failures:  # it has changed nothing
            log.exception("records are read by Python: the native path has failed")
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
        """What is wrong with the head of a record."""
        left = file_end - physical
        if magic == MAGIC_BLANK:
            is_right = total == left
        else:
            is_right = magic in (MAGIC_V1, MAGIC_V2) and SMALLEST_RECORD <= total <= left
        if not is_right:
            return NotReplicated(
                f"what the master has at {physical} is no record of a log with files of "
                f"{self._log.file_size} bytes (size {total}, magic {magic & 0xFFFFFFFF:#x}): "
                f"either its mappedFileSizeCommitLog is another, or its log is damaged there"
            )
        if total > MOST_RECORD:
            return NotReplicated(
                f"the record at {physical} has {total} bytes, more than the {MOST_RECORD} that a "
                f"slave keeps in memory"
            )
        return None

    def _read(self, data: memoryview, position: int, total: int, physical: int) -> Record | None:
        """The record at a position; None if it is damaged, and so with the master."""
        try:
            return read_record(data, position, physical)
        except BadRecord as error:
            self._check_comes_again(physical, data[position : position + total], str(error))
        try:
            return read_record(data, position, physical, check_body=False)
        except BadRecord:
            return None

    def _numbered(self, record: Record, data: memoryview) -> Record:
        """A record as the master says that it is; one that it has not been asked about is in doubt.

        Raises NotReplicated the first time that a wrong one comes so.
        """
        if not self._numbering.is_wrong(record):
            self._numbering.doubts(record)
            return record
        self._check_comes_again(record.physical, data, "its queue offset is wrong")
        return self._numbering.right(record)

    def _check_comes_again(self, physical: int, data: memoryview, why: str) -> None:
        """Raises NotReplicated if a damaged record comes for the first time with these bytes."""
        doubtful = physical, crc32(data)
        if doubtful != self._doubtful:
            self._doubtful = doubtful
            raise NotReplicated(
                f"the record at {physical} is damaged: {why}; it is asked for once more"
            ) from None
        log.error("the master has a damaged record at %d: %s", physical, why)

    def _put(self, data: memoryview, records: list[Record]) -> None:
        """Write whole records, and publish them or have them flushed. Raises OSError."""
        self._begin_log()
        begin = self._log.written
        self._write(data)
        self._publish(self._batches(begin, self._log.written, records))

    def _begin_log(self) -> None:
        """Have a log that has nothing begin where its first record belongs. Raises OSError."""
        if self._first is not None:
            self._log.begin_at(self._first)  # what a checkpoint vouches for is there
            self._first = None

    def _write(self, data: memoryview) -> None:
        """Put bytes at the end of the log. Raises OSError."""
        commit_log, appender = self._log, self._appender
        begin = commit_log.position
        if not commit_log.files or commit_log.files[-1].end == begin:
            commit_log.add_file()
        commit_log.write(data, begin)
        end = begin + len(data)
        commit_log.position = commit_log.written = end
        if end > appender.look_from:
            appender.look_from = appender.look_ahead()

    def _publish(self, batches: Iterable[Batch]) -> None:
        appender = self._appender
        for batch in batches:
            if appender.await_flush is None:
                appender.publisher.publish(batch)
            else:
                appender.await_flush(batch)
        appender.on_written()

    def _batches(self, begin: int, end: int, records: list[Record]) -> list[Batch]:
        """What is to be published: the index has one second for all keys of a batch."""
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
            # The first of a queue whose older messages this log does not have; or some are missing.
            readable = queue.readable
            if not queue.restore(record.queue_offset, entry):
                log.error(
                    "%r: the message at %d has its queue offset %d already, or far too high a one",
                    *(queue, record.physical, record.queue_offset),
                )
                return
            queue.readable = max(readable, queue.minimum)  # until it is published
        queue.written = queue.appended
        queue.put_bytes += record.size
        batch.touched[queue] = queue.appended
