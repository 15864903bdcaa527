"""Append, the hot path of the store: messages become records, records a batch, a batch one write.

Everything runs on the event loop, so no lock is needed and offsets are given out in plain order.
What is appended in one turn of the loop makes one batch:

    append      give out offsets, keep the record's parts in memory
    commit      at the end of the turn: one write for all of them
    publish     move the queues' ends over them, send the replies, wake the long polls

With ASYNC_FLUSH a batch is published as soon as it is written. With SYNC_FLUSH the flusher
publishes it once an fsync has covered it. So a reply never leaves before what the flush mode
promises, and no consumer reads what could still be lost. When a write fails, the batch is taken
back as if it had never come: offsets, entries and the bytes that did get written.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import accumulate, count

from mq.client.machine import clock
from mq.daemons.broker.store import layout, waiters
from mq.daemons.broker.store.batch import (
    Batch,
    BatchedMessage,
    Extend,
    Packed,
)
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.index import PUT, key_hash
from mq.daemons.broker.store.publishing import Publisher
from mq.daemons.broker.store.torn_records import ended, looks_torn
from mq.daemons.broker.store.waiters import OnStored, Replies, ReplySink
from mq.protocol.checksum import crc32
from mq.protocol.codes import ResponseCode
from mq.protocol.flags import SysFlag
from mq.protocol.record import (
    BLANK,
    CRC_MASK,
    IPV4_HOST,
    MAGIC_BLANK,
    MAGIC_V1,
    RECORD_HEAD,
    around_common,
    common,
    part,
)

log = logging.getLogger(__name__)

# Bound to module names, because a lookup costs as much as the arithmetic around it.
_pack_head = RECORD_HEAD.pack
_pack_entry = layout.ENTRY.pack
_pack_put = PUT.pack
_HEAD_SIZE = RECORD_HEAD.size
_ROOM = layout.END_OF_FILE_ROOM
_MAGIC = MAGIC_V1

_SECTOR, _UNWRITTEN = layout.SECTOR, layout.UNWRITTEN
_PARTS = 4  # of a record in a batch: head, body, topic, properties
# Bytes for records that are packed elsewhere, until they are written. With less than the least,
# more than nearly all requests become, the open batch is written at once.
_PACKED_AT_ONCE = 2 * 1024 * 1024
_LEAST_ROOM = 1024 * 1024


class Appender:
    """Puts messages into the log.

    ``refusal`` is why no message is taken at present, None while they are. ``await_flush`` takes a
    written batch that may not be published before an fsync; None has ``publisher`` do it at once.
    ``look_ahead`` is called when the log has grown beyond ``look_from``; it returns the next.
    ``on_written`` is called when the log has grown, before anybody is answered.
    Each of ``before_turn_ends`` is called, in their order, where something was appended or
    `open_turn` called, to append what was put off.
    ``extend`` may put more about a message into its queue's extension: it gets queue, tags code,
    store timestamp and ``properties_field``, and gives the tags code of the entry.
    """

    def __init__(
        self, commit_log: CommitLog, store_host: bytes, extend: Extend | None = None
    ) -> None:
        self.refusal: StoreRefused | None = None
        self.await_flush: Callable[[Batch], None] | None = None
        self.on_written: Callable[[], None] = lambda: None
        self.before_turn_ends: list[Callable[[], None]] = []
        self.publisher = Publisher()
        self.look_ahead: Callable[[], int] = lambda: 1 << 63
        self.look_from = 0
        self.extend = extend
        self.store_host = store_host
        self.failed_writes = 0
        self._log = commit_log
        self._refusals: dict[str, StoreRefused] = {}
        self._batch = Batch(commit_log.position)
        self._memory: memoryview | None = None  # for records of the open batch
        self._used = 0  # bytes of it
        self._file_end = commit_log.files[-1].end if commit_log.files else 0
        self._scheduled = False
        self._uncleared = -1  # from here on the log has bytes of messages that were refused
        self._sys_flag = SysFlag.STORE_HOST_V6 if len(store_host) != IPV4_HOST else 0

    def refuse(self, cause: str, refusal: StoreRefused) -> None:
        """Take no messages until `accept` is called for the same cause."""
        self._refusals[cause] = refusal
        self.refusal = next(iter(self._refusals.values()))

    @property
    def causes(self) -> frozenset[str]:
        """For what messages are refused now."""
        return frozenset(self._refusals)

    def accept(self, cause: str) -> None:
        """That cause to refuse messages is gone."""
        self._refusals.pop(cause, None)
        self.refusal = next(iter(self._refusals.values()), None)

    def append(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties_field: bytes,
        *,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        tags_code: int = 0,
    ) -> int:
        """Put a message at the end of its queue and return its physical offset.

        ``properties_field`` is the properties' text with its i16 length before it. Nothing is on
        disk when this returns: use `reply_when_stored` or `call_when_stored` in the same turn.

        Raises StoreRefused when no message is taken, or this one does not fit in a log file, or a
        recovery would take it for torn.
        """
        if self.refusal is not None:
            raise self.refusal
        if len(properties_field) > _SECTOR and _UNWRITTEN in properties_field:
            raise looks_torn()
        if not properties_field[-1]:
            properties_field = ended(properties_field)
        topic_field = queue.topic_field
        size = _HEAD_SIZE + len(body) + len(topic_field) + len(properties_field)
        if len(born_host) != IPV4_HOST or self._sys_flag:
            size += len(born_host) + len(self.store_host) - 2 * IPV4_HOST
        batch = self._batch
        if batch.end + size + _ROOM > self._file_end:
            self.reserve(size)
            batch = self._batch
        position = batch.end
        if not batch.parts:
            self._open(batch)
        head = (
            size,
            _MAGIC,
            crc32(body) & CRC_MASK,
            queue.queue_id,
            flag,
            queue.appended,
            position,
            sys_flag,
            born_timestamp,
            born_host,
            batch.timestamp,
            self.store_host,
            reconsume_times,
            prepared_offset,
            len(body),
        )
        # What may raise comes first: a record and its entry are both there, or neither is.
        if self.extend is not None:
            tags_code = self.extend(queue, tags_code, batch.timestamp, properties_field)
        entry = _pack_entry(position, size, tags_code)
        if len(born_host) == IPV4_HOST and not self._sys_flag:
            batch.parts += (_pack_head(*head), body, topic_field, properties_field)
        else:
            batch.parts += (self._pack_any_head(head), body, topic_field, properties_field)
        batch.end = position + size
        queue.append(entry)
        queue.put_bytes += size
        batch.touched[queue] = queue.appended
        return position

    def append_batch(
        self,
        queue: ConsumeQueue,
        messages: Sequence[BatchedMessage],
        *,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> tuple[list[int], int]:
        """Put messages at the end of a queue, all or none, into one file; let their keys find them.

        Returns their physical offsets, and the queue offset of the first. As `append` for each of
        them, without what is the same for all. Raises StoreRefused.
        """
        if self.refusal is not None:
            raise self.refusal
        if not all(field[-1] for _, field, *_ in messages):
            messages = [
                (body, ended(field), flag, code, keys) for body, field, flag, code, keys in messages
            ]
        host, topic_field = self.store_host, queue.topic_field
        fixed = _HEAD_SIZE + len(topic_field) + len(born_host) + len(host) - 2 * IPV4_HOST
        sizes = [fixed + len(body) + len(field) for body, field, *_ in messages]
        total = sum(sizes)
        self.reserve(total)
        batch = self._batch
        if not batch.parts:
            self._open(batch)
        shared = common(len(born_host), len(host)).pack(
            self._with_hosts(sys_flag, born_host),
            *(born_timestamp, born_host, batch.timestamp, host, reconsume_times, 0),
        )
        pack_head = around_common(len(shared)).pack
        # Kept apart until nothing can raise any more: all are there, or none is.
        parts: list[bytes] = []
        keyed = bytearray()
        entries, extend = [], self.extend
        queue_id, first = queue.queue_id, queue.appended
        physicals = list(accumulate(sizes, initial=batch.end))
        end = physicals.pop()
        for offset, position, size, (body, field, flag, code, keys) in zip(
            count(first), physicals, sizes, messages, strict=False
        ):
            if len(field) > _SECTOR and _UNWRITTEN in field:
                raise looks_torn()
            crc = crc32(body) & CRC_MASK
            head = pack_head(size, _MAGIC, crc, queue_id, flag, offset, position, shared, len(body))
            parts += (head, body, topic_field, field)
            if extend is not None:
                code = extend(queue, code, batch.timestamp, field)
            entries.append(_pack_entry(position, size, code))
            for key in keys:
                keyed += _pack_put(key, position)
        batch.parts += parts
        batch.keyed += keyed
        batch.end = end
        queue.append_all(entries)
        queue.put_bytes += total
        batch.touched[queue] = queue.appended
        return physicals, first

    def place(self) -> tuple[int, memoryview, int] | None:
        """Where records go that are packed elsewhere: physical offset, memory for as many as there
        is room for, and their store timestamp. None if none can be taken so.

        What is put there is for `append_packed`, before anything else is appended.
        """
        if self.refusal is not None or self.extend is not None or self._sys_flag:
            return None
        if self._memory is None:
            self._memory = memoryview(bytearray(_PACKED_AT_ONCE))
        elif _PACKED_AT_ONCE - self._used < _LEAST_ROOM:
            self.commit()
            if self.refusal is not None:
                return None
        batch = self._batch
        timestamp = batch.timestamp if batch.parts else clock.milliseconds()
        room = max(0, self._file_end - batch.end - _ROOM)
        return batch.end, self._memory[self._used : self._used + room], timestamp

    def append_packed(self, packed: Packed, timestamp: int) -> None:
        """Put messages at the end of their queues; they have been packed for `place`."""
        assert self._memory is not None
        batch = self._batch
        if not batch.parts:
            self._open(batch)
            batch.timestamp = timestamp
        size, touched, items, messages = packed
        behind = self._used + size
        if batch.packed and batch.packed_behind == len(batch.parts):
            batch.parts[-1] = self._memory[batch.packed_begin : behind]
        else:
            batch.parts.append(self._memory[self._used : behind])
            batch.packed += 1
            batch.packed_begin, batch.packed_behind = self._used, len(batch.parts)
        self._used = behind
        batch.messages += messages
        batch.end += size
        batch.keyed += items
        for queue, number, entries, queue_size in touched:
            queue.append_packed(entries, number)
            queue.put_bytes += queue_size
            batch.touched[queue] = queue.appended

    @property
    def will_end_turn(self) -> bool:
        """Whether `before_turn_ends` are going to be called in this turn of the loop."""
        return self._scheduled

    def open_turn(self) -> None:
        """Have them called, whether or not something is appended."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.end_turn)

    def batch_timestamp(self) -> int:
        """The store timestamp, in ms, that a message appended in this turn gets."""
        batch = self._batch
        if not batch.parts:
            self._open(batch)
        return batch.timestamp

    def reserve(self, size: int) -> None:
        """Make sure that so many bytes, records of one batch message, lie in one file.

        Raises StoreRefused if that cannot be, or if what was appended before cannot be written.
        """
        if size + _ROOM > self._log.file_size:
            raise StoreRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a message of {size} bytes does not fit in a log file of "
                f"{self._log.file_size} bytes (mappedFileSizeCommitLog)",
            )
        while self._batch.end + size + _ROOM > self._file_end:
            if not self._batch.parts:
                self._next_file()
                return
            # Who puts two that belong together must not have the second stored without the first.
            # And where what that write left in the log is cleared later, this would be, too.
            refusal = self.commit() or self.refusal
            if refusal is not None:
                raise refusal
            # Who waited for what is stored now may have put more: a pop puts a check point.

    def index(self, topic: str, keys: tuple[str, ...], position: int) -> None:
        """Let the message just appended be found by these keys."""
        self.index_hashes([key_hash(topic, key) for key in keys], position)

    def index_hashes(self, hashes: Sequence[int], position: int) -> None:
        """Let the message just appended be found by the keys with these hashes."""
        keyed = self._batch.keyed
        for hashed in hashes:
            keyed += _pack_put(hashed, position)

    def reply_when_stored(self, sink: ReplySink, frame: bytes, promptly: bool = False) -> None:
        """Send a reply frame, or several, once what was just appended is stored as the flush mode
        promises.

        ``promptly`` is for a sender that said WAIT=false: written is enough for it.
        """
        batch = self._batch
        (batch.prompt_replies if promptly else batch.replies).append((sink, frame))

    def reply_all_when_stored(self, replies: Replies, prompt_replies: Replies) -> None:
        """The same for frames of several senders, of whom some said WAIT=false."""
        self._batch.replies += replies
        self._batch.prompt_replies += prompt_replies

    def call_when_stored(self, callback: OnStored) -> None:
        """Call back likewise, with None or with why the message was not stored."""
        self._batch.callbacks.append(callback)

    def call_when_answered(self, callback: OnStored) -> None:
        """Call back when a sender of what was just appended would be answered: with SYNC_MASTER a
        slave has it by then, or the refusal says that none has."""
        self._batch.answers.append(callback)

    def commit(self) -> StoreRefused | None:
        """Write the open batch, and publish it or have it flushed; returns why if that cannot be
        written."""
        self._scheduled = False
        batch = self._batch
        if not batch.parts:
            return None
        self._batch = Batch(batch.end)
        self._used = 0
        parts = batch.parts
        try:
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            self._log.write(data, batch.start)
        except OSError as error:
            return self._take_back(batch, error)
        batch.messages += (len(parts) - batch.packed) // _PARTS
        parts.clear()
        self._log.position = self._log.written = batch.end
        if batch.end > self.look_from:
            self.look_from = self.look_ahead()
        for queue, end in batch.touched.items():
            queue.written = end
        publisher = self.publisher
        if publisher.slaves is not None and (batch.replies or batch.answers):
            publisher.slaves.written(batch)
        self.on_written()
        if batch.prompt_replies:
            waiters.send(batch.prompt_replies)
            batch.prompt_replies.clear()
        if self.await_flush is None:
            publisher.publish(batch)
        else:
            self.await_flush(batch)
        return None

    def _open(self, batch: Batch) -> None:
        batch.timestamp = clock.milliseconds()
        self.open_turn()

    def end_turn(self) -> None:
        """Append what was put off, and write the open batch with it."""
        for defer in self.before_turn_ends:
            try:
                defer()
            except Exception:
                waiters.log_failure("what was put off to the end of a turn failed")
        self.commit()

    def _next_file(self) -> None:
        """Close the last file with a blank and begin another."""
        commit_log = self._log
        try:
            if commit_log.files and commit_log.position < self._file_end:
                left = self._file_end - commit_log.position
                last = commit_log.files[-1]
                blank = BLANK.pack(left, MAGIC_BLANK)
                last.write(blank, commit_log.position - last.start)
                commit_log.position = commit_log.written = self._file_end
                # At once: without a next file, a small record must not go where the blank is.
                self._batch = Batch(self._file_end)
            file = commit_log.add_file()
        except OSError as error:
            raise self._refused(error) from error
        self._file_end = file.end
        self._batch = Batch(commit_log.position)

    def _take_back(self, batch: Batch, error: OSError) -> StoreRefused:
        self.failed_writes += 1
        refusal = self._refused(error)
        log.error("%s", refusal, extra={"failure": "commit log writes"})
        for queue in batch.touched:
            queue.undo_unwritten()
        self._batch = Batch(batch.start)
        file = self._log.files[-1]
        try:
            file.clear_after(batch.start - file.start)
        except OSError as second:
            # The bytes of refused messages are still in the log, and a restart would find them.
            self._uncleared = batch.start
            self.refuse("log", self._refused(second))
        self.publisher.fail(batch, refusal)
        return refusal

    def clear_again(self) -> None:
        """Take out of the log what could not be taken out of it, and then messages again."""
        if self._uncleared < 0:
            return
        file = self._log.files[-1]
        try:
            file.clear_after(self._uncleared - file.start)
        except OSError as error:
            self.refuse("log", self._refused(error))
            return
        self._uncleared = -1
        self.accept("log")
        log.warning("the commit log can be written again")

    def _refused(self, error: OSError) -> StoreRefused:
        return StoreRefused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"store refused: cannot write the commit log: {error}",
        )

    def _with_hosts(self, sys_flag: int, born_host: bytes) -> int:
        """A system flag that says which families the hosts of a record are of."""
        if len(born_host) != IPV4_HOST:
            sys_flag |= SysFlag.BORN_HOST_V6
        return sys_flag | self._sys_flag

    def _pack_any_head(self, head: tuple[int | bytes, ...]) -> bytes:
        """A record's head when one of its hosts is an IPv6 address."""
        born_host, store_host = head[9], head[11]
        assert isinstance(born_host, bytes) and isinstance(store_host, bytes)
        sys_flag = self._with_hosts(int(head[7]), born_host)
        whole = part("size", "body_length", len(born_host), len(store_host))
        return whole.pack(*head[:7], sys_flag, *head[8:])
