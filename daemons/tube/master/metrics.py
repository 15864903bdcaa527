"""The metrics of a TubeMQ master."""

from collections.abc import Iterator, Sequence

from mq.daemons.metrics import Kind, Metric, counter, gauge, of_tasks
from mq.daemons.supervision import Tasks
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.rpc import RpcListener


def metrics_of(core: Core, tasks: Tasks, ports: Sequence[RpcListener]) -> Iterator[Metric]:
    """Return all of them. Those of clients are from the active master."""
    active = core.is_active()
    yield of_tasks(tasks)
    yield gauge("mq_tube_master_active", "1 while this master is the active one.", float(active))
    yield gauge("mq_connections", "Open connections.", sum(len(p.channels) for p in ports))
    yield counter("mq_tube_requests_total", "Requests.", sum(p.counters["requests"] for p in ports))
    causes = sorted({cause for port in ports for cause in port.counters} - {"requests"})
    yield Metric(
        "mq_tube_bad_requests_total",
        Kind.counter,
        "Malformed or refused requests and connections, by cause.",
        ("cause",),
        [((cause,), float(sum(p.counters[cause] for p in ports))) for cause in causes],
    )
    yield gauge("mq_tube_brokers", "Live brokers.", len(core.brokers.runs))
    yield gauge("mq_tube_producers", "Live producers.", len(core.producers))
    yield gauge("mq_tube_consumers", "Live consumers.", core.groups.members())
    yield gauge("mq_tube_groups", "Consumer groups that have members.", len(core.groups))
    yield Metric(
        "mq_tube_expired_total",
        Kind.counter,
        "Clients and brokers that timed out.",
        ("kind",),
        [((kind,), float(count)) for kind, count in core.expired.items()],
    )
    yield counter("mq_tube_rounds_total", "Rebalances of partitions.", core.rounds_in_all)
    yield counter(
        "mq_tube_events_total", "Events sent to members of consumer groups.", core.events_made
    )
    yield counter(
        "mq_tube_events_done_total", "Events that members have completed.", core.events_done
    )
    yield counter("mq_tube_changes_total", "Changes to metadata.", core.catalog.changes)
    yield gauge(
        "mq_tube_metadata_known",
        "0 while the outcome of a metadata write is unknown, else 1.",
        float(core.catalog.is_known or not active),
    )
