"""Process queues: the messages of one queue that are pulled and not finished yet.

Messages may be finished in any order. The offset to commit is that of the first unfinished one,
because all messages before it are finished. So a crash causes redeliveries but no loss.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from mq.client.errors import ClientError
from mq.client.machine import clock
from mq.protocol.bodies import (
    ConsumeStatus,
    MessageQueue,
)
from mq.protocol.message import StoredMessage

if TYPE_CHECKING:
    from mq.client.snode.pushes import Pushes

CHECK_AFTER_SECONDS = 1.0  # without a pull; after that the topic is checked for replacement


@dataclass(frozen=True)
class FlowLimits:
    """Limits of unfinished messages; a consumer that reaches one stops pulling.

    The defaults are Java's (DefaultMQPushConsumer): pullThresholdForQueue,
    pullThresholdSizeForQueue, consumeConcurrentlyMaxSpan, pullThresholdForTopic,
    pullThresholdSizeForTopic. Raises ClientError for a limit below 1.
    """

    messages: int = 1000  # per queue
    bytes: int = 100 * 1024 * 1024  # per queue, as records
    # from the first to the last offset: bounds the messages after a stuck one
    span: int | None = 2000
    topic_messages: int | None = None  # of all queues of a topic, divided among them
    topic_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            if limit is not None and limit < 1:
                raise ClientError(f"the flow limit {name} must be at least 1, not {limit}")

    def of_queue(self, queues: int) -> "FlowLimits":
        """Return the limits of each queue of a member that owns `queues` of the topic."""
        messages, size = self.messages, self.bytes
        if self.topic_messages is not None:
            messages = max(1, self.topic_messages // max(1, queues))
        if self.topic_bytes is not None:
            size = max(1, self.topic_bytes // max(1, queues))
        return FlowLimits(messages, size, self.span)


class ProcessQueue:
    """The unfinished messages of one queue, and the limits on them."""

    def __init__(self, queue: MessageQueue, offset: int, limits: FlowLimits | None = None) -> None:
        self.queue = queue
        self.next_offset = offset  # the offset of the next pull
        self.committed = -1  # the last committed offset
        self.dropped = False  # another member of the group owns it now
        self.locked = False
        self.last_lock = 0.0  # seconds since 1970, for status queries
        # the same by the monotonic clock; decides whether the lock is trusted
        self.locked_at = -inf
        self.lock_ended: asyncio.Future[None] | None = None  # see `queue_locks`
        self.last_pull = clock.time()
        self.last_consume = clock.time()
        # when its broker last confirmed that the topic is the same
        self.seen_at = clock.monotonic()
        self.pushes: Pushes | None = None  # set if messages are pushed, too
        self.absent_pause = 0.0  # seconds; above 0 while its topic is missing, see `missing_topics`
        self.absent_since = 0.0  # seconds since 1970: everything before our offset is older
        self.last_read: tuple[int, int] | None = None  # its offset and its store time (ms)
        # the same, of the first message of a replaced topic
        self.others_first: tuple[int, int] | None = None
        self._limits = limits or FlowLimits()
        self._paused = False
        self._unfinished: dict[int, int] = {}  # offset: bytes
        # a heap; finished offsets are removed when they reach the top
        self._offsets: list[int] = []
        self._bytes = 0
        self._last_offset = offset
        self._room = asyncio.Event()
        self._room.set()
        # Ordered consumption only. A worker owns the turn from the first waiting message until none
        # is left; the queue is idle while no worker is inside the listener.
        self._line: deque[StoredMessage] = deque()
        self._has_turn = False
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, messages: Iterable[StoredMessage]) -> None:
        """Add pulled messages."""
        for message in messages:
            offset = message.queue_offset
            self._unfinished[offset] = message.store_size
            heappush(self._offsets, offset)
            self._bytes += message.store_size
            self._last_offset = offset
            self.last_read = offset, message.store_timestamp
        self._check_room()

    def finish(self, message: StoredMessage) -> None:
        """Finish a message that was consumed or sent back."""
        size = self._unfinished.pop(message.queue_offset, None)
        if size is None:
            return
        self.last_consume = clock.time()
        self._bytes -= size
        while self._offsets and self._offsets[0] not in self._unfinished:
            heappop(self._offsets)
        self._check_room()

    def holds(self, message: StoredMessage) -> bool:
        """Whether the message is unfinished."""
        return message.queue_offset in self._unfinished

    @property
    def commit_offset(self) -> int:
        """The offset at which another member may continue: all messages before it are finished."""
        return self._offsets[0] if self._offsets else self.next_offset

    @property
    def count(self) -> int:
        """The number of unfinished messages."""
        return len(self._unfinished)

    @property
    def bytes(self) -> int:
        """The size of the unfinished messages, as records."""
        return self._bytes

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and last unfinished offset; zeros if there is none."""
        return (self._offsets[0], self._last_offset) if self._offsets else (0, 0)

    @property
    def has_room(self) -> bool:
        """Whether the limits permit more messages."""
        limits = self._limits
        first = self._offsets[0] if self._offsets else self._last_offset
        return (
            len(self._unfinished) < limits.messages
            and self._bytes < limits.bytes
            and (limits.span is None or self._last_offset - first < limits.span)
        )

    @property
    def may_take(self) -> bool:
        """Whether more messages can be accepted and are wanted."""
        return self._room.is_set() and not self.dropped and not self.is_absent

    @property
    def is_absent(self) -> bool:
        """Whether its broker did not have the topic at the last query. The next messages may belong
        to another topic, and nothing is committed until that is known.
        """
        return self.absent_pause > 0

    def note_pull(self) -> None:
        """Record that its broker answered for it, or pushed a message of it."""
        self.last_pull, self.seen_at = clock.time(), clock.monotonic()

    @property
    def is_unseen(self) -> bool:
        """Whether its topic may have been replaced, because there was no recent pull: the queue was
        full or paused, its lock had lapsed, or its broker was unreachable.
        """
        return clock.monotonic() - self.seen_at > CHECK_AFTER_SECONDS

    @property
    def paused(self) -> bool:
        """Whether pulling is suspended; pulled messages stay."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        self._check_room()

    def limit(self, limits: FlowLimits) -> None:
        """Change the limits."""
        self._limits = limits
        self._check_room()

    async def wait_for_room(self) -> None:
        """Wait until more messages may be pulled."""
        await self._room.wait()

    def note_lock(self, asked: float, ended: asyncio.Future[None]) -> None:
        """Ordered: record that the broker locked the queue, requested at `asked` (monotonic).

        `ended` completes when the connection over which the lock was acquired ends.
        """
        self.locked = True
        self.lock_ended = ended
        self.locked_at = asked
        self.last_lock = clock.time() - (clock.monotonic() - asked)

    def line_up(self, messages: Iterable[StoredMessage]) -> bool:
        """Ordered: append messages to the line; returns whether a worker must be notified."""
        self._line.extend(messages)
        if self._has_turn or not self._line:
            return False
        self._has_turn = True
        return True

    def first_in_line(self, count: int = 1) -> list[StoredMessage]:
        """Ordered: return the messages to consume next; empty if there are none or the queue was
        revoked.
        """
        return [] if self.dropped else list(islice(self._line, count))

    def leave_line(self, count: int = 1) -> None:
        """Ordered: finish the first messages."""
        for _ in range(count):
            self.finish(self._line.popleft())

    def begin_consuming(self) -> None:
        """Ordered: a worker starts on the line and may be inside the listener."""
        self._idle.clear()

    def end_consuming(self, *, turn: bool) -> None:
        """Ordered: no worker is inside the listener; `turn` says whether the turn ends, too."""
        self._idle.set()
        if turn:
            self._has_turn = False

    @property
    def is_idle(self) -> bool:
        """Ordered: whether no worker is inside the listener with a message of this queue."""
        return self._idle.is_set()

    async def idle(self) -> None:
        """Ordered: wait until no worker is inside the listener."""
        await self._idle.wait()

    def _check_room(self) -> None:
        if self.has_room and not self._paused:
            self._room.set()
        else:
            self._room.clear()


class ConsumeCounts:
    """Counts of one topic since the consumer started; rates are averages over that time."""

    def __init__(self) -> None:
        self._since = clock.monotonic()
        self.pulls = 0
        self.pull_seconds = 0.0
        self.pulled = 0
        self.consumed = 0
        self.failed = 0
        self.consume_seconds = 0.0

    def status(self) -> ConsumeStatus:
        """Return the counts in the units of Java's consumers: times in ms, rates per second."""
        seconds = max(clock.monotonic() - self._since, 1e-3)
        calls = self.consumed + self.failed
        return ConsumeStatus(
            pull_rt=self.pull_seconds * 1000 / self.pulls if self.pulls else 0.0,
            pull_tps=self.pulled / seconds,
            consume_rt=self.consume_seconds * 1000 / calls if calls else 0.0,
            consume_ok_tps=self.consumed / seconds,
            consume_failed_tps=self.failed / seconds,
            consume_failed_msgs=self.failed,
        )


# How long a lock is trusted without renewal (REBALANCE_LOCK_MAX_LIVE_TIME). A broker keeps it for
# 60 s, so the lock outlives our trust in it.
TRUSTED_SECONDS = 30.0


def is_locked(held: ProcessQueue) -> bool:
    """Whether this member certainly has the lock at the broker."""
    return (
        held.locked
        and clock.monotonic() - held.locked_at < TRUSTED_SECONDS
        and not (held.lock_ended is not None and held.lock_ended.done())
    )
