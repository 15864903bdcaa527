"""Pushes to one queue of a member, and when it is to be pulled from all the same.

A snode pushes what is sent through it, and nobody promises that it pushes everything: it leaves out
what a slow connection does not take, what others send without it, what comes late (delays,
transactions), and all of it when it dies. So pulls decide what has been read, as for every other
consumer, and a push only gets ahead of the next one:

    the first push is ignored: it says that there are pushes, and the pull that is under way
        brings what it has
    the very next message of the queue is taken, whether a pull is under way or not; what that
        brings of it again is left out
    one behind a gap is ignored, and the queue is pulled at once, until the gap is filled
    one from before is ignored: a pull has been faster. If it was stored later than what has been
        read, the queue has lost its end and goes on with other messages under the same
        offsets: it is pulled at once, which tells whether that is so
    while pushes come nothing is pulled; without one for a second, it is

Sources: the snode branch's DefaultMQPushConsumerImpl.processPushMessage and
RebalanceImpl. It pulls again after 120 s or a rebalance only, so that what is behind a gap
waits for so long; it takes the next offset but one behind a pull, too, which loses a message;
and it takes whatever is pushed twice.
"""

import asyncio
from enum import Enum, auto
from math import inf

from mq.client.machine import clock

PUSH_PATIENCE_SECONDS = 1.0


class PushOutcome(Enum):
    """What becomes of a message that was pushed."""

    TAKEN = auto()
    IGNORED = auto()


class Pushes:
    """What has been pushed to a queue."""

    def __init__(self) -> None:
        self.min_offset = 0  # of the queue, as the last pull had it
        self.committed = 0  # the offset that the snode has been told last
        #: From here on the queue may have other messages than were read, which a pull will tell.
        self.anew_from = inf
        self._heard = False
        self._taken_at = -inf  # by the monotonic clock
        self._newest = 0  # store timestamp of the last message that was read, ms
        self._pull = asyncio.Event()  # is wanted now
        self._failed_at = -inf  # a pull, by the monotonic clock

    def offer(self, offset: int, store_timestamp: int, next_offset: int) -> PushOutcome:
        """Whether to take the message at `offset`, when `next_offset` is the next to be read."""
        if not self._heard:
            self._heard = True
            return PushOutcome.IGNORED
        if offset == next_offset:
            return PushOutcome.TAKEN
        if offset > next_offset:
            self._pull.set()
        elif store_timestamp > self._newest:
            self.anew_from = min(self.anew_from, offset)
            self._pull.set()
        return PushOutcome.IGNORED

    def taken(self, store_timestamp: int) -> None:
        """A message that was pushed has been read."""
        self._taken_at = clock.monotonic()
        self._newest = max(self._newest, store_timestamp)

    def pulled(self, min_offset: int, newest: int) -> None:
        """A pull from where we are has been answered; the last message it brought, if there is one,
        was stored at `newest`. So what was read is there still, whatever was pushed before: of a
        broker of another make a snode can only guess when it has stored a message."""
        self.min_offset = min_offset
        self.anew_from = inf
        self._newest = max(self._newest, newest)

    def fails_first(self) -> bool:
        """A pull has failed; whether none had for a while."""
        before, self._failed_at = self._failed_at, clock.monotonic()
        return self._failed_at - before > PUSH_PATIENCE_SECONDS

    def want_pull(self) -> None:
        """Something was pushed that could not be taken."""
        self._pull.set()

    async def wait_for_pull(self) -> None:
        """Return when the queue is to be pulled from."""
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
