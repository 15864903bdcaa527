"""Popping: the position of each group, and the messages that it gets next from its queues.

A group's position in a queue is its consumer offset; while check points are being stored, the
position is ahead of it. The offset is committed when they are stored, and the position goes back
when they are refused.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from mq.client.machine import clock, random_ids
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.waiting import StoreResults, is_stored
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.pop.check_points import PopCheckPoints
from mq.daemons.broker.pop.order import OrderedPops
from mq.daemons.broker.pop.records import PopCheckPoint
from mq.daemons.broker.pop.request import INIT_MIN, PopRequest
from mq.daemons.broker.pull.message_finder import FOUND, FoundMessages
from mq.daemons.broker.pull.queue_reader import QueueReader
from mq.daemons.broker.store import ConsumeQueue, MessageStore, NotInMemory, OnStored, StoreRefused
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.time_slices import TURN_SECONDS
from mq.protocol.pop_receipt import ORDER_QUEUE, mark_of, retry_topic
from mq.protocol.record import RECORD_IDENTITY

# Searches of one queue by one request; each skips 800 entries that do not match. A request skips
# messages for TURN_SECONDS, and then makes one more search.
_MAX_SCANS = 8
# A pop with this many bytes takes no more: one frame must hold them, together with a large message.
_MAX_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class PopBatch:
    """The messages taken from one queue."""

    queue: ConsumeQueue
    start: int
    found: FoundMessages
    offsets: list[int]
    counts: list[int]  # of an ordered pop: how often each message was popped before

    @property
    def mark(self) -> str:
        return mark_of(self.queue.topic)


class _PopPosition:
    """The position of a group in a queue while its check points are being stored."""

    __slots__ = ("done", "in_flight", "offset")

    def __init__(self) -> None:
        self.offset = 0
        self.in_flight = 0
        # Ranges, by start, without messages for the group or with a stored check point. They come
        # after a check point that is not stored yet, and are skipped when that is stored.
        self.done: dict[int, int] = {}


class _ScanBudget:
    """Limits the time that a request spends on messages that do not match."""

    __slots__ = ("_until", "is_spent")

    def __init__(self) -> None:
        self._until = clock.perf_counter() + TURN_SECONDS
        self.is_spent = False

    def count_empty(self) -> None:
        """Note a search that found nothing."""
        self.is_spent = clock.perf_counter() > self._until


class Popper:
    """Takes messages from queues for groups."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: Topics,
        offsets: ConsumerOffsets,
        reader: QueueReader,
        points: PopCheckPoints,
        order: OrderedPops,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._reader = reader
        self._points = points
        self._order = order
        self._places: dict[tuple[str, str, int], _PopPosition] = {}
        self.empty_scans = 0  # searches that found nothing, since the start

    def forget_topic(self, topic: str) -> None:
        """Forget the positions in a deleted topic, whatever check points are in flight."""
        self._places = {key: place for key, place in self._places.items() if key[1] != topic}

    def forget_group(self, group: str) -> None:
        """Forget the positions of a group that was deleted with its offsets."""
        self._places = {key: place for key, place in self._places.items() if key[0] != group}

    def forget_queues(self, cleared: Collection[tuple[str, int]]) -> None:
        """Forget the positions in queues, by topic and id, that restart."""
        self._places = {key: place for key, place in self._places.items() if key[1:] not in cleared}

    # where a group is -----------------------------------------------------------------------

    def rest(self, request: PopRequest) -> int:
        """The number of messages left in the queues of a request, without filters."""
        return sum(
            max(0, queue.readable - self.place(request, queue)) for queue in self.queues(request)
        )

    def queues(self, request: PopRequest) -> Iterator[ConsumeQueue]:
        """The queues of a request and, unless it is ordered, of its retry topic."""
        topic = self._topics.get(request.topic)
        if topic is not None:
            ids = range(topic.read_queue_nums) if request.queue_id < 0 else (request.queue_id,)
            for queue_id in ids:
                yield self._store.queue(request.topic, queue_id)
        if not request.is_ordered:
            yield from self._retry_queues(request)

    def _retry_queues(self, request: PopRequest) -> Iterator[ConsumeQueue]:
        again = retry_topic(request.group, request.topic)
        config = self._topics.get(again)
        for queue_id in range(config.read_queue_nums if config is not None else 0):
            yield self._store.queue(again, queue_id)

    def place(self, request: PopRequest, queue: ConsumeQueue) -> int:
        """The offset of the next message that a group gets from a queue."""
        key = (request.group, queue.topic, queue.queue_id)
        place = self._places.get(key)
        if place is not None:
            return place.offset
        offset = self._offsets.query(*key)
        return offset if offset >= 0 else self._first_place(request, queue)

    def _first_place(self, request: PopRequest, queue: ConsumeQueue) -> int:
        """The offset at which a new group starts (PopMessageProcessor.getInitOffset)."""
        if request.init_mode == INIT_MIN or queue.topic != request.topic:
            return queue.minimum
        if queue.minimum <= 0 and self._reader.is_young(queue, 0):
            return 0
        return max(queue.readable - 1, 0)

    # taking ---------------------------------------------------------------------------------

    def take(self, request: PopRequest, results: StoreResults) -> tuple[list[PopBatch], int, int]:
        """Take available messages and write the check points; returns batches, pop time, revive
        queue.

        Messages may be delivered when ``results`` report that everything is stored. Raises
        StoreRefused if nothing could be taken because a check point was refused, and NotInMemory if
        the available messages have to be read from the disk first; that read has started.
        """
        pop_time = clock.milliseconds()
        revive_queue = ORDER_QUEUE if request.is_ordered else self._points.next_queue_id()
        batches: list[PopBatch] = []
        absent: NotInMemory | None = None
        left, size, budget = request.maximum, 0, _ScanBudget()
        for queue in self._rotated(request):
            if left <= 0 or size >= _MAX_BYTES or budget.is_spent:
                break
            if request.is_ordered and self._order.is_blocked(
                request.attempt_id, queue.topic, request.group, queue.queue_id
            ):
                continue
            try:
                batch = self._take_from(request, queue, left, budget)
            except NotInMemory as error:  # the next pop gets it, whatever this one gets
                self._reader.residency.begin(error)
                absent = error
                continue
            if batch is None:
                continue
            free = self._free_time(request, batch, pop_time)
            if free is None or (free != pop_time and batches):
                continue  # all batches share one pop time: the next pop gets this one
            pop_time = free
            try:
                self._keep(request, batch, pop_time, revive_queue, results)
            except StoreRefused:
                if batches:
                    break
                raise
            batches.append(batch)
            left -= len(batch.offsets)
            size += batch.found.size
        if absent is not None and not batches:
            raise absent
        return batches, pop_time, revive_queue

    def peek(self, request: PopRequest) -> list[PopBatch]:
        """Return what `take` would return, without taking it. Raises NotInMemory."""
        batches: list[PopBatch] = []
        left = request.maximum
        for queue in self._rotated(request):
            start = self.place(request, queue)
            if left <= 0:
                break
            found = self._find(queue, start, left, request)
            if found.code == FOUND:
                batches.append(PopBatch(queue, start, found, self._offsets_of(found, start), []))
                left -= found.messages
        return batches

    def has_something(self, request: PopRequest) -> bool:
        """Whether a pop would get something, without filters."""
        return any(
            queue.readable > self.place(request, queue)
            for queue in self.queues(request)
            if not (
                request.is_ordered
                and self._order.is_blocked(
                    request.attempt_id, queue.topic, request.group, queue.queue_id
                )
            )
        )

    def attempts(self, request: PopRequest) -> set[str]:
        """The attempts that get the messages in flight of the request's ordered queues again."""
        out = (
            self._order.attempt(queue.topic, request.group, queue.queue_id)
            for queue in self.queues(request)
        )
        return {attempt for attempt in out if attempt}

    def free_at(self, group: str, queues: Iterable[ConsumeQueue], since: int) -> int:
        """The earliest time after ``since``, in ms, at which one of the queues is unblocked; 0 if
        there is none.
        """
        times = [self._order.blocked_until(queue.topic, group, queue.queue_id) for queue in queues]
        return min((moment for moment in times if moment > since), default=0)

    def _rotated(self, request: PopRequest) -> list[ConsumeQueue]:
        """The queues of the topic from a random one on, with those of the retry topic before or
        after them.
        """
        queues = [queue for queue in self.queues(request) if queue.topic == request.topic]
        turn = random_ids.randrange(len(queues)) if queues else 0
        queues = queues[turn:] + queues[:turn]
        if request.is_ordered:
            return queues
        retries = list(self._retry_queues(request))
        first = random_ids.randrange(100) < self._settings.broker.pop_from_retry_probability
        return retries + queues if first else queues + retries

    def _take_from(
        self, request: PopRequest, queue: ConsumeQueue, maximum: int, budget: _ScanBudget
    ) -> PopBatch | None:
        key = (request.group, queue.topic, queue.queue_id)
        begin = start = self.place(request, queue)
        if queue.readable <= start <= queue.appended:
            return None  # messages delivered before a start may not be readable again yet
        if self._offsets.query(*key) < 0:
            self._commit(key, start)
        for _ in range(_MAX_SCANS):
            try:
                found = self._find(queue, start, maximum, request)
            except NotInMemory:
                self._skip(key, begin, start)
                raise
            if found.code == FOUND:
                offsets = self._offsets_of(found, start)
                return PopBatch(queue, begin, found, offsets, [])
            if found.next_offset == start:
                break
            start = found.next_offset  # nothing there matches, or the offset was out of range
            budget.count_empty()
            self.empty_scans += 1
            if budget.is_spent:
                break
        self._skip(key, begin, start)
        return None

    def _find(
        self, queue: ConsumeQueue, start: int, maximum: int, request: PopRequest
    ) -> FoundMessages:
        reader = self._reader
        return reader.find(queue, start, maximum, request.expression, present=reader.residency)

    def _offsets_of(self, found: FoundMessages, start: int) -> list[int]:
        _, next_offset, ranges, count, _ = found
        if count == next_offset - start:
            return list(range(start, next_offset))
        offsets = []
        for position, length in ranges:
            end = position + length
            while position < end:
                head = self._store.log.read(position, RECORD_IDENTITY.size)
                if head is None:
                    break
                size, _, _, offset = RECORD_IDENTITY.unpack(head)
                offsets.append(offset)
                position += size
        return offsets

    def _skip(self, key: tuple[str, str, int], begin: int, start: int) -> None:
        if start == begin:
            return
        place = self._places.get(key)
        if place is None:
            self._commit(key, start)
        else:
            place.done[begin] = start
            place.offset = start

    def _commit(self, key: tuple[str, str, int], offset: int) -> None:
        group, topic, queue_id = key
        self._offsets.commit(group, topic, queue_id, offset)

    def _free_time(self, request: PopRequest, batch: PopBatch, pop_time: int) -> int | None:
        """The first time from ``pop_time`` on that makes the check point of a batch unique: the
        group may have been reset since it popped there, in the same millisecond.

        None if all near times are taken: a client has made up acknowledgements for them.
        """
        if request.is_ordered:
            return pop_time
        queue, name = batch.queue, self._settings.broker.broker_name
        place = queue.topic, request.group, queue.queue_id, batch.offsets[0]
        return self._points.free_time(place, pop_time, name)

    # keeping --------------------------------------------------------------------------------

    def _keep(
        self,
        request: PopRequest,
        batch: PopBatch,
        pop_time: int,
        revive_queue: int,
        results: StoreResults,
    ) -> None:
        """Record what was taken, so that it is redelivered unless it is acknowledged."""
        queue = batch.queue
        if request.is_ordered:
            batch.counts = self._order.popped(request, queue, batch.offsets, pop_time)
            # The messages skipped before the first of them are done.
            self._commit((request.group, queue.topic, queue.queue_id), batch.offsets[0])
            return
        point = PopCheckPoint(
            queue.topic,
            request.group,
            queue.queue_id,
            batch.offsets[0],
            batch.offsets,
            pop_time,
            request.invisible_time,
            revive_queue,
            self._settings.broker.broker_name,
        )
        key = (request.group, queue.topic, queue.queue_id)

        def put(outcome: OnStored) -> None:
            def stored(refusal: StoreRefused | None) -> None:
                self._check_point_done(key, place, batch, refusal)
                outcome(refusal)

            self._points.put(point, stored)

        # Set before the check point is put: at the end of a log file, the put writes earlier
        # records, which may wake other pops of the group. These must get the following messages.
        place = self._places.setdefault(key, _PopPosition())
        place.offset = batch.found[1]
        place.in_flight += 1
        try:
            results.put(put)
        except BaseException:
            self._release(key, place, batch.start)
            raise

    def _check_point_done(
        self,
        key: tuple[str, str, int],
        place: _PopPosition,
        batch: PopBatch,
        refusal: StoreRefused | None,
    ) -> None:
        """Handle the result of a check point: called in the turn in which it can be read, or when
        it is refused, or when the disk has not confirmed it in time. In that last case it is in
        the log and its messages are redelivered anyway; if the position went back, they would be
        delivered twice.
        """
        if self._places.get(key) is not place:  # the topic or the group was deleted meanwhile
            return
        group, topic, queue_id = key
        if is_stored(refusal):
            offset = batch.found[1]
            if self._offsets.query(group, topic, queue_id) == batch.start:
                while offset in place.done:
                    offset = place.done.pop(offset)
                self._commit(key, offset)
            else:  # an earlier one is stored later; or the group was reset meanwhile
                place.done[batch.start] = offset
        self._release(key, place, place.offset if is_stored(refusal) else batch.start)

    def _release(self, key: tuple[str, str, int], place: _PopPosition, offset: int) -> None:
        """Count a check point as no longer in flight, and limit the position to an offset."""
        place.offset = min(place.offset, offset)
        place.in_flight -= 1
        if not place.in_flight and self._places.get(key) is place:
            del self._places[key]
