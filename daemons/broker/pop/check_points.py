"""The check points of a broker: what was popped and is not acknowledged yet.

    put     a pop writes a check point into the revive topic before it is answered
    ack     an acknowledgement is written there, too, before it is answered
    read    what is written is read back in the turn in which it can be read, and kept here
    revive  when a check point is due, what is not acknowledged goes to the retry topic of its
            group, together with an acknowledgement by the broker itself: one write for both

All state is in the revive topic, so a start reads it again from the offset that the group
CID_RMQ_SYS_REVIVE_GROUP has in consumerOffset.json: one before the oldest check point that was
missing something (as Java means it, which begins one behind its offset). In that file stand the
offsets of the groups that pop as well. They may be older than what was popped: check points that
were read since the file was written (SEEN_GROUP tells) move them on.
"""

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Sequence

from mq.daemons.broker.config import BrokerConfig
from mq.daemons.broker.groups import Groups
from mq.daemons.broker.offsets import ConsumerOffsets
from mq.daemons.broker.pop.receipt import normal_topic, retry_topic
from mq.daemons.broker.pop.records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    REVIVE_GROUP,
    CheckPoint,
    Key,
    ack_record,
    read_ack,
    revive_topic,
)
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.append import OnStored
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.timer.request import deliver_time
from mq.daemons.broker.topics import Topics
from mq.daemons.broker.writer import MessageWriter
from mq.protocol import names
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

SEEN_GROUP = names.SYSTEM_GROUP_PREFIX + "REVIVE_SEEN"
RETRY_QUEUES = 1  # PopAckConstants.retryQueueNum

_AT_ONCE = 256  # entries read, or check points revived, in one turn of the loop
_LONGEST_SLEEP = 1.0  # so that a clock that was set is noticed
_RETRY_SECONDS = 0.1
# The oldest check point is written again when so many records, or so many milliseconds, lie behind
# it: a start need not read far back, and its log file may be deleted by age.
_MOST_BEHIND = 50_000
_OLDEST = 3600 * 1000
# Acknowledgements of check points that have not come (a Java broker left them in the timer).
_MOST_ORPHANS = 100_000


class _ReviveQueue:
    """One queue of the revive topic as it is read."""

    def __init__(self, points: "CheckPoints", store: MessageStore, topic: str, number: int) -> None:
        self.queue = store.queue(topic, number)
        self.position = 0  # the next entry to read
        self.open: dict[int, CheckPoint] = {}  # by revive offset, the oldest first
        self._points = points

    def wake(self) -> None:
        """The queue has got messages."""
        self._points.read(self)

    @property
    def committed(self) -> int:
        """Up to where nothing is needed any more."""
        return next(iter(self.open), self.position) - 1


