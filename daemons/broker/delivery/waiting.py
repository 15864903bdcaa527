"""Helpers of the broker's own queue readers: waiting for messages and for store results."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from mq.daemons.broker.store import STORED_ALL_THE_SAME, ConsumeQueue, OnStored, StoreRefused
from mq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

T = TypeVar("T")

# Seconds after which a reader checks its queue even if nothing woke it.
_LONGEST_WAIT = 10.0
# Seconds between two attempts to store refused messages.
RETRY_SECONDS = 0.1
# Attempts to read an item that the disk fails to return: 10 s, because disk errors may pass.
MOST_ATTEMPTS = 100


class NextMessage:
    """Waits for the next message of a queue, like a suspended pull."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self, queue: ConsumeQueue, seconds: float = _LONGEST_WAIT) -> None:
        """Return when the queue has new messages, or after so many seconds."""
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
    """Whether a message is in the log, even if not confirmed on the disk or on a slave."""
    return refusal is None or refusal.code in STORED_ALL_THE_SAME


def is_hopeless(refusal: StoreRefused) -> bool:
    """Whether the message itself is refused, so that a retry is useless; False if the store is
    busy.
    """
    return refusal.code == ResponseCode.MESSAGE_ILLEGAL


class StoreResults:
    """The results of messages that are being stored."""

    def __init__(self) -> None:
        self.missing = 0
        self._refusals: list[StoreRefused] = []
        self._complete = asyncio.Event()

    @property
    def all_well(self) -> bool:
        """Whether all of them are stored without any refusal."""
        return not self.missing and not self._refusals

    @property
    def all_stored(self) -> bool:
        """Whether all of them are in the log, even if not confirmed on the disk or on a slave."""
        return not self.missing and all(map(is_stored, self._refusals))

    @property
    def refusal(self) -> StoreRefused | None:
        """The first refusal, or None."""
        return self._refusals[0] if self._refusals else None

    def put(self, put: Callable[[OnStored], object]) -> None:
        """Store one more message: `put` gets the callback for its result.

        Raises whatever `put` raises; no result is expected then.
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
            # It may be set already, if some were stored before the next one was put.
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
    """Store items, and retry refused ones until all are stored.

    ``put`` stores one item, or calls back with None if there is nothing to store. An item for which
    it raises an error, or which no store would accept, is passed to ``set_aside``. If the store is
    busy or the disk returns errors, this function waits and retries. ``what`` is for the log.
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
