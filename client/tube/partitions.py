"""The partitions that a consumer holds, and whose turn it is (RmtDataCacheCsm, RmtDataCache).

A partition is idle, or in use - a get is under way, or its messages wait to be confirmed - or it
is left alone until a timer has it idle again. Idle ones are taken in the order in which they became
so. Each use has a stamp, ms since 1970 but never the same twice: it is what tells this use from
others, in a confirm context as well.

One that is to leave is not taken any more; it goes when nobody uses it, or nobody waits for that.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from mq.client.machine import clock
from mq.client.tube.flow import PartitionFlow, Reply
from mq.client.tube.message import ConsumedOffset
from mq.protocol.tube.codes import UNDEFINED, Code
from mq.protocol.tube.strings import BrokerInfo, Partition

# A delay that is not longer is none, as in the original: the timer would cost more.
NO_DELAY_SECONDS = 0.01


class RegisteredPartition:
    """A partition that is registered at its broker as ours."""

    __slots__ = (
        *("confirming", "flow", "given", "key", "last_consumed", "leaves", "offset", "partition"),
        *("reply", "stamp", "timer"),
    )

    def __init__(self, partition: Partition, offset: int, most: int) -> None:
        self.partition = partition
        self.key = str(partition.key)
        self.flow = PartitionFlow()
        self.last_consumed = False  # what the next get says of the messages before it
        self.stamp: int | None = None  # of the use that is under way
        self.given: float | None = None  # when the application got messages, seconds of the loop
        self.confirming = False  # the broker is being told of these messages
        self.reply: Reply | None = None  # that these messages came with
        self.leaves = False
        self.timer: asyncio.TimerHandle | None = None
        self.offset = ConsumedOffset(offset, most)

    def book(self, offset: int, most: int = UNDEFINED) -> None:
        """Take an offset that the broker has said, and the end; what is below 0 is not known."""
        before = self.offset
        self.offset = ConsumedOffset(
            offset if offset >= 0 else before.offset, most if most >= 0 else before.most
        )


class PartitionTable:
    """The partitions held, by key."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        """`on_idle` is called when a partition has become idle, or has left."""
        self._on_idle = on_idle
        self._changes: list[asyncio.Future[None]] = []
        self._held: dict[str, RegisteredPartition] = {}
        self._idle: dict[str, RegisteredPartition] = {}  # in order
        self._stamp = 0
        self.given = 0  # uses whose messages the application has

    async def changed(self) -> None:
        """Wait until a use has ended, or a partition has left or come."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes.append(change)
        await change

    def _tell(self) -> None:
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
        """Hold a partition from now on; one that is held already stays as it is."""
        key = str(partition.key)
        if key in self._held:
            return self._held[key]
        held = self._held[key] = RegisteredPartition(partition, offset, most)
        self._set_idle(held)
        return held

    def take(self) -> RegisteredPartition | None:
        """Use the partition whose turn it is; None if none is idle."""
        for key, held in self._idle.items():
            del self._idle[key]
            # Never the same twice: an old context would confirm messages that came later.
            self._stamp = held.stamp = max(clock.milliseconds(), self._stamp + 1)
            return held
        return None

    def is_used(self, held: RegisteredPartition, stamp: int | None) -> bool:
        """Whether this use of a partition still goes on."""
        return stamp is not None and held.stamp == stamp and self._held.get(held.key) is held

    def give(self, held: RegisteredPartition) -> None:
        """The application gets the messages of the use that is under way."""
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
            self._tell()  # somebody may wait for it to be used no more
        else:
            self._set_idle(held)
        return True

    def _set_idle(self, held: RegisteredPartition) -> None:
        held.timer = None
        if not held.leaves:
            self._idle[held.key] = held
        self._tell()

    def remove(self, key: str) -> RegisteredPartition | None:
        """Hold a partition no more; returns it, if it was held."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        self._idle.pop(key, None)
        self._end_use(held)
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None
        self._tell()
        return held

    @contextmanager
    def leaving(self, keys: Iterable[str]) -> Iterator[list[RegisteredPartition]]:
        """Those of these that are held; none of them is taken any more.

        The ones that are held still at the end are as they were before.
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
        """End the uses whose messages were given before a time of the loop; they come again."""
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
        """SUCCESS if a partition is idle, else why there is none.

        As Java says it (RmtDataCache.getCurrPartsStatus); the C++ client says ALL_PARTITION_INUSE
        where nothing is in use, and ALL_PARTITION_WAITING where something is.
        """
        if self._idle:
            return Code.SUCCESS
        if not self._held:
            return Code.NO_PARTITION_ASSIGNED
        if any(held.timer is not None for held in self._held.values()):
            return Code.ALL_PARTITION_WAITING
        return Code.ALL_PARTITION_INUSE

    def of_broker(self, broker: BrokerInfo) -> list[RegisteredPartition]:
        """The partitions that a broker has."""
        return [held for held in self._held.values() if held.partition.broker == broker]

    def offsets(self) -> dict[str, ConsumedOffset]:
        return {key: held.offset for key, held in self._held.items()}
