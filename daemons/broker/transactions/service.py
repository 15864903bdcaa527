"""Transactions: stores, commits and rolls back halves.

A commit puts two records into the log, the final message and the operation that ends the half, in
one write. So after a crash both exist or neither; only the last write of a killed process can have
been cut between them, and the next start adds the operation then. Therefore a transaction ends
once, however its end is requested. (Java puts them one after the other, and lets a producer commit
a half twice: by its first offset and by the one that a check has assigned.)
"""

import logging
from functools import partial

from mq.client.machine import clock, files
from mq.daemons.broker.delivery.waiting import is_stored
from mq.daemons.broker.delivery.writer import MessageWriter, NoTarget, properties_field
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.store import (
    ConsumeQueue,
    MessageStore,
    OnStored,
    Origin,
    StoreRefused,
    keys_of,
)
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.broker.transactions.half_batches import ReadBatch, append_halves
from mq.daemons.broker.transactions.ledger import Ledger, Operations
from mq.daemons.broker.transactions.native_halves import NativeHalves
from mq.daemons.broker.transactions.records import (
    HALF_QUEUE,
    LONGEST_PROPERTIES,
    OPERATION_FIELD,
    PROPERTIES_ROOM,
    REMOVE_CODE,
    ended_offsets,
    final_properties,
    is_final_of,
    make_final,
    make_half,
    number_property,
)
from mq.daemons.broker.transactions.usual_halves import UsualHalf, UsualHalves
from mq.protocol import names
from mq.protocol.codes import ResponseCode
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.headers.transaction import HALF_SIZE, more_halves
from mq.protocol.host import unpack_address
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey, encode
from mq.protocol.record import SMALLEST_RECORD
from mq.protocol.tags import tags_code

log = logging.getLogger(__name__)

# How much larger a final record and its operation may be than the half: the timer's properties,
# topics.
_ROOM = 2048


