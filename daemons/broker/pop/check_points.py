"""The check points of a broker: messages that were popped and are not acknowledged yet.

    put     a pop writes a check point into the revive topic before it is answered
    ack     an acknowledgement is written there, too, before it is answered
    read    a written record is applied to the table here from the turn on in which it can be read:
            from memory, or from the log if another process wrote it
    revive  when a check point is due, messages not acknowledged are redelivered: see revival.py

The whole state is in the revive topic. A start reads it again from the offset of the group
CID_RMQ_SYS_REVIVE_GROUP in consumerOffset.json: one before the oldest check point with missing
acknowledgements (as in Java, which starts one after that offset). That file has the offsets of the
consuming groups, too. They may be older than the last pops: check points that were read after the
file was saved, as the offset of SEEN_GROUP shows, advance them.
"""

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from mq.client.machine import clock, files
from mq.daemons.broker.clock_steps import is_future
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.delivery.timer_request import deliver_time
from mq.daemons.broker.delivery.waiting import MOST_ATTEMPTS, is_stored
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.pop.deleted_groups import DeletedGroups, Reading
from mq.daemons.broker.pop.records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    REVIVE_GROUP,
    Key,
    PopCheckPoint,
    ack_record,
    read_ack,
    revive_topic,
)
from mq.daemons.broker.store import MessageStore, OnStored, StoreRefused, layout
from mq.daemons.broker.topics.topic_table import Topics
from mq.protocol import names
from mq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

SEEN_GROUP = names.SYSTEM_GROUP_PREFIX + "REVIVE_SEEN"
SERVICE = "popped messages"

_AT_ONCE = 256  # entries read in one turn of the event loop
# The most ms that a pop time may be moved into the future: see `PopCheckPoints.free_time`.
_MAX_LATER = 1000
# Ended check points that one search removes from the heap of due ones.
_MOST_ENDED = 2048
# Acknowledged messages of unknown check points (a Java broker left them in the timer).
_MOST_ORPHANS = 100_000
# Characters of each name in one of them. A client may make up that many, which are kept for days.
_LONGEST_NAME = names.MAX_GROUP_LENGTH
# ms that they are kept at most: no pop may ask for a longer invisible time.
_LONGEST_ORPHANED = 7 * 24 * 3600 * 1000
_EXPIRY = 1000  # ms between two searches for expired ones


class _ReviveQueue:
    """The reading state of one queue of the revive topic."""

    def __init__(
        self, points: "PopCheckPoints", store: MessageStore, topic: str, number: int
    ) -> None:
        self.queue = store.queue(topic, number)
        self.position = 0  # the next entry to read
        self.failed_reads = 0  # of that entry
        self.open: dict[int, PopCheckPoint] = {}  # by revive offset, oldest first
        self._points = points

    def wake(self) -> None:
        """The queue has new messages."""
        try:
            self._points.read(self)
        except OSError as error:  # `read_rest` retries
            log.error(
                "cannot read %r: %s; retrying", self.queue, error, extra={"failure": "revive"}
            )

    @property
    def committed(self) -> int:
        """The offset to commit: no record up to it is needed any more."""
        return next(iter(self.open), self.position) - 1


class _Acknowledged(NamedTuple):
    """An acknowledgement: its check point, the messages, and the time until which it may wait for
    the check point.
    """

    key: Key
    offsets: Sequence[int]
    due: int


class _NewRecord(NamedTuple):
    """The content of a record that this process has written, and its place in the revive topic."""

    queue_id: int
    queue_offset: int
    content: PopCheckPoint | _Acknowledged


