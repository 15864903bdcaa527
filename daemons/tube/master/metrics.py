"""Metrics: what a TubeMQ master tells of itself to monitoring."""

from collections.abc import Iterator, Sequence

from mq.daemons.metrics import Kind, Metric, counter, gauge, of_tasks
from mq.daemons.supervision import Tasks
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.rpc import RpcListener


def metrics_of(core: Core, tasks: Tasks, ports: Sequence[RpcListener]) -> Iterator[Metric]:
    """All of them. Those of clients are told by the master that is active."""
    active = core.is_active()
    yield of_tasks(tasks)
    yield gauge("mq_tube_master_active", "1 while this master answers.", float(active))
    yield gauge("mq_connections", "Open connections.", sum(len(p.channels) for p in ports))
    yield counter("mq_tube_requests_total", "Requests.", sum(p.counters["requests"] for p in ports))
    causes = sorted({cause for port in ports for cause in port.counters} - {"requests"})
    yield Metric(
        "mq_tube_bad_requests_total",
        Kind.counter,
        "Requests and connections that were not as they should be, by cause.",
        ("cause",),
        [((cause,), float(sum(p.counters[cause] for p in ports))) for cause in causes],
    )
    yield gauge("mq_tube_brokers", "Brokers that are alive.", len(core.brokers.runs))
    yield gauge("mq_tube_producers", "Producers that are alive.", len(core.producers))
    yield gauge("mq_tube_consumers", "Consumers that are alive.", core.groups.members())
    yield gauge("mq_tube_groups", "Groups that have members.", len(core.groups))
    yield Metric(
        "mq_tube_expired_total",
        Kind.counter,
        "Clients and brokers that were not heard of in time.",
        ("kind",),
        [((kind,), float(count)) for kind, count in core.expired.items()],
    )
    yield counter("mq_tube_rounds_total", "Rounds that shared out partitions.", core.rounds_in_all)
    yield counter("mq_tube_events_total", "Events for members of groups.", core.events_made)
    yield counter("mq_tube_events_done_total", "Of these, done.", core.events_done)
    yield counter("mq_tube_changes_total", "Changes of metadata.", core.catalog.changes)
    yield gauge(
        "mq_tube_metadata_known",
        "1 unless a write has left in doubt what is kept.",
        float(core.catalog.is_known or not active),
    )
