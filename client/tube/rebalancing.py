"""Rebalancing: takes partitions that a master assigns, and gives back those that it revokes.

Events are processed one at a time: of those that arrived meanwhile the first is processed and the
others are dropped, as in both clients of the original; a master sends the next event after it has
received the result of the last. Heartbeats report a processed event until one of them has arrived.

To take a partition, it is registered at its broker, five times at most, a second apart, unless
another client has it (410) or the tokens are refused (415); as in Java, the C++ client tries once.
Brokers are called concurrently, so that a silent one delays only its own partitions. An owned
partition is not registered again.

To give one back, messages in the application are waited for, at most `rebalance_wait`; then they
are redelivered to the next owner, unless `rollback_unconfirmed` is off.
(RmtDataCache.removeAndGetPartition; the C++ client does not wait.)
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mq.client.errors import ConnectError, MQError, RequestTimeout
from mq.client.tube.broker_calls import BrokerCalls
from mq.client.tube.errors import for_code
from mq.client.tube.membership import Membership
from mq.client.tube.partitions import PartitionTable, RegisteredPartition
from mq.protocol.tube.codes import UNDEFINED, Code, EventStatus, EventType
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.messages import EventProto
from mq.protocol.tube.strings import BrokerInfo, Partition, SubscribeInfo

log = logging.getLogger(__name__)

REGISTER_TRIES = 5
REGISTER_PAUSE_SECONDS = 1.0
_FINAL = (Code.PARTITION_OCCUPIED, Code.CERTIFICATE_FAILURE)


@dataclass(frozen=True, slots=True)
class Event:
    """An event from a master."""

    number: int
    kind: int
    subscriptions: tuple[str, ...]  # as received
    partitions: tuple[Partition, ...]

    @classmethod
    def of(cls, proto: EventProto) -> "Event":
        """Decode an event; invalid partitions are logged and left out."""
        partitions: dict[str, Partition] = {}
        for text in proto.subscribeInfo:
            try:
                partition = SubscribeInfo.parse(text).partition
            except MalformedText as error:
                log.warning("event %d names an invalid partition: %s", proto.rebalanceId, error)
            else:
                partitions.setdefault(str(partition.key), partition)
        return cls(
            proto.rebalanceId,
            proto.opType,
            tuple(proto.subscribeInfo),
            tuple(partitions.values()),
        )

    def done(self) -> EventProto:
        """Return the message that reports the event as done."""
        return EventProto(
            rebalanceId=self.number,
            opType=self.kind,
            status=EventStatus.DONE,
            subscribeInfo=self.subscriptions,
        )


class PartitionTransfer:
    """Takes partitions from brokers, and gives them back."""

    def __init__(
        self,
        member: Membership,
        calls: BrokerCalls,
        table: PartitionTable,
        keep_alive: Callable[[BrokerInfo], None],
    ) -> None:
        """`keep_alive` is called with each broker at which this consumer has a partition."""
        self._member = member
        self._calls = calls
        self._table = table
        self._keep_alive = keep_alive
        # Partitions that a broker may assign to this consumer although they are not in the table,
        # and whether their last messages are consumed: a take or a give-back is in progress.
        self._between: dict[str, tuple[Partition, bool]] = {}
        self._has_left = False

    async def take(self, partition: Partition, offset: int = UNDEFINED) -> None:
        """Register and own a partition. Raises the broker's error.

        Raises TubeError (CLIENT_STOPPED) if all partitions, including this one, were given back
        meanwhile.
        """
        key = str(partition.key)
        self._between[key] = partition, False
        try:
            at = await self._calls.register(partition, offset)
        except MQError as error:
            if not isinstance(error, (ConnectError, RequestTimeout)):
                self._between.pop(key, None)  # it was refused: there is nothing to give back
            raise
        self._between.pop(key, None)
        if self._has_left:
            raise for_code(Code.CLIENT_STOPPED, "the consumer is closed")
        self._table.add(partition, *at)
        self._keep_alive(partition.broker)

    async def give_back(self, keys: Iterable[str], wait: float) -> None:
        """Unregister the owned ones of these, when they are not used, or after a wait."""
        with self._table.leaving(keys) as leaving:
            given = [held for held in leaving if held.given is not None]
            if given:
                await self._until(lambda: all(held.given is None for held in given), wait)
            for held in leaving:
                self._drop(held)
        await asyncio.gather(*(self._unregister(held.key) for held in leaving))

    async def give_all_back(self) -> None:
        """Unregister all partitions, including those being taken; later takes fail.

        Errors of brokers are not raised.
        """
        self._has_left = True
        for held in self._table:
            self._drop(held)
        await asyncio.gather(*map(self._unregister, list(self._between)))

    def _drop(self, held: RegisteredPartition) -> None:
        """Remove a partition. Unconfirmed messages are redelivered, unless the options differ.

        So are messages that were fetched but not given: `last_consumed` is False from the get on.
        """
        consumed = held.last_consumed
        if held.given is not None:
            consumed = not self._member.options.rollback_unconfirmed
        if self._table.remove(held.key) is not None:
            self._between[held.key] = held.partition, consumed

    async def _unregister(self, key: str) -> None:
        if key not in self._between:
            return
        partition, consumed = self._between[key]
        try:
            await self._calls.unregister(partition, consumed=consumed)
        except MQError as error:  # the broker evicts this consumer when heartbeats stop
            log.warning("%s was not unregistered: %s", key, error)
        self._between.pop(key, None)

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    await self._table.changed()
        except TimeoutError:
            log.info("messages not confirmed within %g s; giving back the partition", seconds)


class Rebalancing:
    """Processes the events of masters, one at a time."""

    def __init__(
        self,
        member: Membership,
        table: PartitionTable,
        handing: PartitionTransfer,
        on_done: Callable[[], None],
    ) -> None:
        """`on_done` is called after each event that takes partitions."""
        self._member = member
        self._table = table
        self._handing = handing
        self._on_done = on_done
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        #: Results that no master has received yet, the oldest first.
        self.results: deque[EventProto] = deque()
        #: The owned partitions differ from the last report, and no result will show it.
        self.has_changed = False
        self._registrations = 0
        #: The starting offset of a partition, until the group has one.
        self.start_offset: Callable[[str], int] = lambda _: UNDEFINED

    def offer(self, event: Event) -> None:
        """Queue an event."""
        self._events.append(event)
        self._idle.clear()
        self._news.set()

    def registered(self) -> None:
        """Record a registration: the master knows the owned partitions, and no earlier events.

        The original's master attributes any result to its own first event, and drops that event.
        """
        self.results.clear()
        self._registrations += 1

    async def idle(self) -> None:
        """Wait until no event is being processed."""
        await self._idle.wait()

    async def run(self) -> None:
        """Process events until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            event = self._events.popleft()
            if self._events:
                log.info("dropped %d events after %d", len(self._events), event.number)
                self._events.clear()
            try:
                await self._process(event)
            except Exception:
                log.exception("event %d failed", event.number)
            if not self._events:
                self._idle.set()

    async def _process(self, event: Event) -> None:
        log.info(
            "event %d: type %d, %d partitions", event.number, event.kind, len(event.partitions)
        )
        registrations = self._registrations
        if event.kind in (EventType.CONNECT, EventType.ONLY_CONNECT):
            await self._connect(event.partitions)
        elif event.kind in (EventType.DISCONNECT, EventType.ONLY_DISCONNECT):
            keys = [str(partition.key) for partition in event.partitions]
            await self._handing.give_back(keys, self._member.options.rebalance_wait)
        else:
            log.warning("event %d has type %d, which is unknown", event.number, event.kind)
            return
        if registrations == self._registrations:
            self.results.append(event.done())
        else:
            self.has_changed = True

    async def _connect(self, partitions: tuple[Partition, ...]) -> None:
        new: dict[BrokerInfo, list[Partition]] = {}
        for partition in partitions:
            held = self._table.get(str(partition.key))
            if held is not None and held.partition != partition:
                # Its broker has changed. The former broker does not report the loss. (The C++
                # client compares only the key, and keeps the former broker.)
                log.warning("%s moved to broker %s", held.partition, partition.broker.address)
                self._table.remove(held.key)
                held = None
            if held is None:
                new.setdefault(partition.broker, []).append(partition)
        await asyncio.gather(*map(self._connect_broker, new.values()))
        self._on_done()

    async def _connect_broker(self, partitions: list[Partition]) -> None:
        """Register the partitions of a broker in several rounds; failures are logged."""
        left = partitions
        for attempt in range(1, REGISTER_TRIES + 1):
            if attempt > 1:
                await asyncio.sleep(REGISTER_PAUSE_SECONDS)
            left = await self._round(left, attempt)
            if not left:
                return
        for partition in left:
            log.warning("%s was not registered: a master must assign it again", partition)

    async def _round(self, partitions: list[Partition], attempt: int) -> list[Partition]:
        """Try each partition once; returns those to retry. After a timeout the broker is not called
        again.
        """
        left: list[Partition] = []
        for place, partition in enumerate(partitions):
            key = str(partition.key)
            try:
                await self._handing.take(partition, self.start_offset(key))
            except (ConnectError, RequestTimeout) as error:
                log.warning("%s was not registered, try %d: %s", key, attempt, error)
                return left + partitions[place:]
            except MQError as error:
                log.warning("%s was not registered, try %d: %s", key, attempt, error)
                if getattr(error, "code", None) not in _FINAL:
                    left.append(partition)
        return left
