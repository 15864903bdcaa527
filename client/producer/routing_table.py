"""The routing table of a producer: where the messages of each topic go, updated with the routes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container
from functools import partial
from weakref import WeakValueDictionary

from mq.client.errors import ClientError, MQError, RequestTimeout, RouteNotFound
from mq.client.machine import clock
from mq.client.namespace import with_namespace
from mq.client.routing.latency import BrokerFaults, FaultTolerance
from mq.client.routing.routes import broker_address, write_queues
from mq.client.routing.targets import Target, queues_to_create, vip_address
from mq.client.send_result import SendResult
from mq.client.transport.session import Session
from mq.protocol.bodies import MessageQueue, TopicRouteData
from mq.protocol.codes import RequestCode
from mq.protocol.names import DEFAULT_TOPIC, check_topic

CHECK_SECONDS = 0.05  # between two checks for the new master of a replica set
# Between two checks for a broker that is in no route: a constant stream of sends to it causes at
# most ten queries per second.
MISSED_SECONDS = 0.1
SENDS = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))


class RoutingTable:
    """The targets of one producer. A known target is used at once; it is updated each second."""

    def __init__(
        self,
        session: Session,
        namespace: str | None,
        faults: FaultTolerance | None,
        *,
        vip: bool,
        beat_new: Callable[[], Awaitable[None]],
    ) -> None:
        """`beat_new` sends heartbeats to brokers that became targets.

        With `vip` messages go to the port that brokers reserve for producers.
        """
        self._session = session
        self._namespace = namespace
        self._vip = vip
        self._beat_new = beat_new
        self._targets: dict[str, Target] = {}
        self._names: dict[str, str] = {}  # of brokers, by address
        self._locks: WeakValueDictionary[frozenset[tuple[str, str]], asyncio.Lock]
        self._locks = WeakValueDictionary()  # locks of callers that wait for other addresses
        self._misses: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by topic
        self.faults = None if faults is None else BrokerFaults(faults)

    async def prepare(self, topic: str, timeout: float | None = None) -> Target:
        """Return the target of `topic`; only the first call waits.

        Raises what `Producer.prepare` raises.
        """
        if self._namespace is not None:
            topic = with_namespace(self._namespace, topic)
        target = self._targets.get(topic)
        if target is not None:
            now = asyncio.get_running_loop().time()
            if now >= target.until:
                target = self._renewed(topic, target)
                target.until = now + 1.0
            return target
        check_topic(topic)
        seconds = self._session.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                route, queues = await self._find(topic)
        except TimeoutError:
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            raise RequestTimeout(self._session.name_server, seconds, code) from None
        return self._aim(topic, route, queues)

    async def _find(self, topic: str) -> tuple[TopicRouteData, list[MessageQueue]]:
        try:
            route = await self._session.route(topic)
        except RouteNotFound:
            try:
                route = await self._session.route(DEFAULT_TOPIC)
            except RouteNotFound:
                raise RouteNotFound(topic) from None
            return route, queues_to_create(topic, route)
        return route, write_queues(topic, route)

    def _aim(self, topic: str, route: TopicRouteData, queues: list[MessageQueue]) -> Target:
        until = asyncio.get_running_loop().time() + 1.0
        try:
            target = Target(topic, route, queues, until, vip=self._vip)
        except RouteNotFound:  # another master may be elected soon
            self._session.refresh_route(topic)
            raise
        self._targets[topic] = target
        self._names.update((address, name) for name, address in target.addresses.items())
        self._session.keep_task(self._introduce())
        return target

    async def _introduce(self) -> None:
        await self._beat_new()

    def _renewed(self, topic: str, target: Target) -> Target:
        """Return the target of the newest known route, and refresh the route if it is old."""
        route = self._session.current_route(topic)
        if route is None:  # the topic is yet to be created, or was created meanwhile
            self._session.refresh_route(topic)
            route = self._session.current_route(DEFAULT_TOPIC)
            if route is None or route is target.route:
                return target
            return self._aim(topic, route, queues_to_create(topic, route))
        if route is target.route:
            return target
        return self._aim(topic, route, write_queues(topic, route))

    def target(self, topic: str) -> Target:
        """Return the target of a prepared topic. Raises ClientError for another one."""
        if self._namespace is not None:
            topic = with_namespace(self._namespace, topic)
        target = self._targets.get(topic)
        if target is None:
            raise ClientError(f"topic {topic} is not prepared")
        return target

    async def newer_target(self, topic: str, seconds: float) -> Target:
        """Wait up to `seconds` for a newer target of a topic whose known one lacks a broker: the
        broker may have returned since the route was fetched. Raises what `prepare` raises.
        """
        routed, called = self.routed(topic), clock.monotonic()
        with contextlib.suppress(MQError, TimeoutError):
            async with asyncio.timeout(seconds), self._misses.setdefault(topic, asyncio.Lock()):
                asked = self._session.route_asked(routed)
                if asked < called:  # otherwise another caller has fetched it for all
                    await asyncio.sleep(asked + MISSED_SECONDS - clock.monotonic())
                    await self._session.fresh_route(routed)
        self.target(topic).until = 0
        return await self.prepare(topic)

    async def prepare_for(self, topic: str, broker_name: str, seconds: float) -> Target:
        """Return the target of a topic; if it lacks the broker, wait up to `seconds` for a newer
        one.

        Raises what `prepare` raises.
        """
        target = await self.prepare(topic)
        if broker_name in target.addresses:
            return target
        if self._namespace is not None:
            topic = with_namespace(self._namespace, topic)
        return await self.newer_target(topic, seconds)

    def next(self, target: Target, avoid: Container[str] = ()) -> MessageQueue:
        """Return the next queue in turn, if possible of a broker that is not in `avoid`."""
        if not self.faults:
            return target.next(avoid)
        return target.next_available(self.faults, avoid)

    def isolate(self, broker_name: str) -> None:
        """Record that a send to a broker failed or was not answered in time."""
        if self.faults is not None:
            self.faults.isolate(broker_name)

    def record(self, broker_name: str, seconds: float) -> None:
        """Record that a broker answered a send after `seconds`."""
        if self.faults is not None:
            self.faults.record(broker_name, seconds)

    def unanswered(self, address: str, code: int) -> None:
        """Avoid the broker at an address after a request that failed or was not answered in
        time.
        """
        if self.faults is not None and code in SENDS:
            name = self._names.get(address)
            if name is not None:
                self.faults.isolate(name)

    def watch(self, sent: "asyncio.Future[SendResult]", queue: MessageQueue) -> None:
        """Record the duration of a send to a broker that is currently avoided."""
        if self.faults and queue.broker_name in self.faults:
            began = asyncio.get_running_loop().time()
            sent.add_done_callback(partial(self._note, queue.broker_name, began))

    def _note(self, broker_name: str, began: float, sent: "asyncio.Future[SendResult]") -> None:
        if self.faults is not None and not sent.cancelled() and sent.exception() is None:
            self.faults.record(broker_name, asyncio.get_running_loop().time() - began)

    def address(self, target: Target, queue: MessageQueue) -> str:
        """Return the address of the broker of a queue. Raises RouteNotFound."""
        address = target.addresses.get(queue.broker_name)
        if address is None:
            raise RouteNotFound(queue.topic, f"no master {queue.broker_name} in its route")
        return address

    def routed(self, topic: str) -> str:
        """Return the topic whose route determines the targets: `topic`, or the default topic until
        it exists.
        """
        return DEFAULT_TOPIC if self._session.known_route(topic) is None else topic

    def outdate(self, topic: str) -> None:
        """Refresh the route before the next message, because a broker failed."""
        self._session.outdate_route(self.routed(topic))
        target = self._targets.get(topic)
        if target is not None:
            target.until = 0

    async def wait_for_fresh_route(
        self, topic: str, seconds: float, old: Target | None = None
    ) -> None:
        """Wait up to `seconds` for a fresh route of `topic`; it may not become available.

        With `old`, a target, wait for a route that lists another address for its brokers.
        """
        with contextlib.suppress(MQError, TimeoutError):
            async with asyncio.timeout(seconds):
                if old is None:
                    await self._session.fresh_route(self.routed(topic))
                    return
                # Only one topic is queried for all topics of a replica set: with a thousand topics,
                # each producer would otherwise query each name server for all of them while the
                # replica set is down.
                async with self._locks.setdefault(frozenset(old.addresses.items()), asyncio.Lock()):
                    known = self._session.known_route(self.routed(topic))
                    if known is not None and self._is_another(known, old):
                        return
                    # There is no notification of a new route.
                    while not await self._is_renewed(topic, old):  # noqa: ASYNC110
                        await asyncio.sleep(CHECK_SECONDS)

    async def _is_renewed(self, topic: str, old: Target) -> bool:
        try:
            return self._is_another(await self._session.fresh_route(self.routed(topic)), old)
        except RouteNotFound:
            return False

    def _is_another(self, route: TopicRouteData, old: Target) -> bool:
        named = {name: self._address_in(route, name) for name in old.addresses}
        return None not in named.values() and named != old.addresses

    def _address_in(self, route: TopicRouteData, name: str) -> str | None:
        address = broker_address(route, name)
        return vip_address(address) if self._vip and address is not None else address
