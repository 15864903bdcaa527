"""Targets: the queues of a topic in turn, and the brokers to avoid."""

from collections.abc import Container
from itertools import count

from mq.client.errors import RouteNotFound
from mq.client.machine import clock
from mq.client.routing.latency import BrokerFaults
from mq.client.routing.routes import broker_address
from mq.protocol.bodies import MessageQueue, TopicRouteData
from mq.protocol.flags import Permission

DEFAULT_QUEUES = 4  # of a topic that a broker creates on its first message


def vip_address(address: str) -> str:
    """Return a broker's address with the port for producers and administrators
    (MixAll.brokerVIPChannel).
    """
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


class Target:
    """Where the messages of one topic go, computed once per route."""

    __slots__ = ("_turns", "addresses", "queues", "route", "until")

    def __init__(
        self,
        topic: str,
        route: TopicRouteData,
        queues: list[MessageQueue],
        until: float,
        *,
        vip: bool = False,
    ) -> None:
        """With `vip` messages go to the port that brokers reserve for producers.

        Raises RouteNotFound if no queue of the topic is writable.
        """
        self.route = route
        self.until = until  # when to check for a newer route, by the loop's clock
        self.addresses = {
            name: vip_address(address) if vip else address
            for name in {queue.broker_name for queue in queues}
            if (address := broker_address(route, name)) is not None
        }
        self.queues = [queue for queue in queues if queue.broker_name in self.addresses]
        if not self.queues:
            raise RouteNotFound(topic, "no queue of it can be written to")
        self._turns = count(clock.time_ns() % len(self.queues))

    def next(self, avoid: Container[str] = ()) -> MessageQueue:
        """Return the next queue in turn, if possible of a broker that is not in `avoid`."""
        queues = self.queues
        for _ in queues:
            queue = queues[next(self._turns) % len(queues)]
            if queue.broker_name not in avoid:
                return queue
        return queue

    def next_available(self, faults: BrokerFaults, avoid: Container[str] = ()) -> MessageQueue:
        """Return the next queue of one of the best brokers, if possible one that is not in
        `avoid`.
        """
        best = faults.best(name for name in self.addresses if name not in avoid)
        queue = self.next(self.addresses.keys() - best)
        faults.chosen(queue.broker_name)
        return queue


def queues_to_create(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues of `topic` that brokers will create, given the route of the default
    topic.
    """
    return [
        MessageQueue(topic, queues.broker_name, queue_id)
        for queues in sorted(route.queue_datas, key=lambda queues: queues.broker_name)
        if queues.perm & Permission.WRITE
        for queue_id in range(min(DEFAULT_QUEUES, queues.read_queue_nums))
    ]
