"""Popping: where each group is, and what it gets next out of its queues.

A group's place in a queue is its consumer offset; while check points are on their way to the disk
it is ahead of that. It is committed when they are stored, and goes back when they are not.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from mq.client.machine import clock, random_ids
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.waiting import StoreResults, is_stored
from mq.daemons.broker.pop.check_points import PopCheckPoints
from mq.daemons.broker.pop.order import OrderedPops
from mq.daemons.broker.pop.receipt import ORDER_QUEUE, mark_of, retry_topic
from mq.daemons.broker.pop.records import PopCheckPoint
from mq.daemons.broker.pop.request import INIT_MIN, PopRequest
from mq.daemons.broker.reading.message_finder import FOUND, FoundMessages
from mq.daemons.broker.reading.queue_reader import QueueReader
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.residency import NotInMemory
from mq.daemons.broker.store.waiters import OnStored
from mq.daemons.broker.tables.offsets import ConsumerOffsets
from mq.daemons.broker.tables.topics import Topics
from mq.daemons.time_slices import TURN_SECONDS
from mq.protocol.record import RECORD_IDENTITY

# Looks into one queue by one request; each passes over 800 entries that do not match. A request
# looks at what is not for it for TURN_SECONDS, and then for one look more.
_MOST_LOOKS = 8
# A pop that has got so many bytes takes no more: one frame must hold them, with a large message.
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class PopBatch:
    """What was taken out of one queue."""

    queue: ConsumeQueue
    start: int
    found: FoundMessages
    offsets: list[int]
    counts: list[int]  # of an ordered pop: how often each was popped before

    @property
    def mark(self) -> str:
        return mark_of(self.queue.topic)


class _PopPosition:
    """Where a group is in a queue while check points of it are being stored."""

    __slots__ = ("offset", "passed", "under_way")

    def __init__(self) -> None:
        self.offset = 0
        self.under_way = 0
        # Stretches, from where to where, in which nothing was for the group, or whose check point
        # is stored: they lie behind what is being stored, and are passed when that is.
        self.passed: dict[int, int] = {}


class _ScanBudget:
    """How long a request has looked at what is not for it."""

    __slots__ = ("_until", "are_over")

    def __init__(self) -> None:
        self._until = clock.perf_counter() + TURN_SECONDS
        self.are_over = False

    def in_vain(self) -> None:
        """One has found nothing."""
        self.are_over = clock.perf_counter() > self._until


class Popper:
    """Hands out messages to groups."""

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
        self.looks_in_vain = 0  # all that there were

    def forget_topic(self, topic: str) -> None:
        """No group is anywhere in a topic that was deleted, whatever is on its way to the disk."""
        self._places = {key: place for key, place in self._places.items() if key[1] != topic}

    def forget_group(self, group: str) -> None:
        """A group that was deleted with its offsets is nowhere."""
        self._places = {key: place for key, place in self._places.items() if key[0] != group}

    def forget_queues(self, cleared: Collection[tuple[str, int]]) -> None:
        """Nor in queues, by topic and id, that begin anew."""
        self._places = {key: place for key, place in self._places.items() if key[1:] not in cleared}

    # where a group is -----------------------------------------------------------------------

    def rest(self, request: PopRequest) -> int:
        """How many messages are left in the queues of a request, filters aside."""
        return sum(
            max(0, queue.readable - self.place(request, queue)) for queue in self.queues(request)
        )

    def queues(self, request: PopRequest) -> Iterator[ConsumeQueue]:
        """The queues of a request and, unless it is ordered, of its retries."""
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
        """Where a new group begins (PopMessageProcessor.getInitOffset)."""
        if request.init_mode == INIT_MIN or queue.topic != request.topic:
            return queue.minimum
        if queue.minimum <= 0 and self._reader.is_young(queue, 0):
            return 0
        return max(queue.readable - 1, 0)

    # taking ---------------------------------------------------------------------------------

    def take(self, request: PopRequest, results: StoreResults) -> tuple[list[PopBatch], int, int]:
        """Take what there is and write the check points; returns batches, pop time, revive queue.

        Messages may be given out once ``results`` say that all are stored. Raises StoreRefused when
        nothing could be taken for want of a check point, and NotInMemory when what there is has to
        be read from the disk before; that has begun.
        """
        pop_time = clock.milliseconds()
        revive_queue = ORDER_QUEUE if request.is_ordered else self._points.next_queue_id()
        batches: list[PopBatch] = []
        absent: NotInMemory | None = None
        left, size, looks = request.maximum, 0, _ScanBudget()
        for queue in self._in_turn(request):
            if left <= 0 or size >= _MOST_BYTES or looks.are_over:
                break
            if request.is_ordered and self._order.is_blocked(
                request.attempt_id, queue.topic, request.group, queue.queue_id
            ):
                continue
            try:
                batch = self._take_from(request, queue, left, looks)
            except NotInMemory as error:  # the next pop gets it, whatever else this one gets
                self._reader.residency.begin(error)
                absent = error
                continue
            if batch is None:
                continue
            free = self._free_time(request, batch, pop_time)
            if free is None or (free != pop_time and batches):
                continue  # one time is for all of them: the next pop gets it
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
        """What `take` would get, without taking it. Raises NotInMemory."""
        batches: list[PopBatch] = []
        left = request.maximum
        for queue in self._in_turn(request):
            start = self.place(request, queue)
            if left <= 0:
                break
            found = self._find(queue, start, left, request)
            if found.code == FOUND:
                batches.append(PopBatch(queue, start, found, self._offsets_of(found, start), []))
                left -= found.messages
        return batches

    def has_something(self, request: PopRequest) -> bool:
        """Whether a pop would get something, filters aside."""
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
        """Those that get once more what is out in order of the queues of a request."""
        out = (
            self._order.attempt(queue.topic, request.group, queue.queue_id)
            for queue in self.queues(request)
        )
        return {attempt for attempt in out if attempt}

    def free_at(self, group: str, queues: Iterable[ConsumeQueue], since: int) -> int:
        """When the first queue is free again of those that waited for acknowledgements at a time;
        ms, 0 if there is none."""
        times = [self._order.blocked_until(queue.topic, group, queue.queue_id) for queue in queues]
        return min((moment for moment in times if moment > since), default=0)

    def _in_turn(self, request: PopRequest) -> list[ConsumeQueue]:
        """The queues of the topic from any on, those of retries before or behind them."""
        queues = [queue for queue in self.queues(request) if queue.topic == request.topic]
        turn = random_ids.randrange(len(queues)) if queues else 0
        queues = queues[turn:] + queues[:turn]
        if request.is_ordered:
            return queues
        retries = list(self._retry_queues(request))
        first = random_ids.randrange(100) < self._settings.broker.pop_from_retry_probability
        return retries + queues if first else queues + retries

    def _take_from(
        self, request: PopRequest, queue: ConsumeQueue, maximum: int, looks: _ScanBudget
    ) -> PopBatch | None:
        key = (request.group, queue.topic, queue.queue_id)
        begin = start = self.place(request, queue)
        if queue.readable <= start <= queue.appended:
            return None  # what was given before a start may not be shown again yet
        if self._offsets.query(*key) < 0:
            self._commit(key, start)
        for _ in range(_MOST_LOOKS):
            try:
                found = self._find(queue, start, maximum, request)
            except NotInMemory:
                self._pass_over(key, begin, start)
                raise
            if found.code == FOUND:
                offsets = self._offsets_of(found, start)
                return PopBatch(queue, begin, found, offsets, [])
            if found.next_offset == start:
                break
            start = found.next_offset  # nothing there fits, or the offset was none of the queue's
            looks.in_vain()
            self.looks_in_vain += 1
            if looks.are_over:
                break
        self._pass_over(key, begin, start)
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

    def _pass_over(self, key: tuple[str, str, int], begin: int, start: int) -> None:
        if start == begin:
            return
        place = self._places.get(key)
        if place is None:
            self._commit(key, start)
        else:
            place.passed[begin] = start
            place.offset = start

    def _commit(self, key: tuple[str, str, int], offset: int) -> None:
        group, topic, queue_id = key
        self._offsets.commit(group, topic, queue_id, offset)

    def _free_time(self, request: PopRequest, batch: PopBatch, pop_time: int) -> int | None:
        """The first time from one on that tells the check point of a batch from others: the group
        may have been put back since it popped there, in this very millisecond.

        None if all near ones are taken: a client has made up acknowledgements for them.
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
        """Note what was taken, so that it comes again unless it is acknowledged."""
        queue = batch.queue
        if request.is_ordered:
            batch.counts = self._order.popped(request, queue, batch.offsets, pop_time)
            # What was passed over before the first of them is done with.
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
                self._settle(key, place, batch, refusal)
                outcome(refusal)

            self._points.put(point, stored)

        # Before the check point is put: at the end of a log file that stores what was put before,
        # for which others of the group may wait. They get what lies behind.
        place = self._places.setdefault(key, _PopPosition())
        place.offset = batch.found[1]
        place.under_way += 1
        try:
            results.put(put)
        except BaseException:
            self._leave(key, place, batch.start)
            raise

    def _settle(
        self,
        key: tuple[str, str, int],
        place: _PopPosition,
        batch: PopBatch,
        refusal: StoreRefused | None,
    ) -> None:
        """A check point is stored, or is not: in the turn in which it can be read, or when the disk
        has not confirmed it in time. It is in the log then, and what it is of comes again: put
        back, that would be given out twice, and with each pop that is told so once more."""
        if self._places.get(key) is not place:  # the topic or the group was deleted meanwhile
            return
        group, topic, queue_id = key
        if is_stored(refusal):
            offset = batch.found[1]
            if self._offsets.query(group, topic, queue_id) == batch.start:
                while offset in place.passed:
                    offset = place.passed.pop(offset)
                self._commit(key, offset)
            else:  # what lies before is stored behind it; or someone has reset the group meanwhile
                place.passed[batch.start] = offset
        self._leave(key, place, place.offset if is_stored(refusal) else batch.start)

    def _leave(self, key: tuple[str, str, int], place: _PopPosition, offset: int) -> None:
        """A check point is not under way any more; the group is no further than an offset."""
        place.offset = min(place.offset, offset)
        place.under_way -= 1
        if not place.under_way and self._places.get(key) is place:
            del self._places[key]