class CheckPoints:
    """The table, and the work of reviving."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        store: MessageStore,
        writer: MessageWriter,
        offsets: ConsumerOffsets,
        topics: Topics,
        groups: Groups,
        host: tuple[str, int],
    ) -> None:
        self._store = store
        self._writer = writer
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._host = host
        self._cluster = config().broker_cluster_name
        self.topic = revive_topic(self._cluster)
        self.revived = 0
        self._table: dict[Key, CheckPoint] = {}
        self._due: list[tuple[int, int, CheckPoint]] = []  # a heap, by time and arrival
        self._counter = 0
        # Acknowledgements that came before their check points, and until when they may wait.
        self._orphans: dict[Key, tuple[int, set[int]]] = {}
        self._is_starting = True
        self._changed = asyncio.Event()
        self._seen: dict[int, int] = {}
        numbers: set[int] = {*range(config().revive_queue_num), *store.queues_of(self.topic)}
        self._queues = {n: _ReviveQueue(self, store, self.topic, n) for n in sorted(numbers)}
        self._next_queue = 0

    def __len__(self) -> int:
        return len(self._table)

    def start(self) -> None:
        """Read what is not done yet, and from now on what comes."""
        for number, revive in self._queues.items():
            queue = revive.queue
            committed = self._offsets.query(REVIVE_GROUP, self.topic, number)
            seen = self._offsets.query(SEEN_GROUP, self.topic, number)
            self._seen[number] = min(max(seen, 0), queue.readable)
            revive.position = min(max(committed + 1, queue.minimum), queue.readable)
            queue.waiting[revive] = None
            self.read(revive)
        self._is_starting = False
        if self._table:
            log.info("%d check points of popped messages", len(self._table))

    def next_queue_id(self) -> int:
        """The revive queue of the next pop: each in turn."""
        self._next_queue = (self._next_queue + 1) % len(self._queues)
        return list(self._queues)[self._next_queue]

    def find(self, key: Key) -> CheckPoint | None:
        return self._table.get(key)

    # writing --------------------------------------------------------------------------------

    def put(self, point: CheckPoint, on_stored: OnStored) -> None:
        """Write a check point. Raises StoreRefused."""
        self._make_topic()
        self._writer.put(point.record(self._cluster, self._host), on_stored)

    def acknowledge(
        self, key: Key, offsets: Sequence[int], revive_queue_id: int, due: int, on_stored: OnStored
    ) -> None:
        """Write that messages were consumed. Raises StoreRefused."""
        self._make_topic()
        point = self._table.get(key)

        def stored(refusal: StoreRefused | None) -> None:
            if point is not None:
                point.acks_under_way -= 1
            on_stored(refusal)

        record = ack_record(key, offsets, revive_queue_id, due, self._cluster, self._host)
        self._writer.put(record, stored)
        if point is not None:
            point.acks_under_way += 1

    def has_queue(self, revive_queue_id: int) -> bool:
        """Whether a receipt may name this revive queue."""
        return revive_queue_id in self._queues

    def _make_topic(self) -> None:
        self._topics.create_internal(self.topic, len(self._queues))

    # reading --------------------------------------------------------------------------------

    def read(self, revive: _ReviveQueue) -> None:
        """Take in what the revive queue has got."""
        queue = revive.queue
        while revive.position < queue.readable:
            entries = queue.entries(revive.position, _AT_ONCE)
            if not entries:  # the end of a file that is gone
                revive.position = queue.next_file_index(revive.position)
                continue
            for physical, _, _ in layout.ENTRY.iter_unpack(entries):
                self._take(revive, revive.position, physical)
                revive.position += 1
        self._commit(revive)
        self._offsets.commit(SEEN_GROUP, self.topic, queue.queue_id, revive.position)

    def _take(self, revive: _ReviveQueue, index: int, physical: int) -> None:
        try:
            message = self._writer.read(physical)
            if message is None or message.topic != self.topic:
                entry = self._store.consume_queue_entry(self.topic, revive.queue.queue_id, index)
                message = None if entry is None else self._writer.read(entry[0])
            if message is None:
                log.error("record %d of %r cannot be read: skipped", index, revive.queue)
            elif message.tags == CHECK_POINT_TAG:
                self._take_check_point(revive, CheckPoint.read(message))
            elif message.tags in (ACK_TAG, BATCH_ACK_TAG):
                self._take_ack(*read_ack(message), message)
        except (RemoteProtocolError, ValueError) as error:
            log.error("record %d of %r is skipped: %s", index, revive.queue, error)

    def _take_check_point(self, revive: _ReviveQueue, point: CheckPoint) -> None:
        if self._is_starting and point.revive_offset >= self._seen[revive.queue.queue_id]:
            self._move_on(point)
        known = self._table.get(point.key)
        if known is not None:  # written again, further on
            revive.open.pop(known.revive_offset, None)
            known.acked |= point.acked
            known.revive_offset = point.revive_offset
            known.stored_at = point.stored_at
            revive.open[known.revive_offset] = known
            return
        _, acked = self._orphans.pop(point.key, (0, set()))
        point.acked |= acked.intersection(point.offsets)
        if not point.missing:
            return
        self._table[point.key] = point
        revive.open[point.revive_offset] = point
        self._push(point)

    def _move_on(self, point: CheckPoint) -> None:
        """The group has popped so far, whatever the offsets file says that was saved before."""
        offset = self._offsets.query(point.group, point.topic, point.queue_id)
        behind = max(point.offsets, default=point.start_offset - 1) + 1
        if offset < behind and point.group in self._groups.table:
            self._offsets.commit(point.group, point.topic, point.queue_id, behind)

    def _take_ack(self, key: Key, offsets: Sequence[int], message: StoredMessage) -> None:
        point = self._table.get(key)
        if point is None:
            self._keep_orphan(key, offsets, deliver_time(message, message.store_timestamp) or 0)
            return
        point.acked.update(set(offsets).intersection(point.offsets))
        if not point.missing:
            self._forget(point)

    def _keep_orphan(self, key: Key, offsets: Sequence[int], due: int) -> None:
        """Keep an acknowledgement whose check point may be on its way: one that a Java broker has
        left in the timer comes when it is nearly due."""
        now = time.time_ns() // 1_000_000
        if due < now:
            return
        if len(self._orphans) >= _MOST_ORPHANS:
            self._orphans = {k: kept for k, kept in self._orphans.items() if kept[0] >= now}
        if len(self._orphans) < _MOST_ORPHANS:
            self._orphans.setdefault(key, (due, set()))[1].update(offsets)

    def _forget(self, point: CheckPoint) -> None:
        del self._table[point.key]
        revive = self._queues[point.revive_queue_id]
        revive.open.pop(point.revive_offset, None)

    def _commit(self, revive: _ReviveQueue) -> None:
        if revive.committed >= 0:
            self._offsets.commit(REVIVE_GROUP, self.topic, revive.queue.queue_id, revive.committed)

    def _push(self, point: CheckPoint) -> None:
        due = self._due
        if len(due) > 2 * len(self._table) + _AT_ONCE:  # mostly of what has been acknowledged
            due[:] = [entry for entry in due if self._table.get(entry[2].key) is entry[2]]
            heapq.heapify(due)
        self._counter += 1
        heapq.heappush(due, (point.due, self._counter, point))
        if due[0][2] is point:
            self._changed.set()

    # reviving -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Revive what is due until cancelled."""
        looked = 0.0
        while True:
            self._changed.clear()
            pause = self._revive_due()
            if time.monotonic() - looked > _LONGEST_SLEEP:
                looked = time.monotonic()
                self._write_old_again()
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _revive_due(self) -> float:
        """Revive some of what is due; returns the seconds until there is more to do."""
        now = time.time_ns() // 1_000_000
        busy: list[CheckPoint] = []
        pause = _LONGEST_SLEEP
        for _ in range(_AT_ONCE):
            if not self._due or self._due[0][0] > now:
                break
            point = heapq.heappop(self._due)[2]
            if self._table.get(point.key) is not point or point.is_reviving:
                continue
            if point.acks_under_way or not self._revive(point):
                busy.append(point)
        for point in busy:
            self._counter += 1
            heapq.heappush(self._due, (point.due, self._counter, point))
        if busy:
            pause = _RETRY_SECONDS
        elif self._due:
            pause = min(pause, max((self._due[0][0] - now) / 1000, 0))
        return pause

    def _revive(self, point: CheckPoint) -> bool:
        """Put what is not acknowledged into the retry topic; False if that is not possible now."""
        try:
            topic = self._retry_topic(point)
            for offset in point.missing:
                if topic is not None:
                    self._put_again(point, offset, topic)
            record = ack_record(
                point.key,
                point.missing,
                point.revive_queue_id,
                point.due,
                self._cluster,
                self._host,
            )

            def stored(refusal: StoreRefused | None) -> None:
                if refusal is not None:
                    point.is_reviving = False
                    self._push(point)

            self._writer.put(record, stored)
        except (StoreRefused, OSError) as error:
            log.warning("popped messages wait: %s", error, extra={"failure": "revive"})
            return False
        point.is_reviving = True
        return True

    def _retry_topic(self, point: CheckPoint) -> str | None:
        """Where to; None if the topic or the group is not there any more. Raises OSError."""
        topic = normal_topic(point.topic, point.group)
        if self._topics.get(topic) is None or point.group not in self._groups.table:
            return None
        again = retry_topic(point.group, topic)
        self._topics.create_internal(again, RETRY_QUEUES)
        if self._offsets.query(point.group, again, 0) < 0:
            self._offsets.commit(point.group, again, 0, 0)
        return again

    def _put_again(self, point: CheckPoint, offset: int, topic: str) -> None:
        """Raises StoreRefused. What is not in the log any more is gone for everyone."""
        entry = self._store.consume_queue_entry(point.topic, point.queue_id, offset)
        old = None if entry is None else self._writer.read(entry[0])
        if old is None:
            log.warning("%s queue %d: message %d, which group %s popped, is gone", point.topic,
                        point.queue_id, offset, point.group)  # fmt: skip
            return
        properties = dict(old.properties)
        if old.reconsume_times == 0 or PropertyKey.FIRST_POP_TIME not in properties:
            properties[PropertyKey.FIRST_POP_TIME] = str(point.pop_time)
        message = StoredMessage(
            topic,
            old.body,
            properties,
            queue_id=0,
            flag=old.flag,
            sys_flag=old.sys_flag,
            born_timestamp=old.born_timestamp,
            born_host=self._host,
            reconsume_times=old.reconsume_times + 1,
        )
        self._writer.put(message)
        self.revived += 1

    def _write_old_again(self) -> None:
        """Let no check point keep the revive offset far back."""
        now = time.time_ns() // 1_000_000
        for revive in self._queues.values():
            oldest = next(iter(revive.open.values()), None)
            if oldest is None or oldest.acks_under_way or oldest.is_reviving:
                continue
            behind = revive.position - oldest.revive_offset
            if behind > _MOST_BEHIND or now - oldest.stored_at > _OLDEST:
                try:
                    self._writer.put(oldest.record(self._cluster, self._host))
                except StoreRefused:
                    return
