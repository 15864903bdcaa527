"""The partitions that a consumer owns, and whose turn it is (RmtDataCacheCsm, RmtDataCache).

A partition is idle, or in use (a get is in flight, or its messages wait for confirmation), or
paused until a timer makes it idle again. Idle partitions are taken in the order in which they
became idle. Each use has a stamp, ms since 1970 but never the same twice, which distinguishes it
from other uses, also in a confirm context.

A partition that is being revoked is not taken any more; it is removed when it is no longer used, or
the wait for that ends.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from mq.client.machine import clock
from mq.client.tube.flow import PartitionFlow, Reply
from mq.client.tube.message import ConsumedOffset
from mq.protocol.tube.codes import UNDEFINED, Code
from mq.protocol.tube.strings import BrokerInfo, Partition

# A delay up to this counts as none, as in the original: a timer would cost more.
NO_DELAY_SECONDS = 0.01


class RegisteredPartition:
    """A partition that this consumer has registered at its broker."""

    __slots__ = (
        *("confirming", "flow", "given", "key", "last_consumed", "leaves", "offset", "partition"),
        *("reply", "stamp", "timer"),
    )

    def __init__(self, partition: Partition, offset: int, most: int) -> None:
        self.partition = partition
        self.key = str(partition.key)
        self.flow = PartitionFlow()
        self.last_consumed = False  # what the next get reports about the messages before it
        self.stamp: int | None = None  # of the current use
        self.given: float | None = None  # when the application got messages, in the loop's seconds
        self.confirming = False  # the confirmation of these messages is in flight
        self.reply: Reply | None = None  # the reply that contained these messages
        self.leaves = False
        self.timer: asyncio.TimerHandle | None = None
        self.offset = ConsumedOffset(offset, most)

    def book(self, offset: int, most: int = UNDEFINED) -> None:
        """Record an offset and an end from the broker; values below 0 are unknown."""
        before = self.offset
        self.offset = ConsumedOffset(
            offset if offset >= 0 else before.offset, most if most >= 0 else before.most
        )


class PartitionTable:
    """The owned partitions, by key."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        """`on_idle` is called when a partition has become idle, or was removed."""
        self._on_idle = on_idle
        self._changes: list[asyncio.Future[None]] = []
        self._held: dict[str, RegisteredPartition] = {}
        self._idle: dict[str, RegisteredPartition] = {}  # in order
        self._stamp = 0
        self.given = 0  # uses whose messages the application has

    async def changed(self) -> None:
        """Wait until a use has ended, or a partition was removed or added."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes.append(change)
        await change

    def _notify(self) -> None:
        for change in self._changes:
            if not change.done():
                change.set_result(None)
        self._changes.clear()
        self._on_idle()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[RegisteredPartition]:
        return iter(list(self._held.values()))

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def get(self, key: str) -> RegisteredPartition | None:
        return self._held.get(key)

    def add(
        self, partition: Partition, offset: int = UNDEFINED, most: int = UNDEFINED
    ) -> RegisteredPartition:
        """Add a partition; an owned one stays unchanged."""
        key = str(partition.key)
        if key in self._held:
            return self._held[key]
        held = self._held[key] = RegisteredPartition(partition, offset, most)
        self._set_idle(held)
        return held

    def take(self) -> RegisteredPartition | None:
        """Start to use the partition whose turn it is; None if none is idle."""
        for key, held in self._idle.items():
            del self._idle[key]
            # Never the same twice: an old context would confirm later messages.
            self._stamp = held.stamp = max(clock.milliseconds(), self._stamp + 1)
            return held
        return None

    def is_used(self, held: RegisteredPartition, stamp: int | None) -> bool:
        """Whether this use of a partition is still current."""
        return stamp is not None and held.stamp == stamp and self._held.get(held.key) is held

    def give(self, held: RegisteredPartition) -> None:
        """Record that the application gets the messages of the current use."""
        held.given = asyncio.get_running_loop().time()
        self.given += 1

    def _end_use(self, held: RegisteredPartition) -> None:
        self.given -= held.given is not None
        held.stamp = held.given = held.reply = None
        held.confirming = False

    def put_back(
        self, held: RegisteredPartition, stamp: int, *, consumed: bool, delay: float
    ) -> bool:
        """End a use; the partition is idle after `delay` seconds. False if it had ended before."""
        if not self.is_used(held, stamp):
            return False
        held.last_consumed = consumed
        self._end_use(held)
        if delay > NO_DELAY_SECONDS and not held.leaves:
            held.timer = asyncio.get_running_loop().call_later(delay, self._set_idle, held)
            self._notify()  # a task may wait for the end of its use
        else:
            self._set_idle(held)
        return True

    def _set_idle(self, held: RegisteredPartition) -> None:
        held.timer = None
        if not held.leaves:
            self._idle[held.key] = held
        self._notify()

    def remove(self, key: str) -> RegisteredPartition | None:
        """Remove a partition; returns it, if it was owned."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        self._idle.pop(key, None)
        self._end_use(held)
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None
        self._notify()
        return held

    @contextmanager
    def leaving(self, keys: Iterable[str]) -> Iterator[list[RegisteredPartition]]:
        """Return the owned ones of these partitions; none of them is taken any more.

        At the end, those still owned are restored to their previous state.
        """
        found = [held for key in keys if (held := self._held.get(key)) is not None]
        for held in found:
            held.leaves = True
            self._idle.pop(held.key, None)
        try:
            yield found
        finally:
            for held in found:
                held.leaves = False
                if held.key in self._held and held.stamp is None and held.timer is None:
                    self._set_idle(held)

    def expire(self, older_than: float) -> list[RegisteredPartition]:
        """End the uses whose messages were given before a time of the loop; they are
        redelivered.
        """
        expired = [
            held
            for held in self._held.values()
            if held.given is not None and held.given < older_than and not held.confirming
        ]
        for held in expired:
            assert held.stamp is not None
            self.put_back(held, held.stamp, consumed=False, delay=0.0)
        return expired

    def status(self) -> Code:
        """Return SUCCESS if a partition is idle, otherwise the reason.

        As in Java (RmtDataCache.getCurrPartsStatus); the C++ client returns ALL_PARTITION_INUSE if
        nothing is in use, and ALL_PARTITION_WAITING if something is.
        """
        if self._idle:
            return Code.SUCCESS
        if not self._held:
            return Code.NO_PARTITION_ASSIGNED
        if any(held.timer is not None for held in self._held.values()):
            return Code.ALL_PARTITION_WAITING
        return Code.ALL_PARTITION_INUSE

    def of_broker(self, broker: BrokerInfo) -> list[RegisteredPartition]:
        """Return the partitions at a broker."""
        return [held for held in self._held.values() if held.partition.broker == broker]

    def offsets(self) -> dict[str, ConsumedOffset]:
        return {key: held.offset for key, held in self._held.items()}
