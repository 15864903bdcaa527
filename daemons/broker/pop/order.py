"""Ordered pops: a group has messages of one queue in flight only once, until all are acknowledged.

There are no check points: the consumer offset stays at the first message that is not acknowledged.
Messages in flight block their queue until they are acknowledged or their invisible time is over;
then they are redelivered, with the number of earlier deliveries. The state is in
config/consumerOrderInfo.json, as with Java's ConsumerOrderInfoManager; after a crash messages in
flight are redelivered at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from mq.client.machine import clock
from mq.daemons.broker.clock_steps import is_future
from mq.daemons.broker.pop.request import PopRequest
from mq.daemons.broker.store import ConsumeQueue
from mq.daemons.broker.tables.saves import Saves
from mq.daemons.state_file import read_body, write_atomically
from mq.daemons.time_slices import TimeSlices
from mq.protocol.bodies.schema import Body, field

log = logging.getLogger(__name__)

SEPARATOR = "@"


class OrderInfo(Body):
    """The messages of a queue that a group has in flight (ConsumerOrderInfoManager.OrderInfo);
    times in ms.

    `offsets` has the first offset and, for the others, the difference to it; `acked` has a bit for
    each.
    """

    pop_time: int = field(default=0, wire="popTime")
    invisible_time: int | None = field(default=None, wire="i")
    offsets: list[int] = field(factory=list, wire="o")
    visible_at: dict[int, int] = field(factory=dict, wire="ot")
    counts: dict[int, int] = field(factory=dict, wire="oc")
    last_consume_time: int = field(default=0, wire="l")
    acked: int = field(default=0, wire="cm")
    attempt_id: str | None = field(default=None, wire="a")

    def all_offsets(self) -> list[int]:
        first = self.offsets[:1]
        return first + [first[0] + difference for difference in self.offsets[1:]]

    def is_acked(self, number: int) -> bool:
        return bool(self.acked >> number & 1)

    def blocked_until(self) -> int:
        """The time at which the last message that is not acknowledged becomes visible; 0 if all are
        acknowledged.
        """
        times = [
            self.visible_at.get(offset, self.pop_time + (self.invisible_time or 0))
            for number, offset in enumerate(self.all_offsets())
            if not self.is_acked(number)
        ]
        return max(times, default=0)

    def acknowledge_before(self, reached: int) -> None:
        """Count the messages before an offset as acknowledged."""
        for number, offset in enumerate(self.all_offsets()):
            if offset < reached:
                self.acked |= 1 << number

    def next_offset(self) -> int:
        """The first offset that is not acknowledged, or the one after the last."""
        offsets = self.all_offsets()
        for number, offset in enumerate(offsets):
            if not self.is_acked(number):
                return offset
        return offsets[-1] + 1


class OrderTable(Body):
    """The file: by topic@group, then by queue id."""

    table: dict[str, dict[int, OrderInfo]] = field(factory=dict)


class OrderText:
    """Encodes the file; only entries that have changed are encoded again."""

    def __init__(self) -> None:
        # Encoded entries with the object that each one encodes, unchanged since.
        self._texts: dict[str, dict[int, tuple[OrderInfo, bytes]]] = {}

    def forget(self, key: str, queue_id: int) -> None:
        """Drop the encoded entry of a queue that has changed."""
        self._texts.get(key, {}).pop(queue_id, None)

    async def encoder(self, table: Mapping[str, Mapping[int, OrderInfo]]) -> Callable[[], bytes]:
        """Return a function that builds the file of a table, as `OrderTable.encode` does, in a
        thread. Entries are encoded in time slices: an entry that changes meanwhile may be old or
        new.
        """
        steps = TimeSlices()
        parts: dict[str, list[bytes]] = {}
        for key, queues in list(table.items()):
            parts[key] = []
            for text in self._up_to_date(key, dict(queues)):
                parts[key].append(text)
                await steps.rest()
        if len(self._texts) > len(table):  # some entries are no longer in flight
            self._texts = {key: texts for key, texts in self._texts.items() if key in table}

        def encode() -> bytes:
            texts = (b"%s:{%s}" % (orjson.dumps(key), b",".join(of)) for key, of in parts.items())
            return b'{"table":{%s}}' % b",".join(texts)

        return encode

    def _up_to_date(self, key: str, queues: Mapping[int, OrderInfo]) -> Iterator[bytes]:
        texts = self._texts.setdefault(key, {})
        for queue_id, info in queues.items():
            of, text = texts.get(queue_id, (None, b""))
            if of is not info:
                text = b"%d:%s" % (queue_id, info.encode())
                texts[queue_id] = info, text
            yield text


class OrderedPops:
    """The messages in flight of each queue."""

    def __init__(self, path: Path, clock: Callable[[], int] = clock.milliseconds) -> None:
        self._path = path
        self._clock = clock
        saved = _read(path)
        self._table: dict[str, dict[int, OrderInfo]] = {} if saved is None else saved.table
        # Where pops and acknowledgements have left each group, by key and queue id: a group with
        # another offset was reset. At the start, taken from the file.
        self._left_at: dict[tuple[str, int], int] = {}
        self._text = OrderText()
        self._changes = 0  # number of changes, and how many of them are saved
        self._saved = 0
        self._saving = asyncio.Lock()
        self._saves = Saves()

    def start(
        self, offset_of: Callable[[str, str, int], int], end_of: Callable[[str, int], int]
    ) -> None:
        """Count the messages before the offsets of groups as acknowledged. Offsets are saved with
        each acknowledgement, so the file may be older. ``offset_of`` takes group, topic and
        queue id.

        Entries of a queue that has lost messages in flight in a crash are dropped: new messages get
        these offsets, and would be acknowledged by old receipts. ``end_of`` takes topic and queue
        id.
        """
        self._forget_lost(end_of)
        for key, queues in self._table.items():
            topic, _, group = key.partition(SEPARATOR)
            for queue_id, info in list(queues.items()):
                at = offset_of(group, topic, queue_id)
                # the deletion of its group was interrupted by a kill: this file is saved last
                if at < 0:
                    del queues[queue_id]
                else:
                    self._left_at[key, queue_id] = max(at, info.next_offset())
                    info.acknowledge_before(at)
                self._changed(key, queue_id)

    def _forget_lost(self, end_of: Callable[[str, int], int]) -> None:
        lost = [
            (key, queue_id)
            for key, queues in self._table.items()
            for queue_id, info in queues.items()
            if max(info.all_offsets()) >= end_of(key.partition(SEPARATOR)[0], queue_id)
        ]
        for key, queue_id in lost:
            log.warning("%s: queue %d has lost its end and messages in flight", key, queue_id)
            del self._table[key][queue_id]
            self._changed(key, queue_id)
        # saved before new messages get these offsets; after a kill they would be in flight again
        if lost:
            try:
                write_atomically(self._path, OrderTable(table=self._table).encode())
            except OSError as error:
                log.error("cannot save the messages in flight of ordered pops: %s", error)

    def is_blocked(self, attempt_id: str, topic: str, group: str, queue_id: int) -> bool:
        """Whether a queue waits for acknowledgements, except for the attempt that it waits for."""
        info = self._find(topic, group, queue_id)
        if info is None or (attempt_id and attempt_id == info.attempt_id):
            return False
        return self._clock() < self._until(info)

    def attempt(self, topic: str, group: str, queue_id: int) -> str | None:
        """The attempt that a queue waits for, which gets the same messages again."""
        info = self._find(topic, group, queue_id)
        return None if info is None else info.attempt_id

    def blocked_until(self, topic: str, group: str, queue_id: int) -> int:
        """The time at which a queue is unblocked in any case, ms."""
        info = self._find(topic, group, queue_id)
        return 0 if info is None else self._until(info)

    def _until(self, info: OrderInfo) -> int:
        """The time at which a queue is unblocked. A pop time in the future, from before the clock
        was set back, does not block it.
        """
        return 0 if is_future(info.pop_time, self._clock()) else info.blocked_until()

    def popped(
        self, request: PopRequest, queue: ConsumeQueue, offsets: Sequence[int], pop_time: int
    ) -> list[int]:
        """Record messages in flight; returns how often each was popped before."""
        old = self._find(queue.topic, request.group, queue.queue_id)
        before: dict[int, int] = {}
        if old is not None:
            is_same = bool(request.attempt_id) and request.attempt_id == old.attempt_id
            before = {
                offset: old.counts.get(offset, 0) + (not is_same)
                for number, offset in enumerate(old.all_offsets())
                if not old.is_acked(number)
            }
        info = OrderInfo(
            pop_time=pop_time,
            invisible_time=request.invisible_time,
            offsets=[offsets[0], *(offset - offsets[0] for offset in offsets[1:])],
            counts={offset: before[offset] for offset in offsets if before.get(offset)},
            last_consume_time=pop_time,
            attempt_id=request.attempt_id or None,
        )
        key = f"{queue.topic}{SEPARATOR}{request.group}"
        self._table.setdefault(key, {})[queue.queue_id] = info
        self._left_at[key, queue.queue_id] = offsets[0]
        self._changed(key, queue.queue_id)
        return [before.get(offset, 0) for offset in offsets]

    def acknowledge(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, at: int
    ) -> int | None:
        """Acknowledge a message, and return the offset that the group reaches; ``at`` is its
        current offset. None for a message that is not in flight any more. A group that was reset
        meanwhile keeps its offset.
        """
        info = self._find(topic, group, queue_id)
        if info is None or info.pop_time != pop_time or offset not in info.all_offsets():
            return None
        info.acked |= 1 << info.all_offsets().index(offset)
        place = f"{topic}{SEPARATOR}{group}", queue_id
        self._changed(*place)
        if at < self._left_at.get(place, at):
            return at
        info.acknowledge_before(at)  # the group may also have been reset forward
        self._left_at[place] = reached = info.next_offset()
        return reached

    def postpone(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, until: int
    ) -> bool:
        """Change the time of a message's redelivery; False if it is not in flight any more."""
        info = self._find(topic, group, queue_id)
        if info is None or info.pop_time != pop_time or offset not in info.all_offsets():
            return False
        info.visible_at[offset] = until
        self._changed(f"{topic}{SEPARATOR}{group}", queue_id)
        return True

    def forget_topic(self, topic: str) -> None:
        """Forget the messages in flight of a deleted topic; that survives a kill once it is
        saved."""
        self._keep_only(lambda key: not key.startswith(topic + SEPARATOR))

    def forget_group(self, group: str) -> None:
        """As `forget_topic`, for a group."""
        self._keep_only(lambda key: not key.endswith(SEPARATOR + group))

    def forget_queues(self, cleared: Collection[tuple[str, int]]) -> None:
        """As `forget_topic`, for queues by topic and id."""
        topics = {topic for topic, _ in cleared}
        for key, queues in self._table.items():  # has all keys of `_left_at`, too
            topic = key.partition(SEPARATOR)[0]
            if topic in topics:
                for queue_id in [one for one in queues if (topic, one) in cleared]:
                    del queues[queue_id]
                    self._left_at.pop((key, queue_id), None)
                    self._changed(key, queue_id)

    def _keep_only(self, is_kept: Callable[[str], bool]) -> None:
        kept = {key: queues for key, queues in self._table.items() if is_kept(key)}
        self._changes += len(self._table) - len(kept)
        self._table = kept
        self._left_at = {place: at for place, at in self._left_at.items() if is_kept(place[0])}

    async def save(self, save_offsets: Callable[[], Awaitable[None]] | None = None) -> None:
        """Write the file in a thread if it has unsaved changes. Raises OSError.

        ``save_offsets`` is awaited before that: a group whose saved offset is before its messages
        in flight would count as reset.
        """
        async with self._saving:
            if self._changes == self._saved:
                return
            changes, encode = self._changes, await self._text.encoder(self._table)
            if save_offsets is not None:
                await save_offsets()
            await self._saves.run(lambda: write_atomically(self._path, encode()))
            self._saved = changes

    def _find(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        return self._table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)

    def _changed(self, key: str, queue_id: int) -> None:
        self._text.forget(key, queue_id)
        self._changes += 1


def _read(path: Path) -> OrderTable | None:
    table = read_body(path, OrderTable)
    for queues in table.table.values() if table else ():
        for queue_id in [queue_id for queue_id, info in queues.items() if not info.offsets]:
            del queues[queue_id]
    return table
