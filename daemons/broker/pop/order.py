"""Ordered pops: of one queue a group has messages out only once, until all are acknowledged.

There are no check points: the consumer offset stays at the first message that is not acknowledged.
What is out blocks its queue until it is acknowledged or its invisible time is over; then it comes
again, with how often it came before. Kept in config/consumerOrderInfo.json, as by Java's
ConsumerOrderInfoManager; after a crash what was out comes again at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from mq.client.machine import clock
from mq.daemons.broker.clock_steps import is_future
from mq.daemons.broker.pop.request import PopRequest
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.tables.saves import Saves
from mq.daemons.state_file import read_body, write_atomically
from mq.daemons.time_slices import TimeSlices
from mq.protocol.bodies.schema import Body, field

log = logging.getLogger(__name__)

SEPARATOR = "@"


class OrderInfo(Body):
    """What a group has out of a queue (ConsumerOrderInfoManager.OrderInfo); times in ms.

    Offsets are the first one and, of the others, how far they are behind it; `acked` has a bit for
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
        """When the first message that is not acknowledged may come again; 0 if all are."""
        times = [
            self.visible_at.get(offset, self.pop_time + (self.invisible_time or 0))
            for number, offset in enumerate(self.all_offsets())
            if not self.is_acked(number)
        ]
        return max(times, default=0)

    def pass_over(self, reached: int) -> None:
        """Count what lies before an offset as acknowledged."""
        for number, offset in enumerate(self.all_offsets()):
            if offset < reached:
                self.acked |= 1 << number

    def next_offset(self) -> int:
        """The first that is not acknowledged, or the one behind the last."""
        offsets = self.all_offsets()
        for number, offset in enumerate(offsets):
            if not self.is_acked(number):
                return offset
        return offsets[-1] + 1


class OrderTable(Body):
    """The file: by topic@group, then by queue id."""

    table: dict[str, dict[int, OrderInfo]] = field(factory=dict)


