"""Changes of a session's routes: brokers that leave them and return.

Our name servers remove a broker from the routes three seconds after its last heartbeat, and a name
server that has just started, or was cut off from a broker, knows only some of them. Such a broker
usually returns soon; a client that waited for the next periodic refresh would neither send to it
nor read from it for half a minute. (Java's name servers keep a dead broker for two minutes, so
their clients see this less often.) No I/O.

A broker that is missing from a route is not necessarily down: while the connection to it is open,
it stays in the route for a while, for sending and reading. The same applies to a master when only
its slaves are left in the route.
"""

import logging
from collections.abc import Callable
from copy import copy

from mq.client.machine import clock
from mq.protocol.bodies import BrokerData, TopicRouteData
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

#: The pause between two route refreshes while a broker is missing.
CHECK_SECONDS = 2.0
# After this time a missing broker is no longer expected: it was removed, or is down for long.
PATIENCE_SECONDS = 120.0
# How long a connected broker stays in a route that no longer lists it: a Java broker registers with
# a restarted name server only after ten seconds.
KEEP_SECONDS = 15.0


class RouteChanges:
    """The brokers that left the routes of topics, and the listeners for new queues."""

    def __init__(self, clock: Callable[[], float] = clock.monotonic) -> None:
        #: Called with a topic whose route has new brokers or queues.
        self.on_gain: list[Callable[[str], None]] = []
        self._clock = clock
        self._lost: dict[str, dict[str, float]] = {}  # topic -> broker -> when it left

    def compare(
        self,
        topic: str,
        former: TopicRouteData,
        route: TopicRouteData,
        is_connected: Callable[[str], bool],
    ) -> TopicRouteData:
        """Return a topic's new route, with missing brokers added that are still reachable."""
        if former == route:
            return route
        now = self._clock()
        present = {broker.broker_name: broker for broker in route.broker_datas}
        lost = self._lost.setdefault(topic, {})
        kept = []
        for broker in former.broker_datas:
            name = broker.broker_name or ""
            stays = present.get(broker.broker_name)
            if stays is not None and not _lacks_master(stays, broker):
                continue
            if name not in lost:
                whose = "broker" if stays is None else "the master of broker"
                log.info("topic %s: %s %s left the route", topic, whose, name)
            since = lost.setdefault(name, now)
            before = broker if stays is None else _with_master(stays, broker)
            addresses = before.broker_addrs.items() - (stays.broker_addrs.items() if stays else ())
            if now - since < KEEP_SECONDS and any(is_connected(a) for _, a in addresses):
                kept.append(before)
        for name in [name for name in lost if _has_master(present.get(name))]:
            log.info("topic %s: broker %s is back in the route", topic, name)
            del lost[name]
        if kept:
            keep = {broker.broker_name for broker in kept}
            route = copy(route)
            route.broker_datas = [
                *(broker for broker in route.broker_datas if broker.broker_name not in keep),
                *kept,
            ]
            route.queue_datas = [
                *route.queue_datas,
                *(
                    queues
                    for queues in former.queue_datas
                    if queues.broker_name in keep and queues.broker_name not in present
                ),
            ]
        if _parts(route) - _parts(former):
            for hear in list(self.on_gain):
                hear(topic)
        return route

    def misses(self, topic: str) -> bool:
        """Whether a broker that left the route of a topic is expected back."""
        lost = self._lost.get(topic)
        if lost is None:
            return False
        oldest = self._clock() - PATIENCE_SECONDS
        for name in [name for name, since in lost.items() if since <= oldest]:
            del lost[name]
        if not lost:
            del self._lost[topic]
        return bool(lost)


def _has_master(broker: BrokerData | None) -> bool:
    return broker is not None and MASTER_ID in broker.broker_addrs


def _lacks_master(broker: BrokerData, former: BrokerData) -> bool:
    """Whether a replica set has lost its master, so that only slaves are left."""
    return _has_master(former) and not _has_master(broker)


def _with_master(broker: BrokerData, former: BrokerData) -> BrokerData:
    """Return the replica set with its former master, unless that has become a slave."""
    master = former.broker_addrs[MASTER_ID]
    if master in broker.broker_addrs.values():
        return broker
    whole = copy(broker)
    whole.broker_addrs = {MASTER_ID: master, **broker.broker_addrs}
    return whole


def _parts(route: TopicRouteData) -> set[tuple[object, ...]]:
    addresses = {
        (broker.broker_name, number, address)
        for broker in route.broker_datas
        for number, address in broker.broker_addrs.items()
    }
    queues = {
        (queues.broker_name, queues.read_queue_nums, queues.write_queue_nums, queues.perm)
        for queues in route.queue_datas
    }
    return addresses | queues
