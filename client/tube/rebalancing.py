"""What a master asks for: to take partitions, and to give them back.

One event after the other: of those that have come meanwhile the first is taken and the others are
dropped, as in both clients of the original; a master sends the next one when it has heard of the
last. An event that was done is told of in heartbeats until one of these has arrived.

To take one: it is registered at its broker, five times at most, a second apart, unless somebody
else has it (410) or our tokens are not taken (415); as in Java, the C++ client tries once. The
brokers are asked side by side, so that a silent one delays its own partitions only. What is held
already is not registered again.

To give one back: if the application has messages of it they are waited for, at most
`rebalance_wait`; then they come again at whoever has it next, unless `rollback_unconfirmed` is off.
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
    """What a master has asked for."""

    number: int
    kind: int
    subscriptions: tuple[str, ...]  # as they came
    partitions: tuple[Partition, ...]

    @classmethod
    def of(cls, proto: EventProto) -> "Event":
        """Read one; partitions that cannot be read are logged and left out."""
        partitions: dict[str, Partition] = {}
        for text in proto.subscribeInfo:
            try:
                partition = SubscribeInfo.parse(text).partition
            except MalformedText as error:
                log.warning("event %d names what is not a partition: %s", proto.rebalanceId, error)
            else:
                partitions.setdefault(str(partition.key), partition)
        return cls(
            proto.rebalanceId,
            proto.opType,
            tuple(proto.subscribeInfo),
            tuple(partitions.values()),
        )

    def done(self) -> EventProto:
        """As the master is told that it was done."""
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
        """`keep_alive` is told of each broker that has a partition of ours."""
        self._member = member
        self._calls = calls
        self._table = table
        self._keep_alive = keep_alive
        # What a broker may have as ours though it is not in the table, and whether what came last
        # of it is consumed: somebody has begun to take it, or to give it back.
        self._between: dict[str, tuple[Partition, bool]] = {}
        self._has_left = False

    async def take(self, partition: Partition, offset: int = UNDEFINED) -> None:
        """Register a partition, and hold it. Raises why its broker did not do it.

        Raises TubeError (CLIENT_STOPPED) if everything was given back meanwhile: this, too.
        """
        key = str(partition.key)
        self._between[key] = partition, False
        try:
            at = await self._calls.register(partition, offset)
        except MQError as error:
            if not isinstance(error, (ConnectError, RequestTimeout)):
                self._between.pop(key, None)  # it has refused: there is nothing to give back
            raise
        self._between.pop(key, None)
        if self._has_left:
            raise for_code(Code.CLIENT_STOPPED, "the consumer is closed")
        self._table.add(partition, *at)
        self._keep_alive(partition.broker)

    async def give_back(self, keys: Iterable[str], wait: float) -> None:
        """Unregister those of these that are held, when they are not used, or after a time."""
        with self._table.leaving(keys) as leaving:
            given = [held for held in leaving if held.given is not None]
            if given:
                await self._until(lambda: all(held.given is None for held in given), wait)
            for held in leaving:
                self._let_go(held)
        await asyncio.gather(*(self._unregister(held.key) for held in leaving))

    async def give_all_back(self) -> None:
        """Unregister all that is held, and what is in between; nothing is taken any more.

        Raises nothing of brokers.
        """
        self._has_left = True
        for held in self._table:
            self._let_go(held)
        await asyncio.gather(*map(self._unregister, list(self._between)))

    def _let_go(self, held: RegisteredPartition) -> None:
        """Hold it no more. What was not confirmed comes again, unless options say other.

        So does what was got, and not given to anybody: `last_consumed` is False from the get on.
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
        except MQError as error:  # it forgets us when our heartbeats have not come for long
            log.warning("%s was not unregistered: %s", key, error)
        self._between.pop(key, None)

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not is_so():
                    await self._table.changed()
        except TimeoutError:
            log.info("messages were not confirmed within %g s, and their partition leaves", seconds)


class Rebalancing:
    """Does what masters ask for, one event at a time."""

    def __init__(
        self,
        member: Membership,
        table: PartitionTable,
        handing: PartitionTransfer,
        on_done: Callable[[], None],
    ) -> None:
        """`on_done` is called when partitions were taken for the first time, and again."""
        self._member = member
        self._table = table
        self._handing = handing
        self._on_done = on_done
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        #: What was done and no master has heard of yet, the oldest first.
        self.results: deque[EventProto] = deque()
        #: What is held is not what the master has heard last, though no result will say so.
        self.has_changed = False
        self._registrations = 0
        #: Where to begin in a partition, as long as that was not said before.
        self.start_offset: Callable[[str], int] = lambda _: UNDEFINED

    def offer(self, event: Event) -> None:
        """Do this when nothing else is being done."""
        self._events.append(event)
        self._idle.clear()
        self._news.set()

    def registered(self) -> None:
        """A master has heard what we hold, and knows nothing of the events before.

        The original's takes any result for that of its own first event, and drops that.
        """
        self.results.clear()
        self._registrations += 1

    async def idle(self) -> None:
        """Wait until nothing is being done."""
        await self._idle.wait()

    async def run(self) -> None:
        """Do what is offered, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            event = self._events.popleft()
            if self._events:
                log.info("%d events behind %d were dropped", len(self._events), event.number)
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
            log.warning("event %d is of type %d, which asks for nothing", event.number, event.kind)
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
                # Its broker has moved. Where it was nobody says that it is not ours any more. (The
                # C++ client looks at the key only, and stays there.)
                log.warning("%s is read from %s now", held.partition, partition.broker.address)
                self._table.remove(held.key)
                held = None
            if held is None:
                new.setdefault(partition.broker, []).append(partition)
        await asyncio.gather(*map(self._connect_broker, new.values()))
        self._on_done()

    async def _connect_broker(self, partitions: list[Partition]) -> None:
        """Register the partitions of a broker, round after round; what stays out is logged."""
        left = partitions
        for attempt in range(1, REGISTER_TRIES + 1):
            if attempt > 1:
                await asyncio.sleep(REGISTER_PAUSE_SECONDS)
            left = await self._round(left, attempt)
            if not left:
                return
        for partition in left:
            log.warning("%s was not registered: it has to be given anew", partition)

    async def _round(self, partitions: list[Partition], attempt: int) -> list[Partition]:
        """Try each once; those that are worth another try. A silent broker is not asked on."""
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