class PopCheckPoints:
    """The table of check points, and the reading and writing of their records."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        writer: MessageWriter,
        offsets: ConsumerOffsets,
        topics: Topics,
        groups: Groups,
        host: tuple[str, int],
        aside: Quarantine,
    ) -> None:
        self._store = store
        self._writer = writer
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self.host = host
        self.aside = aside
        self._cluster = settings.broker.broker_cluster_name
        self.topic = revive_topic(self._cluster)
        self._table: dict[Key, PopCheckPoint] = {}
        # Written and not read yet, by physical offset: these need not be decoded from bytes.
        self._fresh: dict[int, _NewRecord] = {}
        # The check points among these that may be acknowledged already: with a slow disk their
        # messages are delivered before the check point is read.
        self._unread: dict[Key, PopCheckPoint] = {}
        self._due: list[tuple[int, int, PopCheckPoint]] = []  # a heap, by time and arrival
        self._last_time = 0  # the time of the last call of `pop_due`, ms
        self._counter = 0
        # Acknowledgements that arrived before their check points, and until when they may wait.
        self._orphans: dict[Key, tuple[int, set[int]]] = {}
        self._orphaned = 0  # number of messages in _orphans
        self._expire_from = 0  # ms: the time of the next search for expired orphans
        self.changed = asyncio.Event()
        # By revive queue, at the start: the offset that had been read, and the end. Records before
        # the end may be read later, when they become readable.
        self._seen: dict[int, int] = {}
        self._found: dict[int, int] = {}
        numbers: set[int] = {*range(settings.broker.revive_queue_num), *store.queues_of(self.topic)}
        self._queues = {n: _ReviveQueue(self, store, self.topic, n) for n in sorted(numbers)}
        self._next_queue = 0
        self.deleted_groups = DeletedGroups(settings, self)

    def __len__(self) -> int:
        return len(self._table)

    def start(self) -> None:
        """Read all unfinished records, and from now on each new one.

        Also reads records that are not confirmed any more; otherwise messages that they acknowledge
        would be redelivered.
        """
        with self._store.all_in_sight():
            self._read_all()
        if self._table:
            log.info("%d check points of popped messages", len(self._table))
        self._warn_of_other_clusters()

    def _warn_of_other_clusters(self) -> None:
        """Log popped messages that would only be revived under the cluster name of an earlier
        start.
        """
        unread: Counter[str] = Counter()
        for queue in self._store.queues:
            topic, number = queue.topic, queue.queue_id
            if topic.startswith(names.REVIVE_TOPIC_PREFIX) and topic != self.topic:
                committed = self._offsets.query(REVIVE_GROUP, topic, number)
                unread[topic] += max(0, queue.appended - max(committed + 1, queue.minimum))
        for topic, count in sorted(unread.items()):
            if count:
                former = topic.removeprefix(names.REVIVE_TOPIC_PREFIX)
                log.warning(
                    "topic %s has %d unread records of popped messages: messages that were popped "
                    "and not acknowledged under brokerClusterName=%s are not delivered again. To "
                    "deliver them, start the broker with brokerClusterName=%s and wait until no "
                    "record is unread",
                    *(topic, count, former, former),
                )

    def _read_all(self) -> None:
        for number, revive in self._queues.items():
            queue = revive.queue
            committed = self._offsets.query(REVIVE_GROUP, self.topic, number)
            seen = self._offsets.query(SEEN_GROUP, self.topic, number)
            self._found[number] = queue.appended
            self._seen[number] = min(max(seen, 0), queue.appended)
            revive.position = min(max(committed + 1, queue.minimum), queue.appended)
            queue.waiting[revive] = None
            revive.wake()

    def stop(self) -> None:
        """Stop reading, and clear the state: `start` reads it again."""
        for revive in self._queues.values():
            revive.queue.waiting.pop(revive, None)
            revive.open.clear()
        for table in (self._table, self._fresh, self._unread, self._orphans):
            table.clear()
        self.deleted_groups.clear()
        self._due.clear()
        self._orphaned = 0

    def can_be_read(self, point: PopCheckPoint) -> bool:
        """Whether the messages of a check point are readable. After a start unconfirmed messages
        are not, although they exist.
        """
        queue = self._store.queues.get(point.topic, point.queue_id)
        last = max(point.missing, default=-1)
        return queue is None or not queue.readable <= last < queue.appended

    def next_queue_id(self) -> int:
        """The revive queue of the next pop, round robin."""
        self._next_queue = (self._next_queue + 1) % len(self._queues)
        return list(self._queues)[self._next_queue]

    def find(self, key: Key) -> PopCheckPoint | None:
        return self._table.get(key)

    def known(self, key: Key) -> PopCheckPoint | None:
        """As `find`, but also returns a check point that was written and is not read yet."""
        return self._table.get(key) or self._unread.get(key)

    def has_known(self, key: Key) -> bool:
        """Whether a new check point with this key would be confused with an existing one, or with
        one that has more than one early acknowledgement.
        """
        return key in self._table or key in self._orphans

    def free_time(
        self, place: tuple[str, str, int, int], moment: int, broker_name: str
    ) -> int | None:
        """The first time in ms, from ``moment`` on, that makes a check point unique. ``place`` is
        topic, group, queue id and start offset.

        None if all near times are taken: a client has made up acknowledgements for them.
        """
        times = range(moment, moment + _MAX_LATER)
        return next((at for at in times if not self.has_known((*place, at, broker_name))), None)

    @staticmethod
    def may_be_early(key: Key) -> bool:
        """Whether an acknowledgement of an unknown check point may wait for it."""
        topic, group, _, _, _, broker_name = key
        return max(map(len, (topic, group, broker_name))) <= _LONGEST_NAME

    # writing --------------------------------------------------------------------------------

    def put(self, point: PopCheckPoint, on_stored: OnStored) -> None:
        """Write a check point. Raises StoreRefused."""
        self._make_topic()
        record = point.record(self._cluster, self.host)

        def stored(refusal: StoreRefused | None) -> None:
            self._forget_refused(record, refusal)
            on_stored(refusal)

        self._put(record, point, stored)
        self._unread[point.key] = point
        point.stored_at = self._store.appender.batch_timestamp()

    def acknowledge(
        self, key: Key, offsets: Sequence[int], revive_queue_id: int, due: int, on_stored: OnStored
    ) -> None:
        """Write that messages were consumed. Raises StoreRefused."""
        self._make_topic()
        point = self.known(key)

        def stored(refusal: StoreRefused | None) -> None:
            self._forget_refused(record, refusal)
            if point is not None:
                point.acks_in_flight -= 1
                if not is_stored(refusal):
                    point.take_acks_back(offsets)
            on_stored(refusal)

        record = ack_record(key, offsets, revive_queue_id, due, self._cluster, self.host)
        self._put(record, _Acknowledged(key, offsets, due), stored)
        if point is not None:
            point.acks_in_flight += 1
            point.put_acks(offsets)

    def _put(
        self, record: StoredMessage, content: PopCheckPoint | _Acknowledged, stored: OnStored
    ) -> None:
        physical = self._writer.put(record, stored)
        self._fresh[physical] = _NewRecord(record.queue_id, record.queue_offset, content)

    def _forget_refused(self, record: StoredMessage, refusal: StoreRefused | None) -> None:
        """Forget a record that was refused: another one may get its place."""
        if not is_stored(refusal):
            fresh = self._fresh.pop(record.physical_offset, None)
            if fresh is not None and isinstance(fresh.content, PopCheckPoint):
                self._unread.pop(fresh.content.key, None)
                self.deleted_groups.ended(fresh.content)
            self.deleted_groups.progress.set()

    def has_queue(self, revive_queue_id: int) -> bool:
        """Whether a receipt may name this revive queue."""
        return revive_queue_id in self._queues

    def _make_topic(self) -> None:
        self._topics.create_internal(self.topic, len(self._queues))

    def put_again(self, point: PopCheckPoint) -> None:
        """Write a check point again, later in its revive queue. Raises StoreRefused."""
        self._writer.put(point.record(self._cluster, self.host))

    def end(self, point: PopCheckPoint, on_refused: Callable[[], None] = lambda: None) -> None:
        """Write that a check point has ended, as an acknowledgement of all missing messages. If
        that is refused later, calls ``on_refused``. Raises StoreRefused and OSError.
        """
        missing = point.missing
        record = ack_record(
            point.key, missing, point.revive_queue_id, point.due, self._cluster, self.host
        )

        def stored(refusal: StoreRefused | None) -> None:
            if not is_stored(refusal):
                point.is_reviving = False
                on_refused()
            self._forget_refused(record, refusal)

        self._put(record, _Acknowledged(point.key, missing, point.due), stored)
        point.is_reviving = True

    # reading --------------------------------------------------------------------------------

    def read(self, revive: _ReviveQueue) -> None:
        """Read the new records of a revive queue. Raises OSError; the next call reads the rest."""
        queue = revive.queue
        while revive.position < queue.readable:
            entries = queue.entries(revive.position, _AT_ONCE)
            if not entries:  # the end of a file that was deleted
                revive.position = queue.next_file_index(revive.position)
                continue
            for physical, _, _ in layout.ENTRY.iter_unpack(entries):
                self._take(revive, revive.position, physical)
                revive.position += 1
                revive.failed_reads = 0
        self._commit(revive)
        self._offsets.commit(SEEN_GROUP, self.topic, queue.queue_id, revive.position)
        self.deleted_groups.progress.set()

    def read_rest(self) -> None:
        """Read the records that could not be read when they arrived."""
        for revive in self._queues.values():
            if revive.position < revive.queue.readable:
                revive.wake()

    def _take(self, revive: _ReviveQueue, index: int, physical: int) -> None:
        number = revive.queue.queue_id
        fresh = self._fresh.pop(physical, None)
        try:
            if fresh is not None and fresh[:2] == (number, index):
                self._take_fresh(revive, fresh, physical)
                return
            message = self._writer.read_entry(self.topic, number, index, physical)
            if message is None:
                raise LookupError("the record of this queue entry is not in the log")
            if message.tags == CHECK_POINT_TAG:
                self._take_check_point(revive, PopCheckPoint.read(message), physical)
            elif message.tags in (ACK_TAG, BATCH_ACK_TAG):
                due = deliver_time(message, message.store_timestamp) or 0
                self._take_ack(*read_ack(message), due)
        except OSError as error:
            # Possibly the disk fails, and not only this record: `read_rest` tries again.
            revive.failed_reads += 1
            if error.errno not in files.UNREADABLE or revive.failed_reads < MOST_ATTEMPTS:
                raise
            revive.failed_reads = 0
            self.aside.put(SERVICE, error, self.topic, number, index, physical)
        except Exception as error:  # it must not keep the broker from starting
            self.aside.put(SERVICE, error, self.topic, number, index, physical)

    def _take_fresh(self, revive: _ReviveQueue, fresh: _NewRecord, physical: int) -> None:
        content = fresh.content
        if isinstance(content, PopCheckPoint):
            self._unread.pop(content.key, None)
            content.revive_offset = fresh.queue_offset
            self._take_check_point(revive, content, physical)
            if self._table.get(content.key) is not content:
                self.deleted_groups.ended(content)
        else:
            self._take_ack(*content)

    def _take_check_point(self, revive: _ReviveQueue, point: PopCheckPoint, physical: int) -> None:
        if self._store.was_deleted(point.topic, point.queue_id, physical):
            return  # its offsets now belong to other messages
        number = revive.queue.queue_id
        if self._seen[number] <= point.revive_offset < self._found[number]:
            self._advance_group(point)
        known = self._table.get(point.key)
        if known is not None:  # a rewritten check point
            revive.open.pop(known.revive_offset, None)
            known.acked |= point.acked
            known.revive_offset = point.revive_offset
            known.stored_at = point.stored_at
            revive.open[known.revive_offset] = known
            return
        _, acked = self._orphans.pop(point.key, (0, set()))
        self._orphaned -= len(acked)
        point.acked |= acked.intersection(point.offsets)
        if not point.missing:
            return
        self._table[point.key] = point
        revive.open[point.revive_offset] = point
        self.push(point)

    def _advance_group(self, point: PopCheckPoint) -> None:
        """Advance the group past the messages of a check point, if the saved offset is older."""
        offset = self._offsets.query(point.group, point.topic, point.queue_id)
        end = max(point.offsets, default=point.start_offset - 1) + 1
        if offset < end and point.group in self._groups.table:
            self._offsets.commit(point.group, point.topic, point.queue_id, end)

    def _take_ack(self, key: Key, offsets: Sequence[int], due: int) -> None:
        point = self._table.get(key)
        if point is None:
            self._keep_orphan(key, offsets, due)
            return
        if len(offsets) > 1:
            point.acked.update(set(offsets).intersection(point.offsets))
        elif offsets[0] in point.offsets:
            point.acked.add(offsets[0])
        if len(point.acked) >= point.count and not point.missing:
            self._forget(point)

    def _keep_orphan(self, key: Key, offsets: Sequence[int], due: int) -> None:
        """Keep an acknowledgement whose check point may still arrive: one that a Java broker has
        left in the timer arrives shortly before it is due.
        """
        now = clock.milliseconds()
        if due < now or not self.may_be_early(key):
            return
        if self._orphaned + len(offsets) > _MOST_ORPHANS and now >= self._expire_from:
            self._expire_from = now + _EXPIRY
            self._orphans = {k: kept for k, kept in self._orphans.items() if kept[0] >= now}
            self._orphaned = sum(len(kept) for _, kept in self._orphans.values())
        if self._orphaned + len(offsets) <= _MOST_ORPHANS:
            _, kept = self._orphans.setdefault(key, (min(due, now + _LONGEST_ORPHANED), set()))
            self._orphaned -= len(kept)
            kept.update(offsets)
            self._orphaned += len(kept)

    def _forget(self, point: PopCheckPoint) -> None:
        self._table.pop(point.key, None)
        self.deleted_groups.ended(point)
        revive = self._queues[point.revive_queue_id]
        revive.open.pop(point.revive_offset, None)

    def forget_topic(self, topic: str) -> None:
        """Forget the check points of a deleted topic: if it is created again, their offsets belong
        to other messages. Earlier records are also skipped after a kill, because the store keeps
        the deletion.
        """
        self._forget_all(point for point in self._table.values() if point.topic == topic)

    def forget_queues(self, cleared: Collection[tuple[str, int]]) -> None:
        """As `forget_topic`, for queues, by topic and id, that restart."""
        self._forget_all(
            point for point in self._table.values() if (point.topic, point.queue_id) in cleared
        )

    def _forget_all(self, points: Iterable[PopCheckPoint]) -> None:
        forgotten = list(points)
        for point in forgotten:
            self._forget(point)
        for number in {point.revive_queue_id for point in forgotten}:  # empty after `stop`
            self._commit(self._queues[number])

    def forget_group(self, group: str) -> None:
        """Redeliver nothing to a group that was deleted with its offsets and may be created
        again."""
        unread = (fresh.content for fresh in self._fresh.values())
        points = [point for point in unread if isinstance(point, PopCheckPoint)]
        self.deleted_groups.begin(
            point for point in [*self._table.values(), *points] if point.group == group
        )

    def appended(self) -> dict[Reading, int]:
        """The end of each revive queue, including unconfirmed records."""
        return {revive: revive.queue.appended for revive in self._queues.values()}

    def drop(self, point: PopCheckPoint) -> None:
        """Remove a check point that cannot be handled."""
        self._forget(point)
        self._commit(self._queues[point.revive_queue_id])

    def pop_due(self, now: int) -> PopCheckPoint | None:
        """Remove and return the first check point that is due at a time in ms and is not being
        revived. Returns None if there is none, and also after very many ended ones; then
        `next_due` is not later than that time.
        """
        if is_future(self._last_time, now):
            self._follow_clock(now)
        self._last_time = now
        for _ in range(_MOST_ENDED):
            if not self._due or self._due[0][0] > now:
                break
            point = heapq.heappop(self._due)[2]
            if self._table.get(point.key) is point and not point.is_reviving:
                return point
        return None

    def _follow_clock(self, now: int) -> None:
        """After the clock was set back, make sure that no message stays invisible for longer than
        requested.
        """
        self._due[:] = [
            (min(at, now + point.invisible_time), number, point) for at, number, point in self._due
        ]
        heapq.heapify(self._due)

    def next_due(self) -> int | None:
        """The time at which the first check point is due, ms; None without check points."""
        return self._due[0][0] if self._due else None

    def oldest(self) -> Iterator[tuple[PopCheckPoint, int]]:
        """Yield the oldest check point of each revive queue, with the number of records after
        it."""
        for revive in self._queues.values():
            point = next(iter(revive.open.values()), None)
            if point is not None:
                yield point, revive.position - point.revive_offset

    def _commit(self, revive: _ReviveQueue) -> None:
        if revive.committed >= 0:
            self._offsets.commit(REVIVE_GROUP, self.topic, revive.queue.queue_id, revive.committed)

    def push(self, point: PopCheckPoint) -> None:
        """Schedule a check point for when it is due."""
        due = self._due
        if len(due) > 2 * len(self._table) + _AT_ONCE:  # most belong to acknowledged check points
            due[:] = [entry for entry in due if self._table.get(entry[2].key) is entry[2]]
            heapq.heapify(due)
        self._counter += 1
        at = min(point.due, clock.milliseconds() + point.invisible_time)
        heapq.heappush(due, (at, self._counter, point))
        if due[0][2] is point:
            self.changed.set()
