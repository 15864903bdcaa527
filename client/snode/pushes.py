"""Pushed messages of one queue, and when the queue must be pulled nevertheless.

A snode pushes the messages that are sent through it, without a guarantee: it omits messages that a
slow connection does not accept, messages sent without it, delayed and transactional messages, and
everything when it dies. So pulls decide what has been read, as for every other consumer, and a push
only arrives earlier than the next pull:

- The first push is ignored. It shows that there are pushes; the pull in flight returns its message.
- The very next message of the queue is accepted, whether a pull is in flight or not. If that pull
  returns it again, it is left out.
- A message after a gap is ignored, and the queue is pulled at once, until the gap is filled.
- A message before the current offset is ignored: a pull was faster. If it was stored later than
  the last message read, the queue has lost its end and continues with other messages under the
  same offsets: it is pulled at once to find out.
- While pushes arrive nothing is pulled; after a second without one, the queue is pulled.

Sources: the snode branch's DefaultMQPushConsumerImpl.processPushMessage and RebalanceImpl. It pulls
again only after 120 s or a rebalance, so that messages after a gap wait that long; it also accepts
the next offset but one after a pull, which loses a message; and it accepts duplicate pushes.
"""

import asyncio
from enum import Enum, auto
from math import inf

from mq.client.machine import clock

PUSH_PATIENCE_SECONDS = 1.0


class PushOutcome(Enum):
    """What happens to a pushed message."""

    TAKEN = auto()
    IGNORED = auto()


class Pushes:
    """The state of a queue's pushes."""

    def __init__(self) -> None:
        self.min_offset = 0  # of the queue, according to the last pull
        self.committed = 0  # the last offset committed to the snode
        #: From this offset on the queue may have other messages than those read; a pull shows it.
        self.restart_from = inf
        self._heard = False
        self._taken_at = -inf  # by the monotonic clock
        self._newest = 0  # store time of the last message read, ms
        self._pull = asyncio.Event()  # set when a pull is needed now
        self._failed_at = -inf  # time of the last failed pull, by the monotonic clock

    def offer(self, offset: int, store_timestamp: int, next_offset: int) -> PushOutcome:
        """Decide about a pushed message at `offset`; `next_offset` is the next one to read."""
        if not self._heard:
            self._heard = True
            return PushOutcome.IGNORED
        if offset == next_offset:
            return PushOutcome.TAKEN
        if offset > next_offset:
            self._pull.set()
        elif store_timestamp > self._newest:
            self.restart_from = min(self.restart_from, offset)
            self._pull.set()
        return PushOutcome.IGNORED

    def taken(self, store_timestamp: int) -> None:
        """Record an accepted push."""
        self._taken_at = clock.monotonic()
        self._newest = max(self._newest, store_timestamp)

    def pulled(self, min_offset: int, newest: int) -> None:
        """Record the answer to a pull from the current offset; `newest` is the store time of its
        last message.

        The answer shows that the messages read before still exist, whatever was pushed: for brokers
        of another kind a snode can only estimate the store time.
        """
        self.min_offset = min_offset
        self.restart_from = inf
        self._newest = max(self._newest, newest)

    def fails_first(self) -> bool:
        """Record a failed pull; returns whether none had failed for a while."""
        before, self._failed_at = self._failed_at, clock.monotonic()
        return self._failed_at - before > PUSH_PATIENCE_SECONDS

    def want_pull(self) -> None:
        """Request a pull after a push that could not be accepted."""
        self._pull.set()

    async def wait_for_pull(self) -> None:
        """Wait until the queue must be pulled."""
        while not self._pull.is_set():
            left = self._taken_at + PUSH_PATIENCE_SECONDS - clock.monotonic()
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    await self._pull.wait()
            except TimeoutError:
                continue
        self._pull.clear()
