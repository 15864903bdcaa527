"""Targets of a producer: where its messages go by topic, kept up with the routes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container
from functools import partial
from weakref import WeakValueDictionary

from mq.client.errors import ClientError, MQError, RequestTimeout, RouteNotFound
from mq.client.latency import BrokerFaults, FaultTolerance
from mq.client.machine import clock
from mq.client.namespace import with_namespace
from mq.client.routes import broker_address, write_queues
from mq.client.send_result import SendResult
from mq.client.session import Session
from mq.client.targets import Target, queues_to_create, vip_address
from mq.protocol.bodies import MessageQueue, TopicRouteData
from mq.protocol.codes import RequestCode
from mq.protocol.names import DEFAULT_TOPIC, check_topic

LOOK_SECONDS = 0.05  # between two looks for the new master of a set
# Between two for a broker that is in no route: who sends to it all the time is one question of ten
# a second, and no more.
MISSED_SECONDS = 0.1
SENDS = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))


class RoutingTable:
    """The targets of one producer. What is known serves at once; it is renewed each second."""

    def __init__(
        self,
        session: Session,
        namespace: str | None,
        faults: FaultTolerance | None,
        *,
        vip: bool,
        beat_new: Callable[[], Awaitable[None]],
    ) -> None:
        """`beat_new` sends heartbeats to brokers that were not among the targets before.

        With `vip` messages go to the port that brokers keep for senders.
        """
        self._session = session
        self._namespace = namespace
        self._vip = vip
        self._beat_new = beat_new
        self._targets: dict[str, Target] = {}
        self._names: dict[str, str] = {}  # of brokers, by address
        self._looks: WeakValueDictionary[frozenset[tuple[str, str]], asyncio.Lock]
        self._looks = WeakValueDictionary()  # who looks for other addresses than these
        self._misses: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by topic
        self.faults = None if faults is None else BrokerFaults(faults)

    async def prepare(self, topic: str, timeout: float | None = None) -> Target:
        """The target of `topic`, waited for the first time only.

        Raises as `Producer.prepare`.
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
        except RouteNotFound:  # another master may be elected in a moment
            self._session.refresh_route(topic)
            raise
        self._targets[topic] = target
        self._names.update((address, name) for name, address in target.addresses.items())
        self._session.keep_task(self._introduce())
        return target

    async def _introduce(self) -> None:
        await self._beat_new()

    def _renewed(self, topic: str, target: Target) -> Target:
        """The target of the newest route there is; a newer one is asked for if that is old."""
        route = self._session.current_route(topic)
        if route is None:  # of a topic that is to be made, or was meanwhile
            self._session.refresh_route(topic)
            route = self._session.current_route(DEFAULT_TOPIC)
            if route is None or route is target.route:
                return target
            return self._aim(topic, route, queues_to_create(topic, route))
        if route is target.route:
            return target
        return self._aim(topic, route, write_queues(topic, route))

    def target(self, topic: str) -> Target:
        """The target of a topic that is prepared. Raises ClientError for another one."""
        if self._namespace is not None:
            topic = with_namespace(self._namespace, topic)
        target = self._targets.get(topic)
        if target is None:
            raise ClientError(f"topic {topic} is not prepared")
        return target

    async def newer_target(self, topic: str, seconds: float) -> Target:
        """The target of a topic, waited for so long, where the one that is known lacks a broker: it
        may have come back since the route was asked for. Raises as `prepare`.
        """
        routed, called = self.routed(topic), clock.monotonic()
        with contextlib.suppress(MQError, TimeoutError):
            async with asyncio.timeout(seconds), self._misses.setdefault(topic, asyncio.Lock()):
                asked = self._session.route_asked(routed)
                if asked < called:  # else by another who missed a broker, for all who wait
                    await asyncio.sleep(asked + MISSED_SECONDS - clock.monotonic())
                    await self._session.fresh_route(routed)
        self.target(topic).until = 0
        return await self.prepare(topic)

    async def prepare_for(self, topic: str, broker_name: str, seconds: float) -> Target:
        """The target of a topic, as by `prepare`: a newer one, waited for so long, where the one
        that is known lacks a broker. Raises as `prepare`."""
        target = await self.prepare(topic)
        if broker_name in target.addresses:
            return target
        if self._namespace is not None:
            topic = with_namespace(self._namespace, topic)
        return await self.newer_target(topic, seconds)

    def next(self, target: Target, avoid: Container[str] = ()) -> MessageQueue:
        """The next queue in turn, of a broker that is not in `avoid` if there is one."""
        if not self.faults:
            return target.next(avoid)
        return target.next_available(self.faults, avoid)

    def isolate(self, broker_name: str) -> None:
        """A send to a broker has failed, or has had no answer for too long."""
        if self.faults is not None:
            self.faults.isolate(broker_name)

    def record(self, broker_name: str, seconds: float) -> None:
        """A broker has answered a send after so long."""
        if self.faults is not None:
            self.faults.record(broker_name, seconds)

    def unanswered(self, address: str, code: int) -> None:
        """A request to an address has failed or had no answer in time: avoid that broker."""
        if self.faults is not None and code in SENDS:
            name = self._names.get(address)
            if name is not None:
                self.faults.isolate(name)

    def watch(self, sent: "asyncio.Future[SendResult]", queue: MessageQueue) -> None:
        """Note how long a send takes if its broker is one to avoid."""
        if self.faults and queue.broker_name in self.faults:
            began = asyncio.get_running_loop().time()
            sent.add_done_callback(partial(self._note, queue.broker_name, began))

    def _note(self, broker_name: str, began: float, sent: "asyncio.Future[SendResult]") -> None:
        if self.faults is not None and not sent.cancelled() and sent.exception() is None:
            self.faults.record(broker_name, asyncio.get_running_loop().time() - began)

    def address(self, target: Target, queue: MessageQueue) -> str:
        """The address of the broker of a queue. Raises RouteNotFound."""
        address = target.addresses.get(queue.broker_name)
        if address is None:
            raise RouteNotFound(queue.topic, f"no master {queue.broker_name} in its route")
        return address

    def routed(self, topic: str) -> str:
        """The topic whose route says where to send: itself, or the default one until it is made."""
        return DEFAULT_TOPIC if self._session.known_route(topic) is None else topic

    def outdate(self, topic: str) -> None:
        """A broker has failed: look for a fresh route before the next message."""
        self._session.outdate_route(self.routed(topic))
        target = self._targets.get(topic)
        if target is not None:
            target.until = 0

    async def look_again(self, topic: str, seconds: float, old: Target | None = None) -> None:
        """Wait for a fresh route of `topic`, but not for long: there may be none to be had.

        With `old`, a target with one broker, for a route that names another in its place.
        """
        with contextlib.suppress(MQError, TimeoutError):
            async with asyncio.timeout(seconds):
                if old is None:
                    await self._session.fresh_route(self.routed(topic))
                    return
                # One topic is looked at for all of a set: with a thousand each name server would
                # get all of their questions, of each producer, for as long as the set is gone.
                async with self._looks.setdefault(frozenset(old.addresses.items()), asyncio.Lock()):
                    known = self._session.known_route(self.routed(topic))
                    if known is not None and self._is_another(known, old):
                        return
                    # Nobody tells of a new route.
                    while not await self._is_renewed(topic, old):  # noqa: ASYNC110
                        await asyncio.sleep(LOOK_SECONDS)

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
