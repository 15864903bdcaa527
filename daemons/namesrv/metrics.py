"""The metrics of a name server. RocketMQ's exporter has none of them."""

from collections.abc import Iterator

from mq.daemons.listener import Listener
from mq.daemons.metrics import Metric, counter, gauge, of_listeners, of_tasks
from mq.daemons.namesrv.beacons import BeaconListener
from mq.daemons.namesrv.routes import Routes
from mq.daemons.namesrv.snodes import Snodes
from mq.daemons.supervision import Tasks


def metrics_of(
    listener: Listener,
    tasks: Tasks,
    routes: Routes,
    beacons: BeaconListener | None,
    snodes: Snodes,
) -> Iterator[Metric]:
    """All metrics."""
    yield from of_listeners({"main": listener})
    yield of_tasks(tasks)
    yield gauge("mq_brokers", "Registered addresses of brokers.", len(routes.live))
    yield gauge("mq_snodes", "Registered snodes.", len(snodes))
    yield gauge("mq_topics", "Topics with a route.", len(routes.topics))
    if beacons is not None:
        yield counter("mq_beacons_total", "Accepted beacons.", beacons.taken)
        yield counter(
            "mq_beacons_ignored_total",
            "Ignored datagrams, such as beacons of brokers not registered yet.",
            beacons.ignored,
        )
