"""What a consumer holds of one queue: the messages it has pulled and not yet finished.

Messages may be finished in any order; the offset to commit is the lowest that is not finished,
because what lies below it is all done. So a crash brings some messages twice and loses none.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from mq.protocol.bodies import MessageQueue
from mq.protocol.message import StoredMessage

# Java's bounds of what a consumer caches of one queue (DefaultMQPushConsumer): count, bytes, and
# how far apart the first and the last offset may be (a stuck message must not pile up the rest).
MAX_MESSAGES = 1000
MAX_BYTES = 100 * 1024 * 1024
MAX_SPAN = 2000


class ProcessQueue:
    """The unfinished messages of one queue, and whether there is room for more."""

    def __init__(self, queue: MessageQueue, offset: int) -> None:
        self.queue = queue
        self.next_offset = offset  # where to pull next
        self.dropped = False  # another member of the group has it now
        self.locked = False
        self.last_lock = 0.0  # seconds since 1970
        self.last_pull = time.time()
        self.last_consume = time.time()
        self._unfinished: dict[int, int] = {}  # offset: bytes
        self._offsets: list[int] = []  # a heap; finished ones leave when they come to the top
        self._bytes = 0
        self._last_offset = offset
        self._room = asyncio.Event()
        self._room.set()
        self._line: deque[StoredMessage] = deque()  # ordered consumption only
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
        self._check_room()

    def finish(self, message: StoredMessage) -> None:
        """The message needs no more: it was consumed, or sent back for later."""
        size = self._unfinished.pop(message.queue_offset, None)
        if size is None:
            return
        self.last_consume = time.time()
        self._bytes -= size
        while self._offsets and self._offsets[0] not in self._unfinished:
            heappop(self._offsets)
        self._check_room()

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
        """Whether more may be pulled."""
        first = self._offsets[0] if self._offsets else self._last_offset
        return (
            len(self._unfinished) < MAX_MESSAGES
            and self._bytes < MAX_BYTES
            and self._last_offset - first < MAX_SPAN
        )

    async def wait_for_room(self) -> None:
        """Return when more may be pulled."""
        await self._room.wait()

    def line_up(self, messages: Iterable[StoredMessage]) -> bool:
        """Ordered: put messages in line; returns whether somebody must be told to work it off."""
        self._line.extend(messages)
        if not self._idle.is_set() or not self._line:
            return False
        self._idle.clear()
        return True

    def first_in_line(self) -> StoredMessage | None:
        """Ordered: the message to consume now; None when there is none or the queue is lost."""
        return self._line[0] if self._line and not self.dropped else None

    def leave_line(self) -> None:
        """Ordered: the first message is consumed."""
        self._line.popleft()

    def end_turn(self) -> None:
        """Ordered: nobody works on the line any more."""
        self._idle.set()

    async def idle(self, seconds: float) -> bool:
        """Ordered: wait until nobody works on the line; False if that takes over `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _check_room(self) -> None:
        if self.has_room:
            self._room.set()
        else:
            self._room.clear()
