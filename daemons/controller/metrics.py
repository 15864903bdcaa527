"""The metrics of a controller."""

from collections.abc import Iterator

from mq.daemons.controller.elections import Elections
from mq.daemons.controller.leadership import Leadership
from mq.daemons.controller.liveness import Liveness
from mq.daemons.controller.registry import Registry
from mq.daemons.listener import Listener
from mq.daemons.metrics import Kind, Metric, counter, gauge, of_listeners, of_tasks
from mq.daemons.supervision import Tasks


def metrics_of(
    listener: Listener,
    tasks: Tasks,
    leadership: Leadership,
    registry: Registry,
    liveness: Liveness,
    elections: Elections,
) -> Iterator[Metric]:
    """All metrics. Only the leader reports those of replica sets."""
    yield from of_listeners({"main": listener})
    yield of_tasks(tasks)
    yield gauge("mq_controller_leads", "1 while this controller leads.", float(leadership.leads))
    yield counter(
        "mq_controller_leaderships_total",
        "Times this controller became the leader.",
        leadership.elections,
    )
    yield gauge("mq_controllers", "Live controllers in the group.", len(leadership.controllers))
    yield gauge("mq_brokers", "Brokers with a recent heartbeat.", len(liveness))
    yield counter("mq_elections_total", "Elections that found a master.", elections.held)
    yield counter("mq_elections_failed_total", "Elections that found no master.", elections.failed)
    labels = ("broker",)
    sets = sorted(registry, key=lambda kept: kept.name) if leadership.leads else []
    for name, doc, values in (
        (
            "mq_master_epoch",
            "Epoch of the master of a replica set.",
            [s.master_epoch for s in sets],
        ),
        (
            "mq_in_sync_replicas",
            "In-sync brokers of a replica set.",
            [len(s.members) for s in sets],
        ),
        ("mq_replicas", "Brokers of a replica set.", [len(s.replicas) for s in sets]),
        (
            "mq_has_master",
            "1 while the master of a replica set is alive.",
            [s.master_id is not None and liveness.is_alive(s.name, s.master_id) for s in sets],
        ),
    ):
        pairs = [((kept.name,), float(value)) for kept, value in zip(sets, values, strict=True)]
        yield Metric(name, Kind.gauge, doc, labels, pairs)
