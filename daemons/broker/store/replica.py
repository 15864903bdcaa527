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

A record with queue offset 0 of a queue that has messages begins it anew: its topic was deleted at
the master and made again, or all of it had expired. Or one bit of the offset is wrong, which no
checksum covers, and the queue would be dropped for it. So from there on what comes is only kept
(`doubt`), until the master has said where the first messages of that topic's queues are: of a queue
that has begun anew nothing is left there before this record. It is not in the log here before that,
so no start finds it undecided. Likewise a record whose queue offset leaves a gap: messages may be
missing, or one bit is wrong, and all that follow would have no place in the queue here. The master
says whether it shows this message under that number. And one that belongs before the first that is
here: that one, which was believed, or this has a wrong number.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.append import Appender
from mq.daemons.broker.store.batch import Batch
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.errors import StoreError
from mq.daemons.broker.store.flush import Flusher
from mq.daemons.broker.store.index import PUT, key_hash
from mq.daemons.broker.store.queues import Queues
from mq.daemons.broker.store.records import (
    BadRecord,
    Record,
    keys_of,
    queue_tags_code,
    read_record,
)
from mq.daemons.broker.store.recovery import implausible
from mq.protocol.checksum import crc32
from mq.protocol.native import native
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


class Doubt(NamedTuple):
    """A record says that it is another of its queue than comes next, 0 where that begins anew, and
    may be wrong."""

    topic: str
    queue_id: int
    physical: int
    number: int

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.queue_id


