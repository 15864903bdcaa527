"""The figures of a name server for monitoring. RocketMQ's exporter has none of it."""

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
    yield gauge("mq_brokers", "Addresses of brokers that are registered.", len(routes.live))
    yield gauge("mq_topics", "Topics with a route.", len(routes.topics))
    if server.beacons is not None:
        yield counter("mq_beacons_total", "Beacons that were believed.", server.beacons.taken)
        yield counter(
            "mq_beacons_ignored_total",
            "Datagrams that were not, such as those of brokers not registered yet.",
            server.beacons.ignored,
        )