class OrderText:
    """The text of the file: of the many that are out, only what has changed is put into words."""

    def __init__(self) -> None:
        # With what each is the text of, in which nothing has changed since.
        self._texts: dict[str, dict[int, tuple[OrderInfo, bytes]]] = {}

    def forget(self, key: str, queue_id: int) -> None:
        """What is out of a queue has changed."""
        self._texts.get(key, {}).pop(queue_id, None)

    async def encoder(self, table: Mapping[str, Mapping[int, OrderInfo]]) -> Callable[[], bytes]:
        """What makes the file of a table, as `OrderTable.encode` does; in a thread. It is put into
        words in steps: what changes meanwhile may be there as it was, or as it is."""
        steps = TimeSlices()
        parts: dict[str, list[bytes]] = {}
        for key, queues in list(table.items()):
            parts[key] = []
            for text in self._up_to_date(key, dict(queues)):
                parts[key].append(text)
                await steps.rest()
        if len(self._texts) > len(table):  # also of what is not out any more
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
    """What is out of each queue."""

    def __init__(self, path: Path, clock: Callable[[], int] = clock.milliseconds) -> None:
        self._path = path
        self._clock = clock
        saved = _read(path)
        self._table: dict[str, dict[int, OrderInfo]] = {} if saved is None else saved.table
        # Where pops and acknowledgements have left each group, by key and queue id: one that is
        # elsewhere was put there. Of what was out at the start, where the file says.
        self._left_at: dict[tuple[str, int], int] = {}
        self._text = OrderText()
        self._changes = 0  # and how many of them are in the file
        self._saved = 0
        self._saving = asyncio.Lock()
        self._saves = Saves()

    def start(
        self, offset_of: Callable[[str, str, int], int], end_of: Callable[[str, int], int]
    ) -> None:
        """Count as acknowledged what lies before the offsets of groups, which are saved with each
        acknowledgement: the file may be older. ``offset_of`` takes group, topic and queue id.

        Nothing is out of a queue of which a crash has taken something that was: ``end_of`` takes
        topic and queue id. What comes next has these offsets, and would be acknowledged for it.
        """
        self._forget_lost(end_of)
        for key, queues in self._table.items():
            topic, _, group = key.partition(SEPARATOR)
            for queue_id, info in list(queues.items()):
                at = offset_of(group, topic, queue_id)
                if at < 0:  # its group was deleted, which a kill cut short: this is saved last
                    del queues[queue_id]
                else:
                    self._left_at[key, queue_id] = max(at, info.next_offset())
                    info.pass_over(at)
                self._changed(key, queue_id)

    def _forget_lost(self, end_of: Callable[[str, int], int]) -> None:
        lost = [
            (key, queue_id)
            for key, queues in self._table.items()
            for queue_id, info in queues.items()
            if max(info.all_offsets()) >= end_of(key.partition(SEPARATOR)[0], queue_id)
        ]
        for key, queue_id in lost:
            log.warning("%s: the end of queue %d is lost, and what was out of it", key, queue_id)
            del self._table[key][queue_id]
            self._changed(key, queue_id)
        if lost:  # before anything comes there: a kill behind that would have it out again
            try:
                write_atomically(self._path, OrderTable(table=self._table).encode())
            except OSError as error:
                log.error("what is out in order cannot be saved: %s", error)

    def is_blocked(self, attempt_id: str, topic: str, group: str, queue_id: int) -> bool:
        """Whether a queue waits for acknowledgements; not for the attempt that it waits for."""
        info = self._find(topic, group, queue_id)
        if info is None or (attempt_id and attempt_id == info.attempt_id):
            return False
        return self._clock() < self._until(info)

    def attempt(self, topic: str, group: str, queue_id: int) -> str | None:
        """The attempt that a queue waits for, which is given the same again."""
        info = self._find(topic, group, queue_id)
        return None if info is None else info.attempt_id

    def blocked_until(self, topic: str, group: str, queue_id: int) -> int:
        """When a queue is free again whatever happens, ms."""
        info = self._find(topic, group, queue_id)
        return 0 if info is None else self._until(info)

    def _until(self, info: OrderInfo) -> int:
        """When a queue is free again. A pop in the future, before the clock was set back, does not
        block it."""
        return 0 if is_future(info.pop_time, self._clock()) else info.blocked_until()

    def popped(
        self, request: PopRequest, queue: ConsumeQueue, offsets: Sequence[int], pop_time: int
    ) -> list[int]:
        """Note what is out; returns how often each of these was popped before."""
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
        """The offset that the group, which is at one, has reached; None for a message that is not
        out any more. A group that was put back since stays where it is."""
        info = self._find(topic, group, queue_id)
        if info is None or info.pop_time != pop_time or offset not in info.all_offsets():
            return None
        info.acked |= 1 << info.all_offsets().index(offset)
        place = f"{topic}{SEPARATOR}{group}", queue_id
        self._changed(*place)
        if at < self._left_at.get(place, at):
            return at
        info.pass_over(at)  # it may have been put further on, too
        self._left_at[place] = reached = info.next_offset()
        return reached

    def postpone(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, until: int
    ) -> bool:
        """Let a message come again at another time; False if it is not out any more."""
        info = self._find(topic, group, queue_id)
        if info is None or info.pop_time != pop_time or offset not in info.all_offsets():
            return False
        info.visible_at[offset] = until
        self._changed(f"{topic}{SEPARATOR}{group}", queue_id)
        return True

    def forget_topic(self, topic: str) -> None:
        """Nothing is out of a topic that was deleted; behind a kill, once it is saved."""
        self._keep_only(lambda key: not key.startswith(topic + SEPARATOR))

    def forget_group(self, group: str) -> None:
        """As `forget_topic`, a group."""
        self._keep_only(lambda key: not key.endswith(SEPARATOR + group))

    def forget_queues(self, cleared: Collection[tuple[str, int]]) -> None:
        """As `forget_topic`, queues by topic and id."""
        topics = {topic for topic, _ in cleared}
        for key, queues in self._table.items():  # all that `_left_at` knows is there, too
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
        """Write the file, in a thread, if there are changes that are not in it. Raises OSError.

        ``save_offsets`` is awaited before that: a group whose saved offset is before what it is
        said to have out was put back.
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
