"""Selects the broker of a replica set to read from: the suggested one, or one that is reachable.

A replica set is a master (id 0) and its slaves, under one broker name. Messages are sent to the
master only, but can be read from any replica. Queues with a filter class are read from a filter
server of the selected broker.
"""

import logging
from collections.abc import Callable, Collection

from mq.client.machine import clock, random_ids
from mq.client.routing.routes import addresses_of
from mq.protocol import bodies
from mq.protocol.bodies import MessageQueue, TopicRouteData
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

# How long an unreachable replica is avoided if there is another. By then our name servers have
# removed a dead one from the routes; if it is still there, it is tried again.
AWAY_SECONDS = 3.0


class ReplicaChoice:
    """Selects replicas for the queues of one group."""

    def __init__(self, group: str, clock: Callable[[], float] = clock.monotonic) -> None:
        self._group = group
        self._clock = clock
        self._suggested: dict[MessageQueue, int] = {}
        self._away: dict[str, float] = {}  # address -> end of the avoidance

    def choose(
        self, route: TopicRouteData, queue: MessageQueue, tried: Collection[str] = ()
    ) -> str | None:
        """Return the address to read a queue from, other than those tried; None if none is left.

        The order is: the broker suggested last, the replica after it, the master, any other
        (MQClientInstance.findBrokerAddressInSubscribe). Unreachable ones come last.
        """
        by_id = addresses_of(route, queue.broker_name)
        wanted = self._suggested.get(queue, MASTER_ID)
        preferred = [wanted] if wanted == MASTER_ID else [wanted, wanted + 1]
        ids = dict.fromkeys(preferred + sorted(by_id))
        left = [by_id[i] for i in ids if i in by_id and by_id[i] not in tried]
        if not left:
            return None
        now = self._clock()
        return next((address for address in left if self._away.get(address, 0.0) <= now), left[0])

    def suggest(self, queue: MessageQueue, broker_id: int, address: str) -> None:
        """Record an answer of a broker, with its suggestion for the next read of the queue."""
        self._suggested[queue] = broker_id
        if self._away and self._away.pop(address, None) is not None:
            log.info("group %s: %s can be reached again", self._group, address)

    def prefer_master(self, queue: MessageQueue) -> None:
        """Forget the suggestion for a queue."""
        self._suggested.pop(queue, None)

    def unreachable(self, address: str, error: Exception) -> None:
        """Avoid an unreachable address for a while."""
        if address not in self._away:
            log.warning("group %s: reading from another replica: %s", self._group, error)
        self._away[address] = self._clock() + AWAY_SECONDS


def choose_filter_server(
    route: bodies.TopicRouteData, broker: str, tried: Collection[str] = ()
) -> str | None:
    """Return a random filter server of the broker at an address; None if all were tried."""
    left = [one for one in route.filter_server_table.get(broker, ()) if one not in tried]
    return left[random_ids.randrange(len(left))] if left else None
