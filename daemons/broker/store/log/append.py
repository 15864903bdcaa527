"""Append, the hot path of the store: messages become records, records a batch, a batch one write.

Everything runs on the event loop, so no lock is needed and offsets are assigned in order. The
messages appended in one turn of the loop make one batch:

    append      assign offsets, keep the parts of the record in memory
    commit      at the end of the turn: one write for the whole batch
    publish     make the entries readable, send the replies, wake suspended requests

With ASYNC_FLUSH a batch is published as soon as it is written. With SYNC_FLUSH the flusher
publishes it after an fsync has covered it. So no reply is sent before the guarantee of the flush
mode holds, and no consumer reads a message that can still be lost. If a write fails, the whole
batch is undone: offsets, entries and the bytes that were already written.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import accumulate, count

from mq.client.machine import clock
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.index.index import PUT, key_hash
from mq.daemons.broker.store.log.batch import (
    Batch,
    BatchedMessage,
    Extend,
    OnStored,
    Packed,
    Replies,
    ReplySink,
    log_failure,
    send,
)
from mq.daemons.broker.store.log.commit_log import CommitLog
from mq.daemons.broker.store.log.publishing import Publisher
from mq.daemons.broker.store.log.records import ended, looks_torn
from mq.daemons.broker.store.queue.consume_queue import ConsumeQueue
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

# Bound to module names, because an attribute lookup costs as much as the arithmetic around it.
_pack_head = RECORD_HEAD.pack
_pack_entry = layout.ENTRY.pack
_pack_put = PUT.pack
_HEAD_SIZE = RECORD_HEAD.size
_ROOM = layout.END_OF_FILE_ROOM
_MAGIC = MAGIC_V1

_SECTOR, _UNWRITTEN = layout.SECTOR, layout.UNWRITTEN
_PARTS = 4  # of a record in a batch: head, body, topic, properties
# Buffer for records that are packed elsewhere, in bytes. The open batch is written at once when
# less than _LEAST_ROOM is left, which is more than the records of nearly all requests need.
_PACKED_AT_ONCE = 2 * 1024 * 1024
_LEAST_ROOM = 1024 * 1024


class Appender:
    """Appends messages to the log.

    ``refusal`` says why messages are refused at present; None while they are accepted.
    ``await_flush`` takes a written batch that must not be published before an fsync; if it is None,
    ``publisher`` publishes the batch at once. ``on_growth`` is called when the log has grown past
    ``growth_mark``; it returns the next mark. ``on_written`` is called when the log has grown,
    before any reply is sent. The functions of ``before_turn_ends`` are called in order at the end
    of a turn in which something was appended or `open_turn` was called; they append deferred
    messages. ``extend`` may store more about a message in the extension of its queue: it gets
    queue, tags code, store timestamp and ``properties_field``, and returns the tags code for the
    queue entry.
    """

    def __init__(
        self, commit_log: CommitLog, store_host: bytes, extend: Extend | None = None
    ) -> None:
        self.refusal: StoreRefused | None = None
        self.await_flush: Callable[[Batch], None] | None = None
        self.on_written: Callable[[], None] = lambda: None
        self.before_turn_ends: list[Callable[[], None]] = []
        self.publisher = Publisher()
        self.on_growth: Callable[[], int] = lambda: 1 << 63
        self.growth_mark = 0
        self.extend = extend
        self.store_host = store_host
        self.failed_writes = 0
        self._log = commit_log
        self._refusals: dict[str, StoreRefused] = {}
        self._batch = Batch(commit_log.position)
        self._memory: memoryview | None = None  # buffer for records of the open batch
        self._used = 0  # bytes used of _memory
        self._file_end = commit_log.files[-1].end if commit_log.files else 0
        self._scheduled = False
        # from this offset on the log still has bytes of refused messages; -1 if none
        self._uncleared = -1
        self._sys_flag = SysFlag.STORE_HOST_V6 if len(store_host) != IPV4_HOST else 0

    def refuse(self, cause: str, refusal: StoreRefused) -> None:
        """Refuse messages until `accept` is called for the same cause."""
        self._refusals[cause] = refusal
        self.refusal = next(iter(self._refusals.values()))

    @property
    def causes(self) -> frozenset[str]:
        """The causes for which messages are refused now."""
        return frozenset(self._refusals)

    def accept(self, cause: str) -> None:
        """Remove a cause to refuse messages."""
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
        """Append a message to its queue and return its physical offset.

        ``properties_field`` is the text of the properties after its i16 length. Nothing is on disk
        when this returns: call `reply_when_stored` or `call_when_stored` in the same turn.

        Raises StoreRefused if messages are refused, if this one does not fit in a log file, or if a
        recovery would treat it as torn.
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
        # The calls that may raise come first: either both the record and its entry are added, or
        # neither is.
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
        """Append messages to a queue, all or none, into one file, and index their keys.

        Returns their physical offsets and the queue offset of the first. The keyword arguments are
        those of `append` and apply to all messages. Raises StoreRefused.
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
        # Collected separately until nothing can raise any more: all messages are added, or none is.
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
        """Return the place for records that are packed elsewhere: (physical offset, memory up to
        the end of the file or buffer, store timestamp). None if packed records cannot be taken
        now.

        Records put there must be passed to `append_packed` before anything else is appended.
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
        """Append messages that were packed into the memory of `place`."""
        assert self._memory is not None
        batch = self._batch
        if not batch.parts:
            self._open(batch)
            batch.timestamp = timestamp
        size, touched, items, messages = packed
        end = self._used + size
        if batch.packed and batch.packed_last == len(batch.parts):
            batch.parts[-1] = self._memory[batch.packed_start : end]
        else:
            batch.parts.append(self._memory[self._used : end])
            batch.packed += 1
            batch.packed_start, batch.packed_last = self._used, len(batch.parts)
        self._used = end
        batch.messages += messages
        batch.end += size
        batch.keyed += items
        for queue, number, entries, queue_size in touched:
            queue.append_packed(entries, number)
            queue.put_bytes += queue_size
            batch.touched[queue] = queue.appended

    @property
    def will_end_turn(self) -> bool:
        """Whether `before_turn_ends` will be called in this turn of the loop."""
        return self._scheduled

    def open_turn(self) -> None:
        """Have `before_turn_ends` called in this turn even if nothing is appended."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.end_turn)

    def batch_timestamp(self) -> int:
        """The store timestamp, in ms, of a message appended in this turn."""
        batch = self._batch
        if not batch.parts:
            self._open(batch)
        return batch.timestamp

    def reserve(self, size: int) -> None:
        """Make sure that the next ``size`` bytes, the records of one batch message, lie in one
        file.

        Raises StoreRefused if they cannot, or if the messages appended before cannot be written.
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
            # A caller that appends two messages that belong together must not have the second
            # stored without the first. And when the remains of the failed write are cleared later,
            # the second would be cleared, too.
            refusal = self.commit() or self.refusal
            if refusal is not None:
                raise refusal
            # A callback that waited for this write may have appended more: a pop stores a check
            # point.

    def index(self, topic: str, keys: tuple[str, ...], position: int) -> None:
        """Index the message just appended by these keys."""
        self.index_hashes([key_hash(topic, key) for key in keys], position)

    def index_hashes(self, hashes: Sequence[int], position: int) -> None:
        """Index the message just appended by the hashes of its keys."""
        keyed = self._batch.keyed
        for hashed in hashes:
            keyed += _pack_put(hashed, position)

    def reply_when_stored(self, sink: ReplySink, frame: bytes, promptly: bool = False) -> None:
        """Send one or several reply frames when the messages just appended are stored as the flush
        mode guarantees.

        ``promptly`` is for a sender that set WAIT=false: its reply is sent after the write.
        """
        batch = self._batch
        (batch.prompt_replies if promptly else batch.replies).append((sink, frame))

    def reply_all_when_stored(self, replies: Replies, prompt_replies: Replies) -> None:
        """As `reply_when_stored` for frames of several senders; ``prompt_replies`` are those with
        WAIT=false.
        """
        self._batch.replies += replies
        self._batch.prompt_replies += prompt_replies

    def call_when_stored(self, callback: OnStored) -> None:
        """Call back when the messages just appended are stored, with None, or with the refusal."""
        self._batch.callbacks.append(callback)

    def call_when_answered(self, callback: OnStored) -> None:
        """Call back when a sender of the messages just appended would get its reply: with
        SYNC_MASTER, when a slave has them or with the refusal that says that no slave has.
        """
        self._batch.answers.append(callback)

    def commit(self) -> StoreRefused | None:
        """Write the open batch, then publish it or pass it to the flusher. Returns the refusal if
        the batch cannot be written.
        """
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
        if batch.end > self.growth_mark:
            self.growth_mark = self.on_growth()
        for queue, end in batch.touched.items():
            queue.written = end
        publisher = self.publisher
        if publisher.slaves is not None and (batch.replies or batch.answers):
            publisher.slaves.written(batch)
        self.on_written()
        if batch.prompt_replies:
            send(batch.prompt_replies)
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
        """Append the deferred messages, and write the open batch."""
        for defer in self.before_turn_ends:
            try:
                defer()
            except Exception:
                log_failure("deferred work at the end of a turn failed")
        self.commit()

    def _next_file(self) -> None:
        """End the last file with a blank record and create the next one."""
        commit_log = self._log
        try:
            if commit_log.files and commit_log.position < self._file_end:
                left = self._file_end - commit_log.position
                last = commit_log.files[-1]
                blank = BLANK.pack(left, MAGIC_BLANK)
                last.write(blank, commit_log.position - last.start)
                commit_log.position = commit_log.written = self._file_end
                # Before the next file is created: if that fails, a small record must not be written
                # over the blank.
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
            # The bytes of refused messages are still in the log, where a restart would find them.
            self._uncleared = batch.start
            self.refuse("log", self._refused(second))
        self.publisher.fail(batch, refusal)
        return refusal

    def clear_again(self) -> None:
        """Try again to clear the bytes of refused messages; on success, accept messages again."""
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
        """A system flag with the address families of the hosts of a record."""
        if len(born_host) != IPV4_HOST:
            sys_flag |= SysFlag.BORN_HOST_V6
        return sys_flag | self._sys_flag

    def _pack_any_head(self, head: tuple[int | bytes, ...]) -> bytes:
        """The head of a record with an IPv6 host."""
        born_host, store_host = head[9], head[11]
        assert isinstance(born_host, bytes) and isinstance(store_host, bytes)
        sys_flag = self._with_hosts(int(head[7]), born_host)
        whole = part("size", "body_length", len(born_host), len(store_host))
        return whole.pack(*head[:7], sys_flag, *head[8:])
