"""The metrics of a name server for monitoring. RocketMQ's exporter has none of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mq.daemons.metrics import Metric, counter, gauge, of_listeners, of_tasks

if TYPE_CHECKING:
    from mq.daemons.namesrv.app import NameServer


def metrics_of(server: "NameServer") -> Iterator[Metric]:
    """All of them."""
    yield from of_listeners({"main": server.listener})
    yield of_tasks(server.tasks)
    routes = server.routes
    yield gauge("mq_brokers", "Registered addresses of brokers.", len(routes.live))
    yield gauge("mq_topics", "Topics that have a route.", len(routes.topics))
    if server.beacons is not None:
        yield counter("mq_beacons_total", "Accepted beacons.", server.beacons.taken)
        yield counter(
            "mq_beacons_ignored_total",
            "Ignored datagrams, such as beacons of brokers not registered yet.",
            server.beacons.ignored,
        )