class Replica:
    """Grows a log.

    ``delays`` are milliseconds by delay level. ``begin_anew`` lets queues, by topic and id,
    begin anew with the records at physical offsets; it raises OSError.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: Queues,
        appender: Appender,
        flusher: Flusher,
        delays: dict[int, int],
        begin_anew: Callable[[Mapping[tuple[str, int], int]], None],
        *,
        makes_index: bool,
    ) -> None:
        self.received = commit_log.written
        self._log = commit_log
        self._queues = queues
        self._appender = appender
        self._flusher = flusher
        self._delays = delays
        self._begin_anew = begin_anew
        self._makes_index = makes_index
        self._first: int | None = None  # where a log that has nothing is to begin
        self._rest = bytearray()  # of the record that has come in part
        self._wanted = 0  # bytes of it that have to be there before it is looked at again
        self._at_once = 1 << 30 if _read_records is None else _A_FEW
        self._doubtful = (-1, 0)  # where a damaged record was, and the checksum of its bytes
        self.doubt: Doubt | None = None  # nothing more is stored before the master has been asked
        # Where a record is of which the master says that its number is wrong, or right.
        self._misnumbered = self._believed = -1

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
        self._first = self.doubt = None
        self._misnumbered = self._believed = -1
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

    def queues_in_doubt(self) -> list[tuple[str, int]]:
        """Of the topic that the doubt is about, by topic and id, those that have messages: where
        one begins anew, mostly all of them do."""
        assert self.doubt is not None
        queues = self._queues.of_topic(self.doubt.topic)
        return [(queue.topic, queue.queue_id) for queue in queues if queue.appended]

    def decide(self, firsts: Mapping[tuple[str, int], int | None]) -> None:
        """Go on behind a doubt: the physical offsets of the first messages that queues show at the
        master, None of one that shows none. Raises as `receive`.

        Java leaves the new messages out of its slave's queue as long as they have the offsets of
        old ones (ConsumeQueue.putMessagePositionInfo).
        """
        doubt, self.doubt = self.doubt, None
        assert doubt is not None
        # A master shows what it has in the order of its log, and not all that it has: of a queue
        # that shows nothing only older messages than what it shows elsewhere are known to be gone.
        # One that has gone unseen is in doubt itself when it begins anew.
        shown = max((first for first in firsts.values() if first is not None), default=0)
        gone = {
            key: doubt.physical
            for key, first in firsts.items()
            if (
                key == doubt.key or self._begin_of(*key) < shown
                if first is None
                else first >= doubt.physical
            )
        }
        if gone:
            log.info("%d queues of %s begin anew, as at the master", len(gone), doubt.topic)
            self._begin_anew(gone)
        if doubt.key not in gone:
            self._misnumbered = doubt.physical
        self._take_all(bytes(self._rest))

    def decide_number(self, physical: int | None, end: int) -> None:
        """Go on behind a doubt about a gap: where the message lies that the master shows under that
        number, None if it shows none, and the number behind the last that it shows. Raises as
        `receive`."""
        doubt, self.doubt = self.doubt, None
        assert doubt is not None
        queue = self._queues.get(*doubt.key)
        assert queue is not None
        is_there = physical == doubt.physical
        if doubt.number < queue.minimum:
            self._decide_begin(doubt, end <= doubt.number if physical is None else is_there)
            return
        if physical is None:
            # Where it does not show the one that comes next here either, it may show both soon. Or
            # it shows all before this one, which it may show when a slave has it.
            is_right = end <= queue.appended or end == doubt.number
        else:
            is_right = is_there
        if is_right:
            self._believed = doubt.physical
        else:
            self._misnumbered = doubt.physical
        self._take_all(bytes(self._rest))

    def _decide_begin(self, doubt: Doubt, is_right: bool) -> None:
        """Go on behind a doubt about a record that belongs before the first of its queue: it was
        that one's number that is wrong, or it has no place."""
        if is_right:
            log.error("%s-%d: the number of its first message here is wrong", *doubt.key)
            self._begin_anew({doubt.key: doubt.physical})
        self._believed = doubt.physical
        self._take_all(bytes(self._rest))

    def _begin_of(self, topic: str, queue_id: int) -> int:
        """Where the first message of a queue lies here."""
        queue = self._queues.get(topic, queue_id)
        entry = None if queue is None else queue.entry(queue.minimum)
        return self._log.written if entry is None else entry[0]

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
        if _read_records is not None and self._appender.extend is None:
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
                    if record is not None and not self._is_next(record, nexts):
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
                        nexts[record.topic, record.queue_id] = self._next_of(record)
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
        size, touched, items, messages, timestamp = _read_records(
            data, start, begin, file_end - begin
        )
        if not messages:
            return 0
        found = []
        for topic, queue_id, first, *_ in touched:
            queue = self._queues.get(topic, queue_id)
            if queue is None or queue.appended != first:
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

    def _is_next(self, record: Record, nexts: Mapping[tuple[str, int], int]) -> bool:
        """Whether a record is the next of its queue, behind those that came with it, or the first
        that is here; one that has the number of an older one that is here is left out later."""
        if not record.is_queued or implausible(record):
            return True
        key = record.topic, record.queue_id
        if key in nexts:
            return record.queue_offset == nexts[key]
        queue = self._queues.get(*key)
        if queue is None or not queue.appended:
            return True
        return max(1, queue.minimum) <= record.queue_offset <= queue.appended

    def _next_of(self, record: Record) -> int:
        """The number that comes next in its queue behind a record that is to be stored."""
        queue = self._queues.get(record.topic, record.queue_id)
        return max(record.queue_offset + 1, 0 if queue is None else queue.appended)

    def _numbered(self, record: Record, data: memoryview) -> Record:
        """A record as the master says that it is; one that it has not been asked about is in doubt.

        Raises NotReplicated the first time that a wrong one comes so.
        """
        if record.physical == self._believed:
            return record
        queue = self._queues.get(record.topic, record.queue_id)
        assert queue is not None
        if record.physical != self._misnumbered:
            where = record.topic, record.queue_id, record.physical
            self.doubt = Doubt(*where, record.queue_offset)
            return record
        self._check_comes_again(record.physical, data, "its queue offset is wrong")
        return record._replace(queue_offset=queue.appended)

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
        why = implausible(record)
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
