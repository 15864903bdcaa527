"""What the broker's own readers of queues need: to wait for messages, and for what they put."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.errors import STORED_ALL_THE_SAME, StoreRefused
from mq.daemons.broker.store.waiters import OnStored
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

T = TypeVar("T")

# A reader looks again after so long even if nothing woke it.
_LONGEST_WAIT = 10.0
# Between two attempts to store what was refused.
RETRY_SECONDS = 0.1
# Attempts with an item that the disk will not give: 10 s, for an error of the disk may pass.
MOST_ATTEMPTS = 100


class NextMessage:
    """Waits for the next message of a queue, as a held pull does."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self, queue: ConsumeQueue, seconds: float = _LONGEST_WAIT) -> None:
        """Return when the queue has got messages, or after so many seconds."""
        self._event.clear()
        queue.waiting[self] = None
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            queue.waiting.pop(self, None)

    def wake(self) -> None:
        self._event.set()


def is_stored(refusal: StoreRefused | None) -> bool:
    """Whether a message is in the log, if only not known to be on the disk, or with a slave."""
    return refusal is None or refusal.code in STORED_ALL_THE_SAME


def is_hopeless(refusal: StoreRefused) -> bool:
    """Whether it is the message that is refused, and would be again: not the store that waits."""
    return refusal.code == ResponseCode.MESSAGE_ILLEGAL


class StoreResults:
    """What has become of messages that were put: nothing yet, while they are on their way."""

    def __init__(self) -> None:
        self.missing = 0
        self._refusals: list[StoreRefused] = []
        self._complete = asyncio.Event()

    @property
    def all_well(self) -> bool:
        """Whether every one of them is stored."""
        return not self.missing and not self._refusals

    @property
    def all_stored(self) -> bool:
        """Whether every one of them is in the log, if only not known to be on the disk, or with a
        slave."""
        return not self.missing and all(map(is_stored, self._refusals))

    @property
    def refusal(self) -> StoreRefused | None:
        """Why the first of those that are not stored is not."""
        return self._refusals[0] if self._refusals else None

    def put(self, put: Callable[[OnStored], object]) -> None:
        """Put one more: `put` gets what is to be called with its result.

        Raises what `put` raises; no result is expected then.
        """
        self.missing += 1
        try:
            put(self._stored)
        except BaseException:
            self.missing -= 1
            raise

    async def wait(self) -> None:
        """Return when no result is missing."""
        while self.missing:
            # It may be set: some may have been stored before the next of them was put.
            self._complete.clear()
            await self._complete.wait()

    def _stored(self, refusal: StoreRefused | None) -> None:
        if refusal is not None:
            self._refusals.append(refusal)
        self.missing -= 1
        if not self.missing:
            self._complete.set()


async def store_all(
    items: Sequence[T],
    put: Callable[[T, OnStored], None],
    set_aside: Callable[[T, BaseException], None],
    what: str,
) -> None:
    """Put items until all of them are stored, those that were refused again and again.

    ``put`` stores one, or calls back with None if there is nothing to store. One that it raises an
    error for, or that no store would take, is given to ``set_aside``; a store that takes nothing
    now is waited for, and a disk that gives errors for a while. ``what`` is for the log.
    """
    left = list(items)
    attempts = 0
    while left:
        results = StoreResults()
        refused: list[T] = []
        for position, item in enumerate(left):
            try:
                _put_one(item, put, results, refused)
            except StoreRefused as refusal:
                if not is_hopeless(refusal):
                    log.warning("%s wait: %s", what, refusal, extra={"failure": what})
                    refused += left[position:]
                    break
                set_aside(item, refusal)
            except OSError as error:
                attempts = 1 if position else attempts + 1
                if attempts < MOST_ATTEMPTS:
                    log.warning("%s wait: %s", what, error, extra={"failure": what})
                    refused += left[position:]
                    break
                attempts = 0
                set_aside(item, error)
            except Exception as error:
                set_aside(item, error)
        await results.wait()
        left = refused
        if left:
            await asyncio.sleep(RETRY_SECONDS)


def _put_one(
    item: T, put: Callable[[T, OnStored], None], results: StoreResults, refused: list[T]
) -> None:
    def to_put(outcome: OnStored) -> None:
        def stored(refusal: StoreRefused | None) -> None:
            if not is_stored(refusal):
                refused.append(item)
            outcome(refusal)

        put(item, stored)

    results.put(to_put)
