"""What the broker's own readers of queues need: to wait for messages, and for what they put."""

import asyncio

from mq.daemons.broker.store.append import OnStored
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.daemons.broker.store.errors import StoreRefused

# A reader looks again after so long even if nothing woke it.
_LONGEST_WAIT = 10.0


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


class Outcomes:
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
    def refusal(self) -> StoreRefused | None:
        """Why the first of those that are not stored is not."""
        return self._refusals[0] if self._refusals else None

    def add(self) -> OnStored:
        """Expect one more; returns what is to be called with its outcome."""
        self.missing += 1
        return self._stored

    async def wait(self) -> None:
        """Return when no outcome is missing."""
        if self.missing:
            await self._complete.wait()

    def _stored(self, refusal: StoreRefused | None) -> None:
        if refusal is not None:
            self._refusals.append(refusal)
        self.missing -= 1
        if not self.missing:
            self._complete.set()
