"""Changes of the routes that a session knows: brokers that leave them and come back.

Our name servers take a broker whose beacons stay out from the routes after three seconds, and one
that has just started, or was cut off from a broker, knows only some of them. Such a broker is soon
back; who waits for the next refresh by the clock would neither send to it nor read from it for
half a minute. (Java's name servers keep a dead broker for two minutes: their clients see less of
that.) No I/O.

That a name server does not name a broker does not mean that it is gone: while the connection to it
stands it stays in the route for a while, as far as sending and reading go. So it is with the master
of a set of which replicas are left: it is looked for as a broker is that has left.
"""

import logging
from collections.abc import Callable
from copy import copy

from mq.client.machine import clock
from mq.protocol.bodies import BrokerData, TopicRouteData
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

#: Pause between two looks for a broker that has left a route.
LOOK_SECONDS = 2.0
# After this it is not looked for any more: it was removed, or is down for long.
PATIENCE_SECONDS = 120.0
# A broker to which there is a connection stays in a route that does not name it any more: a Java
# broker tells a name server that was restarted after ten seconds.
KEEP_SECONDS = 15.0


class RouteChanges:
    """The brokers that have left the routes of topics, and who wants to hear of new queues."""

    def __init__(self, clock: Callable[[], float] = clock.monotonic) -> None:
        #: Called with a topic whose route has brokers or queues that it had not before.
        self.on_gain: list[Callable[[str], None]] = []
        self._clock = clock
        self._lost: dict[str, dict[str, float]] = {}  # topic -> broker -> since when

    def compare(
        self,
        topic: str,
        former: TopicRouteData,
        route: TopicRouteData,
        is_connected: Callable[[str], bool],
    ) -> TopicRouteData:
        """A topic's new route, with the brokers kept that it lacks although they can be reached."""
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
                log.info("topic %s: %s %s has left its route", topic, whose, name)
            since = lost.setdefault(name, now)
            before = broker if stays is None else _with_master(stays, broker)
            addresses = before.broker_addrs.items() - (stays.broker_addrs.items() if stays else ())
            if now - since < KEEP_SECONDS and any(is_connected(a) for _, a in addresses):
                kept.append(before)
        for name in [name for name in lost if _has_master(present.get(name))]:
            log.info("topic %s: broker %s is in its route again", topic, name)
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
        """Whether a broker may come back to the route of a topic soon."""
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
    """Whether a set of brokers has lost its master, and only replicas are left."""
    return _has_master(former) and not _has_master(broker)


def _with_master(broker: BrokerData, former: BrokerData) -> BrokerData:
    """The set with the master that it had, unless that has become a replica."""
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
