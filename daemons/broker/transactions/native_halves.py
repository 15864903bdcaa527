"""Prepares and commits halves with the native path, many in one call (docs/decisions/0047)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mq.daemons.broker.native_failure import log_native_failure
from mq.daemons.broker.store import ConsumeQueue, MessageStore, Origin
from mq.daemons.broker.transactions.records import HALF_QUEUE, OPERATION_FIELD, REMOVE_CODE
from mq.daemons.broker.usual_properties import UNUSUAL, names_timer
from mq.protocol import names
from mq.protocol.headers.transaction import HALF_SIZE, more_halves
from mq.protocol.native import failures, native
from mq.protocol.properties import PropertyKey, encode
from mq.protocol.record import IPV4_HOST

# Entries of the queue of halves for one call at most: the halves of a request are adjacent, or
# belong to batches that were stored alternately with those of a few other tasks.
_MAX_ENTRIES = 4096


class PreparedBatch(NamedTuple):
    """Halves that have been appended."""

    ids: bytes  # for the reply
    unique_ids: Sequence[bytes]


class CommittedBatch(NamedTuple):
    """Halves that have been committed."""

    halves: int
    size: int  # queue offset of the operation for the first half
    first_note: int  # queue offset of the operation for the first half


class NativeHalves:
    """Prepares and commits halves, if there is a native path.

    ``longest`` are the bytes of properties that a half may have, and ``spare`` the bytes that its
    commit needs in addition to body and properties.
    """

    def __init__(self, store: MessageStore, *, longest: int, spare: int) -> None:
        self._store = store
        self._longest = longest
        self._prepare: Callable[..., Any] | None = None
        self._commit: Callable[..., Any] | None = None
        host = store.appender.store_host
        if native is not None and len(host) == IPV4_HOST:
            topic = names.TRANSACTION_HALF_TOPIC.encode()
            field = bytes((len(topic),)) + topic
            unusual = [PropertyKey.DELAY_LEVEL, PropertyKey.TRANSACTION_ID]
            path = native.CommitPath(host, field, OPERATION_FIELD, REMOVE_CODE, unusual, spare)
            self._prepare, self._commit = native.prepare, path.commit

    @property
    def commits(self) -> bool:
        """Whether halves are offered to the native path: it exists, and has not failed."""
        return self._commit is not None

    def prepare(
        self, body: bytes, common: Mapping[str, str], halves: ConsumeQueue, origin: Origin
    ) -> PreparedBatch | None:
        """Append the messages of a batch to the queue of halves, each with the properties
        ``common``. Returns None, with nothing appended, if Python has to do it.
        """
        appender = self._store.appender
        place = appender.place()
        if self._prepare is None or place is None or names_timer(common):
            return None
        start, room, timestamp = place
        added = encode(common).encode()
        sys_flag, born_timestamp, born_host, reconsume_times = origin
        if not (-(1 << 63) <= born_timestamp < 1 << 63 and -(1 << 31) <= reconsume_times < 1 << 31):
            return None  # of a producer that sends values which no record holds
        try:
            made = self._prepare(
                *(body, added, [*UNUSUAL, *common], self._longest, halves),
                (sys_flag, reconsume_times, born_timestamp, born_host),
                (start, room, appender.store_host, timestamp),
            )
        except failures:  # nothing was changed
            self._failed("a batch of halves")
            return None
        if made is None:
            return None
        packed, ids, unique_ids = made
        appender.append_packed(packed, timestamp)
        return PreparedBatch(ids, unique_ids)

    def commit(
        self,
        halves: bytes,
        offsets: Sequence[int],
        group: str,
        targets: Mapping[tuple[str, str], ConsumeQueue],
        most_bytes: int,
    ) -> CommittedBatch | None:
        """Append the final records of some halves, each with its operation, up to the first that
        Python has to handle. Returns None if that is the very first.

        ``halves`` names them as a request does, by offsets in the log and in their queue;
        ``offsets`` are the latter. ``targets`` are their possible target queues, by topic and queue
        id as in a half. Halves beyond ``most_bytes`` are left for a later call.
        """
        store = self._store
        appender, queues = store.appender, store.queues
        half_queue = queues.get(names.TRANSACTION_HALF_TOPIC, HALF_QUEUE)
        place = appender.place()
        if self._commit is None or place is None or half_queue is None or not targets:
            return None
        physical, first = next(more_halves(halves[:HALF_SIZE]))
        file = store.log.file_at(physical)
        if file is None:
            return None
        needed = min(max(offsets) - first + 1, _MAX_ENTRIES)
        entries = half_queue.entries(first, needed), first
        readable = min(file.end, store.readable_end) - file.start
        if readable <= 0 or not entries[0]:  # a producer may name any offset
            return None
        if not store.present.holds(entries[0]):  # some cannot be read: Python reports which
            return None
        part = file.view, readable, file.start
        notes = store.queue(names.TRANSACTION_OPERATION_TOPIC, HALF_QUEUE)
        name = group.encode("utf-8", "surrogatepass")  # a producer may use any name
        try:
            made = self._commit(
                *(halves, name, entries, part),
                *(targets, notes, place, most_bytes),
            )
        except failures:
            self._failed("halves to be committed")
            return None
        if made is None:
            return None
        count, size, packed = made
        appender.append_packed(packed, place[-1])
        return CommittedBatch(count, size, notes.appended - count)

    def leave_to_python(self) -> None:
        """Stop using the native path."""
        self._prepare = self._commit = None

    def _failed(self, what: str) -> None:
        """Disable the native path, because the same input may arrive again."""
        self.leave_to_python()
        log_native_failure(what, "transactions")
