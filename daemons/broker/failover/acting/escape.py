"""Escape: an acting master delivers to other brokers of the cluster, because its log must stay its
master's (EscapeBridge of 5.x).

A message goes to each of the other brokers in turn that has its topic. If no other broker has a
retry topic yet, the receiving broker creates it. The caller sends a message again after an error or
a missing reply: if only the reply was lost, the message is stored twice.

A message is forwarded as its sender sent it, without the steps that are already done:

    delivered   its delay is over: it must not be delayed again
    rolled      it still waits for its time, and goes to the timer of the other broker
    half        its transaction is open: it becomes a half at the other broker, which checks it
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import NamedTuple

from mq.client.errors import MQError, RouteNotFound
from mq.client.routing.routes import broker_address, write_queues
from mq.client.routing.targets import DEFAULT_QUEUES
from mq.client.transport.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.timer_request import deliver_time, number
from mq.daemons.broker.delivery.waiting import is_stored
from mq.daemons.broker.delivery.writer import MessageWriter, NoTarget, real_target
from mq.daemons.broker.failover.acting.members import NameServerSession
from mq.daemons.broker.store import MessageStore, OnStored, StoreRefused
from mq.daemons.broker.topics.topic_table import Topics
from mq.protocol import names
from mq.protocol.bodies import TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.headers.send import Letter
from mq.protocol.message import StoredMessage
from mq.protocol.properties import PropertyKey, encode

log = logging.getLogger(__name__)

_HOST_FLAGS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6

_TIMER = (
    PropertyKey.TIMER_DELAY_SEC,
    PropertyKey.TIMER_DELAY_MS,
    PropertyKey.TIMER_DELIVER_MS,
    PropertyKey.TIMER_OUT_MS,
    PropertyKey.TIMER_ENQUEUE_MS,
    PropertyKey.TIMER_DEQUEUE_MS,
    PropertyKey.TIMER_ROLL_TIMES,
)
_ANY_TIMES = str((1 << 31) - 1)
_SLOT_MS = 1000  # of a slot of the timer (timerPrecisionMs)
_WAITED = (PropertyKey.REAL_TOPIC, PropertyKey.REAL_QUEUE_ID)
_CHECKED = (PropertyKey.TRANSACTION_CHECK_TIMES, PropertyKey.TRANSACTION_PREPARED_QUEUE_OFFSET)

SEND_SECONDS = 3.0  # Java's SEND_TIMEOUT
ROUTE_AGE = 5.0
MAX_AT_ONCE = 32  # messages in flight
# Bytes of messages that are in flight or wait for that; they have been read from the log. A larger
# message goes alone.
MAX_WAITING_BYTES = 16 * 1024 * 1024
# After an error, so that a cluster without another broker is not asked in a loop.
PAUSE_SECONDS = 0.5


class ForwardedMessage:
    """A message for any queue of a topic."""

    def __init__(self, topic: str, sys_flag: int, properties: dict[str, str]) -> None:
        self.topic = topic
        self.sys_flag = sys_flag
        self.properties = properties

    def command(self, message: StoredMessage, group: str, queue_id: int, broker: str) -> Command:
        """The request that sends it to a queue of a broker. ``group`` is the producer's group for a
        message without one.
        """
        fields = {
            Letter.PRODUCER_GROUP: self.properties.get(PropertyKey.PRODUCER_GROUP) or group,
            Letter.TOPIC: self.topic,
            Letter.DEFAULT_TOPIC: names.DEFAULT_TOPIC,
            Letter.DEFAULT_TOPIC_QUEUE_NUMS: str(DEFAULT_QUEUES),
            Letter.QUEUE_ID: str(queue_id),
            Letter.SYS_FLAG: str(self.sys_flag),
            Letter.BORN_TIMESTAMP: str(message.born_timestamp),
            Letter.FLAG: str(message.flag),
            Letter.PROPERTIES: encode(self.properties),
            Letter.RECONSUME_TIMES: str(message.reconsume_times),
            Letter.UNIT_MODE: "false",
            Letter.BATCH: "false",
            Letter.BROKER_NAME: broker,
        }
        if self.topic.startswith(names.RETRY_PREFIX):  # else it may become a dead letter there
            fields[Letter.MAX_RECONSUME_TIMES] = _ANY_TIMES
        return Command(RequestCode.SEND_MESSAGE_V2, fields, bytes(message.body))


def delivered(message: StoredMessage) -> ForwardedMessage:
    """A message whose delay is over, with its real topic. A committed message is no longer a half,
    although its property says so.
    """
    removed = (
        *_WAITED,
        *_TIMER,
        *_CHECKED,
        PropertyKey.DELAY_LEVEL,
        PropertyKey.TRANSACTION_PREPARED,
    )
    return ForwardedMessage(message.topic, _sys_flag(message), _without(message, removed))


def rolled(message: StoredMessage) -> ForwardedMessage:
    """A message of the timer's queue, with its delivery time.

    Raises NoTarget, also for one that withdraws another message: that one does not go to the same
    broker.
    """
    if PropertyKey.TIMER_DELETE_UNIQUE_KEY in message.properties:
        raise NoTarget("the message that it withdraws waits at this broker")
    due = number(message, PropertyKey.TIMER_OUT_MS)
    if due is None:
        raise NoTarget("TIMER_OUT_MS is not a number")
    topic, _ = real_target(message.properties)
    removed = (
        *_WAITED,
        *_TIMER,
        *_CHECKED,
        PropertyKey.DELAY_LEVEL,
        PropertyKey.TRANSACTION_PREPARED,
    )
    properties = _without(message, removed)
    properties[PropertyKey.TIMER_DELIVER_MS] = str(_exact(message, due))
    return ForwardedMessage(topic, _sys_flag(message), properties)


def _exact(message: StoredMessage, slot: int) -> int:
    """The delivery time of a message in a timer slot, in ms; late rather than early. A delay counts
    from the first store time.
    """
    has_rolled = PropertyKey.TIMER_ROLL_TIMES in message.properties
    asks_for_time = PropertyKey.TIMER_DELIVER_MS in message.properties
    exact = None
    if asks_for_time or not has_rolled:
        exact = deliver_time(message, message.store_timestamp)
    return slot + _SLOT_MS if exact is None else exact


def half(message: StoredMessage) -> ForwardedMessage:
    """A half, under its real topic. Raises NoTarget."""
    topic, _ = real_target(message.properties)
    flag = _sys_flag(message) | SysFlag.TRANSACTION_PREPARED
    return ForwardedMessage(topic, flag, _without(message, (*_WAITED, *_CHECKED)))


def _sys_flag(message: StoredMessage) -> int:
    return message.sys_flag & ~_HOST_FLAGS & ~SysFlag.TRANSACTION_MASK


def _without(message: StoredMessage, removed: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in message.properties.items() if name not in removed}


class RemoteQueue(NamedTuple):
    """A queue of another broker."""

    session: Session
    address: str
    broker: str
    queue_id: int


class _Parcel(NamedTuple):
    message: StoredMessage
    outgoing: ForwardedMessage
    on_stored: OnStored
    size: int


def _size(message: StoredMessage) -> int:
    """Approximate bytes of a message: of its body, and of its properties, which can be 32 KB."""
    texts = message.properties.items()
    return len(message.body) + sum(len(name) + len(value) for name, value in texts)


class EscapeBridge:
    """Sends messages while it is open. ``escaped`` counts those that are stored."""

    def __init__(
        self, settings: BrokerSettings, name_servers: Callable[[], Iterable[NameServerSession]]
    ) -> None:
        self.escaped = 0
        self._settings = settings
        self._name_servers = name_servers
        self._waiting: deque[_Parcel] = deque()
        self._bytes = 0  # of messages, waiting and in flight
        self._carriers: set[asyncio.Task[None]] = set()
        self._turn = count()
        self._is_open = False
        broker = settings.broker
        # Sent in place of the producer's group (EscapeBridge.innerProducerGroupName).
        self._group = f"InnerProducerGroup_{broker.broker_name}_{broker.broker_id}"

    def open(self) -> None:
        """Accept messages from now on."""
        self._is_open = True

    def send(self, message: StoredMessage, outgoing: ForwardedMessage, on_stored: OnStored) -> None:
        """Send a message to another broker; the result is passed to ``on_stored`` later.

        Raises StoreRefused while it is closed, and when too many bytes wait.
        """
        if not self._is_open:
            raise StoreRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this slave is no longer acting master"
            )
        size = _size(message)
        if self._bytes and self._bytes + size > MAX_WAITING_BYTES:
            raise StoreRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "too many messages are in flight to other brokers",
            )
        self._bytes += size
        self._waiting.append(_Parcel(message, outgoing, on_stored, size))
        if len(self._carriers) < MAX_AT_ONCE:
            carrier = asyncio.create_task(self._carry(), name="escape")
            self._carriers.add(carrier)
            carrier.add_done_callback(self._carriers.discard)

    async def drain(self) -> None:
        """Refuse messages, and wait until all that are in flight have arrived or failed. Messages
        that are not sent yet stay here.
        """
        self._is_open = False
        late = StoreRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the master is back")
        while self._waiting:
            self._end(self._waiting.popleft(), late)
        if self._carriers:
            await asyncio.wait(set(self._carriers))

    async def close(self) -> None:
        """Cancel the messages in flight. Idempotent."""
        self._is_open = False
        for carrier in list(self._carriers):
            carrier.cancel()
        if self._carriers:
            await asyncio.wait(set(self._carriers))
        self._waiting.clear()
        self._bytes = 0

    def _end(self, parcel: _Parcel, refusal: StoreRefused | None) -> None:
        self._bytes -= parcel.size
        parcel.on_stored(refusal)

    async def _carry(self) -> None:
        while self._waiting:
            parcel = self._waiting.popleft()
            refusal: StoreRefused | None = StoreRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "it was not sent"
            )
            try:
                refusal = await self._deliver(parcel)
            except MQError as error:
                refusal = StoreRefused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
            except Exception as error:  # of this message: the others continue
                log.exception("cannot send %r to another broker", parcel.message)
                refusal = StoreRefused(ResponseCode.SYSTEM_ERROR, str(error))
            finally:
                self._end(parcel, refusal)
            if is_stored(refusal):
                self.escaped += 1
                continue
            log.warning("sending messages of %s is delayed: %s", parcel.outgoing.topic, refusal,
                        extra={"failure": "escape"})  # fmt: skip
            await asyncio.sleep(PAUSE_SECONDS if self._is_open else 0)

    async def _deliver(self, parcel: _Parcel) -> StoreRefused | None:
        """None when it is stored. Raises MQError."""
        queue = await self._next_queue(parcel.outgoing.topic)
        command = parcel.outgoing.command(parcel.message, self._group, queue.queue_id, queue.broker)
        reply = await queue.session.invoke(queue.address, command, SEND_SECONDS)
        if reply.code == ResponseCode.SUCCESS:
            return None
        with contextlib.suppress(ValueError):
            return StoreRefused(ResponseCode(reply.code), f"{queue.address}: {reply.remark}")
        return StoreRefused(ResponseCode.SYSTEM_ERROR, f"{queue.address}: {reply.remark}")

    async def _next_queue(self, topic: str) -> RemoteQueue:
        """The queue for the next message of a topic. Raises MQError if there is none."""
        found = await self._queues(topic)
        if not found and topic.startswith(names.RETRY_PREFIX):
            cluster = self._settings.broker.broker_cluster_name  # a topic that each broker has
            found = [queue._replace(queue_id=0) for queue in await self._queues(cluster)]
        if not found:
            raise MQError(f"no other broker of the cluster accepts messages of {topic}")
        return found[next(self._turn) % len(found)]

    async def _queues(self, topic: str) -> list[RemoteQueue]:
        """The queues of a topic at other brokers."""
        own = self._settings.broker.broker_name
        for link in self._name_servers():
            try:
                route: TopicRouteData = await link.session.route(topic, max_age=ROUTE_AGE)
            except RouteNotFound:  # another one may know it: this one may have just started
                continue
            except MQError as error:
                log.debug("no route of %s from %s: %s", topic, link.address, error)
                continue
            return [
                RemoteQueue(link.session, address, queue.broker_name, queue.queue_id)
                for queue in write_queues(topic, route)
                if queue.broker_name != own
                and (address := broker_address(route, queue.broker_name)) is not None
            ]
        return []


class EscapeWriter(MessageWriter):
    """Reads from the log of this broker, and puts into those of others."""

    def __init__(
        self, settings: BrokerSettings, store: MessageStore, topics: Topics, bridge: EscapeBridge
    ) -> None:
        super().__init__(settings, store, topics)
        self._bridge = bridge

    def target_of(self, properties: Mapping[str, str]) -> tuple[str, int]:
        """The real topic and queue of a deferred message. Other brokers may have the topic although
        this slave does not know it, because its copy of the topics may be older than the
        message. Raises NoTarget.
        """
        return real_target(properties)

    def put(self, message: StoredMessage, on_stored: OnStored | None = None) -> int:
        """Send a message to another broker. Returns -1, because it gets no physical offset here.

        Raises StoreRefused, and NoTarget for a message that cannot go to another broker.
        """
        if message.topic == names.TIMER_TOPIC:
            outgoing = rolled(message)
        elif message.topic == names.TRANSACTION_HALF_TOPIC:
            outgoing = half(message)
        else:
            outgoing = delivered(message)
        self._bridge.send(message, outgoing, on_stored or (lambda refusal: None))
        return -1
