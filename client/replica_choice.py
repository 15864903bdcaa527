"""Which broker of a set is read from: the one that was suggested, or one that can be reached.

A set is a master (id 0) and its replicas, under one name. Sends go to the master alone; what is
read may come from any of them.
"""

import logging
from collections.abc import Callable, Collection

from mq.client.machine import clock
from mq.client.routes import addresses_of
from mq.protocol.bodies import MessageQueue, TopicRouteData
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

# One that could not be reached is left alone for so long, while there is another. By then our name
# servers have taken a dead one from the routes; where it is there still, it is tried again.
AWAY_SECONDS = 3.0


class ReplicaChoice:
    """Chooses for the queues of one group."""

    def __init__(self, group: str, clock: Callable[[], float] = clock.monotonic) -> None:
        self._group = group
        self._clock = clock
        self._suggested: dict[MessageQueue, int] = {}
        self._away: dict[str, float] = {}  # address -> until when

    def choose(
        self, route: TopicRouteData, queue: MessageQueue, tried: Collection[str] = ()
    ) -> str | None:
        """The address to read a queue from, of those not tried; None if the route has no more.

        The broker that was suggested last, or the replica after it, or the master, or any
        (MQClientInstance.findBrokerAddressInSubscribe); those that cannot be reached come last.
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
        """A broker has answered, and named the one that the queue is to be read from next."""
        self._suggested[queue] = broker_id
        if self._away and self._away.pop(address, None) is not None:
            log.info("group %s: %s can be reached again", self._group, address)

    def prefer_master(self, queue: MessageQueue) -> None:
        """Nothing counts that was suggested for a queue."""
        self._suggested.pop(queue, None)

    def unreachable(self, address: str, error: Exception) -> None:
        """An address cannot be reached: for a while others are read from."""
        if address not in self._away:
            log.warning("group %s: reading from another replica: %s", self._group, error)
        self._away[address] = self._clock() + AWAY_SECONDS
