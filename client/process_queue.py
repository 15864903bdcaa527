"""Process queues: the messages of one queue that are pulled and not yet finished.

Messages may be finished in any order; the offset to commit is the lowest that is not finished,
because what lies below it is all done. So a crash brings some messages twice and loses none.
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
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import StoredMessage

if TYPE_CHECKING:
    from mq.client.snode.pushes import Pushes

LOOK_AFTER_SECONDS = 1.0  # without a pull, until it is looked whether a topic is the same still


@dataclass(frozen=True)
class FlowLimits:
    """How much a consumer may hold that it has not finished; beyond that it stops pulling.

    The defaults are Java's (DefaultMQPushConsumer): pullThresholdForQueue,
    pullThresholdSizeForQueue, consumeConcurrentlyMaxSpan, pullThresholdForTopic,
    pullThresholdSizeForTopic. Raises ClientError for a limit below 1.
    """

    messages: int = 1000  # of one queue
    bytes: int = 100 * 1024 * 1024  # of one queue, as records
    span: int | None = 2000  # from the first to the last offset: a stuck one must not pile up more
    topic_messages: int | None = None  # of all queues of a topic together; each gets its share
    topic_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            if limit is not None and limit < 1:
                raise ClientError(f"the flow limit {name} must be at least 1, not {limit}")

    def of_queue(self, queues: int) -> "FlowLimits":
        """The limits of each queue when this member has `queues` of the topic."""
        messages, size = self.messages, self.bytes
        if self.topic_messages is not None:
            messages = max(1, self.topic_messages // max(1, queues))
        if self.topic_bytes is not None:
            size = max(1, self.topic_bytes // max(1, queues))
        return FlowLimits(messages, size, self.span)


class ProcessQueue:
    """The unfinished messages of one queue, and whether there is room for more."""

    def __init__(self, queue: MessageQueue, offset: int, limits: FlowLimits | None = None) -> None:
        self.queue = queue
        self.next_offset = offset  # where to pull next
        self.told = -1  # the offset that was committed last
        self.dropped = False  # another member of the group has it now
        self.locked = False
        self.last_lock = 0.0  # seconds since 1970, for who asks
        self.locked_at = -inf  # the same by the monotonic clock, to be trusted
        self.lock_ended: asyncio.Future[None] | None = None  # see `queue_locks`
        self.last_pull = clock.time()
        self.last_consume = clock.time()
        self.seen_at = clock.monotonic()  # when its broker had this very topic, for certain
        self.pushes: Pushes | None = None  # where messages are pushed, too
        self.absent_pause = 0.0  # seconds; above 0 while its topic is absent, see `absence`
        self.absent_since = 0.0  # seconds since 1970: all that lies before us is older
        self.last_read: tuple[int, int] | None = None  # its offset, and when it was stored (ms)
        self._limits = limits or FlowLimits()
        self._paused = False
        self._unfinished: dict[int, int] = {}  # offset: bytes
        self._offsets: list[int] = []  # a heap; finished ones leave when they come to the top
        self._bytes = 0
        self._last_offset = offset
        self._room = asyncio.Event()
        self._room.set()
        # Ordered consumption only. Somebody has the turn from the first message that lines up
        # until the line is worked off; it is idle while nobody is inside the listener.
        self._line: deque[StoredMessage] = deque()
        self._has_turn = False
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, messages: Iterable[StoredMessage]) -> None:
        """Take over pulled messages."""
        for message in messages:
            offset = message.queue_offset
            self._unfinished[offset] = message.store_size
            heappush(self._offsets, offset)
            self._bytes += message.store_size
            self._last_offset = offset
            self.last_read = offset, message.store_timestamp
        self._check_room()

    def finish(self, message: StoredMessage) -> None:
        """The message needs no more: it was consumed, or sent back for later."""
        size = self._unfinished.pop(message.queue_offset, None)
        if size is None:
            return
        self.last_consume = clock.time()
        self._bytes -= size
        while self._offsets and self._offsets[0] not in self._unfinished:
            heappop(self._offsets)
        self._check_room()

    def holds(self, message: StoredMessage) -> bool:
        """Whether the message is still to be finished."""
        return message.queue_offset in self._unfinished

    @property
    def commit_offset(self) -> int:
        """The offset that a successor may go on from: everything below it is finished."""
        return self._offsets[0] if self._offsets else self.next_offset

    @property
    def count(self) -> int:
        """How many messages are unfinished."""
        return len(self._unfinished)

    @property
    def bytes(self) -> int:
        """How many bytes the unfinished messages have as records."""
        return self._bytes

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and the last offset that is held; zeros when none is."""
        return (self._offsets[0], self._last_offset) if self._offsets else (0, 0)

    @property
    def has_room(self) -> bool:
        """Whether more may be held."""
        limits = self._limits
        first = self._offsets[0] if self._offsets else self._last_offset
        return (
            len(self._unfinished) < limits.messages
            and self._bytes < limits.bytes
            and (limits.span is None or self._last_offset - first < limits.span)
        )

    @property
    def may_take(self) -> bool:
        """Whether more may be held now, and is wanted."""
        return self._room.is_set() and not self.dropped and not self.is_absent

    @property
    def is_absent(self) -> bool:
        """Whether its broker had no such topic when it was asked last: what comes next may be of
        another one, and nothing is committed until that is known."""
        return self.absent_pause > 0

    def note_pull(self) -> None:
        """Its broker has answered for it, or pushed a message of it."""
        self.last_pull, self.seen_at = clock.time(), clock.monotonic()

    @property
    def is_unseen(self) -> bool:
        """Whether its topic may be another one by now: nobody has pulled from it for a while, for
        it was full or paused, its lock had lapsed, or its broker could not be reached."""
        return clock.monotonic() - self.seen_at > LOOK_AFTER_SECONDS

    @property
    def paused(self) -> bool:
        """Whether nothing shall be pulled for the time being; what is held stays."""
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
        """Return when more may be pulled."""
        await self._room.wait()

    def note_lock(self, asked: float, ended: asyncio.Future[None]) -> None:
        """Ordered: its broker has locked it for us, `asked` to at that time (monotonic).

        `ended` is done when the connection over which it did so has ended.
        """
        self.locked = True
        self.lock_ended = ended
        self.locked_at = asked
        self.last_lock = clock.time() - (clock.monotonic() - asked)

    def line_up(self, messages: Iterable[StoredMessage]) -> bool:
        """Ordered: put messages in line; returns whether somebody must be told to work it off."""
        self._line.extend(messages)
        if self._has_turn or not self._line:
            return False
        self._has_turn = True
        return True

    def first_in_line(self, count: int = 1) -> list[StoredMessage]:
        """Ordered: the messages to consume now; empty when none is in line or the queue is lost."""
        return [] if self.dropped else list(islice(self._line, count))

    def leave_line(self, count: int = 1) -> None:
        """Ordered: the first messages are consumed."""
        for _ in range(count):
            self.finish(self._line.popleft())

    def begin_consuming(self) -> None:
        """Ordered: somebody works on the line, and may be inside the listener."""
        self._idle.clear()

    def end_consuming(self, *, turn: bool) -> None:
        """Ordered: nobody is inside the listener; `turn` says whether the turn is over, too."""
        self._idle.set()
        if turn:
            self._has_turn = False

    @property
    def is_idle(self) -> bool:
        """Ordered: whether nobody is inside the listener with a message of this queue."""
        return self._idle.is_set()

    async def idle(self) -> None:
        """Ordered: return when nobody is inside the listener."""
        await self._idle.wait()

    def _check_room(self) -> None:
        if self.has_room and not self._paused:
            self._room.set()
        else:
            self._room.clear()
