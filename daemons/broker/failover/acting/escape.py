"""Escape: an acting master delivers to other brokers of the cluster, because its log must stay its
master's (EscapeBridge of 5.x).

A message goes to each of the other brokers in turn that has its topic. If no other broker has a
retry topic yet, the receiving broker creates it. The caller sends a message again after an error or
a missing reply: if only the reply was lost, the message is stored twice.
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
from mq.client.transport.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.waiting import is_stored
from mq.daemons.broker.delivery.writer import MessageWriter, real_target
from mq.daemons.broker.failover.acting.forwarded_messages import (
    ForwardedMessage,
    delivered,
    half,
    rolled,
)
from mq.daemons.broker.failover.acting.members import NameServerSession
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.waiters import OnStored
from mq.daemons.broker.topics.topic_table import Topics
from mq.protocol import names
from mq.protocol.bodies import TopicRouteData
from mq.protocol.codes import ResponseCode
from mq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

SEND_SECONDS = 3.0  # Java's SEND_TIMEOUT
ROUTE_AGE = 5.0
MAX_AT_ONCE = 32  # messages in flight
# Bytes of messages that are in flight or wait for that; they have been read from the log. A larger
# message goes alone.
MAX_WAITING_BYTES = 16 * 1024 * 1024
# After an error, so that a cluster without another broker is not asked in a loop.
PAUSE_SECONDS = 0.5


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