class Transactions:
    """The transactions of a broker. Created when its store is open; reads the open transactions,
    unless `has_them` is false: on a slave, whose master ends them.
    """

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        offsets: ConsumerOffsets,
        topics: Topics,
        *,
        has_them: bool = True,
    ) -> None:
        self._store = store
        self._writer = writer
        self._offsets = offsets
        self._topics = topics
        self.host = unpack_address(store.appender.store_host)
        self.native = NativeHalves(
            store,
            longest=LONGEST_PROPERTIES,
            spare=_ROOM + 2 * SMALLEST_RECORD,
        )
        self.ledger = Ledger()
        self._operations = Operations()
        self._unread: set[int] = set()  # queue offsets of halves that could not be read
        self.committed = 0
        self.rolled_back = 0
        if has_them:
            # Also unconfirmed records: this master will show them later, without a notice.
            with store.all_in_sight():
                self.load(is_start=True)
                unfinished = self._find_unfinished_commit() if self.ledger.offsets() else None
            if unfinished is not None:
                self._finish_commit(*unfinished)

    # prepare ------------------------------------------------------------------------------------

    def prepare(self, message: StoredMessage) -> None:
        """Store a message as a half. Raises StoreRefused."""
        make_half(message)
        size = len(encode(message.properties).encode())
        if size > LONGEST_PROPERTIES:
            raise StoreRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"properties of {size} bytes are over the limit of {LONGEST_PROPERTIES} "
                f"for a prepared message, of which the checks of its transaction need "
                f"{PROPERTIES_ROOM} more",
            )
        self.put_half(message)

    def prepare_batch(
        self,
        queue: ConsumeQueue,
        common: dict[str, str],
        body: bytes,
        read: ReadBatch,
        origin: Origin,
    ) -> tuple[bytes, int]:
        """Append a batch for `queue` as halves, all of its messages or none. Returns their ids in
        the form of the reply, and the queue offset of the first.

        ``common`` are properties for each message; those of a half are added to them. ``read``
        reads ``body`` for a topic with them. Raises StoreRefused, also for features that only a
        message sent by itself may use, and the errors of ``read``.
        """
        common[PropertyKey.REAL_TOPIC] = queue.topic
        common[PropertyKey.REAL_QUEUE_ID] = str(queue.queue_id)
        self._topics.create_internal(names.TRANSACTION_HALF_TOPIC, 1)
        halves = self._store.queue(names.TRANSACTION_HALF_TOPIC, HALF_QUEUE)
        appender = self._store.appender
        ids, first, keys = append_halves(appender, self.native, halves, common, body, read, origin)
        appender.call_when_stored(partial(self._add_batch, keys, first))
        return ids, first

    def _add_batch(self, keys: list[bytes], first: int, refusal: StoreRefused | None) -> None:
        if is_stored(refusal):
            self.ledger.add_keys(keys, first)

    def put_half(self, half: StoredMessage, on_stored: OnStored | None = None) -> None:
        """Store a message that is a half already. Raises StoreRefused."""
        self._topics.create_internal(names.TRANSACTION_HALF_TOPIC, 1)

        def stored(refusal: StoreRefused | None) -> None:
            if is_stored(refusal):
                self.ledger.add(half, half.queue_offset)
            if on_stored is not None:
                on_stored(refusal)

        self._writer.put(half, stored)

    # end ----------------------------------------------------------------------------------------

    def find_half(self, physical: int) -> StoredMessage | None:
        """The half at a physical offset; None if there is another message, or something else.

        The offset comes from a producer. Only the half queue shows whether there is a half: the
        body of a message may contain bytes that look like one.
        """
        half = self._writer.read_of(names.TRANSACTION_HALF_TOPIC, physical)
        if half is None:
            return None
        entry = self._store.entries.at(half.topic, HALF_QUEUE, half.queue_offset)
        return half if entry is not None and entry[0] == physical else None

    def commit(self, half: StoredMessage, offset: int) -> None:
        """Make a half visible to consumers, and end it by `offset`, which the ledger returned for
        it.

        Raises StoreRefused; the transaction then stays open.
        """
        try:
            make_final(half, self._writer)
        except NoTarget as error:
            raise _no_target(error) from None
        size = len(half.body) + len(encode(half.properties).encode()) + _ROOM
        self._store.appender.reserve(size + 2 * SMALLEST_RECORD)
        self._writer.put_or_delay(half)
        self.committed += 1
        self._put_operation(offset)

    def commit_usual(self, half: UsualHalf, halves: UsualHalves, offset: int) -> None:
        """As `commit` for an ordinary half, read by `halves`."""
        try:
            target = halves.target(half)
        except NoTarget as error:
            raise _no_target(error) from None
        appender = self._store.appender
        field = properties_field(final_properties(half.properties))
        size = len(half.body) + len(field) + _ROOM
        appender.reserve(size + 2 * SMALLEST_RECORD)
        physical = appender.append(
            target,
            half.body,
            field,
            flag=half.flag,
            sys_flag=half.sys_flag | SysFlag.TRANSACTION_COMMIT,
            born_timestamp=half.born_timestamp,
            born_host=half.born_host,
            reconsume_times=half.reconsume_times,
            prepared_offset=half.physical,
            tags_code=tags_code(half.properties.get(PropertyKey.TAGS)),
        )
        appender.index(target.topic, keys_of(half.properties), physical)
        self.committed += 1
        self._put_operation(offset)

    def commit_many(
        self, halves: bytes, group: str, known: UsualHalves, most_bytes: int
    ) -> tuple[int, int]:
        """As `commit` with the native path, for halves of a producer group, named as in a request,
        up to the first that Python has to handle. Returns their number and the bytes of their
        records.

        Only the target queues that ``known`` has found are used, to which the client may send.
        """
        offsets = [offset for _, offset in more_halves(halves)]
        count = self.ledger.count_endable(offsets)
        if not count:
            return 0, 0
        named = halves[: HALF_SIZE * count]
        done = self.native.commit(named, offsets[:count], group, known.targets, most_bytes)
        if done is None:
            return 0, 0
        self.committed += done.halves
        self._end_when_stored(offsets[: done.halves], done.first_note)
        return done.halves, done.size

    def usual_halves(self) -> UsualHalves:
        """Create the reader of ordinary halves, for one turn of the event loop."""
        return UsualHalves(self._store, self._writer)

    def roll_back(self, offset: int) -> None:
        """End a half that no consumer may see. Raises StoreRefused."""
        self.rolled_back += 1
        self._put_operation(offset)

    def _put_operation(self, offset: int) -> None:
        appender = self._store.appender
        queue = self._store.queue(names.TRANSACTION_OPERATION_TOPIC, HALF_QUEUE)
        appender.append(
            queue,
            str(offset).encode(),
            OPERATION_FIELD,
            flag=0,
            sys_flag=0,
            born_timestamp=clock.milliseconds(),
            born_host=appender.store_host,
            tags_code=REMOVE_CODE,
        )
        self._end_when_stored([offset], queue.appended - 1)

    def _end_when_stored(self, halves: list[int], first: int) -> None:
        """End halves when their operations, just appended from a queue offset on, are stored."""

        def stored(refusal: StoreRefused | None) -> None:
            if is_stored(refusal):
                self.ledger.remove(halves)
                self._operations.add_each(first, halves)
            else:
                self.ledger.cancel_ends(halves)

        self._store.appender.call_when_stored(stored)
        self.ledger.begin_ends(halves)

    # progress of the group CID_RMQ_SYS_TRANS -----------------------------------------------------

    def save_progress(self) -> None:
        """Advance the offsets past ended transactions, so that the next start, of Java too, is
        short.
        """
        half_queue = self._queue(names.TRANSACTION_HALF_TOPIC)
        if half_queue is None:
            return
        unread = (offset for offset in self._unread if offset >= half_queue.minimum)
        first = min(self.ledger.first(half_queue.readable), *unread, half_queue.readable)
        self._commit_offset(names.TRANSACTION_HALF_TOPIC, first)
        operation_queue = self._queue(names.TRANSACTION_OPERATION_TOPIC)
        if operation_queue is not None:
            passed = self._operations.passed(first, operation_queue.readable)
            self._commit_offset(names.TRANSACTION_OPERATION_TOPIC, passed)

    def _commit_offset(self, topic: str, offset: int) -> None:
        self._offsets.commit(names.TRANSACTION_CHECK_GROUP, topic, HALF_QUEUE, offset)

    def _start(self, queue: ConsumeQueue) -> int:
        saved = self._offsets.query(names.TRANSACTION_CHECK_GROUP, queue.topic, HALF_QUEUE)
        return min(max(saved, queue.minimum), queue.readable)

    # at the start -------------------------------------------------------------------------------

    def load(self, *, is_start: bool = False) -> None:
        """Find the open transactions in the log. Writes nothing.

        Raises OSError. At a start, messages on unreadable blocks are left for the next start
        instead: without their half there is nothing to commit.
        """
        half_queue = self._queue(names.TRANSACTION_HALF_TOPIC)
        if half_queue is None:
            return
        start = self._start(half_queue)
        ended = self._load_operations(start, is_start)
        for offset in range(start, half_queue.readable):
            half = self._read_in_load(half_queue, offset, is_start)
            if half is None:
                continue
            prepared = number_property(half, PropertyKey.TRANSACTION_PREPARED_QUEUE_OFFSET)
            if offset in ended or prepared in ended:
                self.ledger.has_ended(half)
            else:
                self.ledger.add(half, offset)
        if self.ledger.offsets():
            log.info("%d transactions are open", len(self.ledger))

    def _load_operations(self, start: int, is_start: bool) -> set[int]:
        """Read the operations; returns the halves from `start` on that they end."""
        queue = self._queue(names.TRANSACTION_OPERATION_TOPIC)
        ended: set[int] = set()
        if queue is None:
            return ended
        for offset in range(self._start(queue), queue.readable):
            message = self._read_in_load(queue, offset, is_start)
            halves = [] if message is None else ended_offsets(message)
            self._operations.add(offset, halves)
            ended.update(half for half in halves if half >= start)
        return ended

    def _find_unfinished_commit(self) -> tuple[int, int] | None:
        """The physical offset of a commit whose write was cut in two, because the log ends with it,
        and the offset of its half; None if there is none.
        """
        last = max(
            (queue.entry(queue.readable - 1) or (0,))[0]
            for queue in self._store.queues
            if queue.readable > queue.minimum
        )
        try:
            final = self._writer.read(last)
        except (RemoteProtocolError, OSError) as error:
            log.error("cannot read the last message, at %d: %s", last, error)
            return None
        if final is None or final.sys_flag & SysFlag.TRANSACTION_MASK != SysFlag.TRANSACTION_COMMIT:
            return None
        half = self.find_half(final.prepared_transaction_offset)
        if half is None or not is_final_of(final, half):
            return None
        offset = self.ledger.find(half)
        return None if offset is None else (last, offset)

    def _finish_commit(self, last: int, offset: int) -> None:
        """Add the operation of a commit whose write was cut in two."""
        log.warning("the commit at %d was cut in two by the end of the broker; finishing it", last)
        try:
            self._put_operation(offset)
        except StoreRefused as refusal:
            log.error("cannot finish the commit at %d: %s", last, refusal)

    def open_halves(self) -> list[int]:
        """The open halves, oldest first, except for unconfirmed ones."""
        queue = self._queue(names.TRANSACTION_HALF_TOPIC)
        end = 0 if queue is None else queue.readable
        return [offset for offset in self.ledger.offsets() if offset < end]

    def read_half(self, offset: int) -> StoredMessage | None:
        """The half with a queue offset, None if it is not in the log."""
        return self._read(names.TRANSACTION_HALF_TOPIC, offset)

    def _read_in_load(
        self, queue: ConsumeQueue, offset: int, is_start: bool
    ) -> StoredMessage | None:
        """As `_read`. At a start None for a message on an unreadable block."""
        try:
            return self._read(queue.topic, offset)
        except OSError as error:
            if not is_start or error.errno not in files.UNREADABLE:
                raise
            log.error("cannot read message %d of %s: %s", offset, queue.topic, error)
            if queue.topic == names.TRANSACTION_HALF_TOPIC:
                self._unread.add(offset)
            return None

    def _read(self, topic: str, offset: int) -> StoredMessage | None:
        message = self._writer.read_entry(topic, HALF_QUEUE, offset)
        if message is None:
            log.error("cannot read message %d of %s", offset, topic)
        return message

    def _queue(self, topic: str) -> ConsumeQueue | None:
        return self._store.queues.get(topic, HALF_QUEUE)


def _no_target(error: NoTarget) -> StoreRefused:
    return StoreRefused(
        ResponseCode.MESSAGE_ILLEGAL, f"the prepared message cannot be committed: {error}"
    )
