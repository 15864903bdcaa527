"""The metrics of a console for monitoring."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mq.daemons.metrics import Kind, Metric, counter, gauge

if TYPE_CHECKING:
    from mq.daemons.console.audit import Audit
    from mq.daemons.console.clusters import Cluster
    from mq.daemons.console.security.shell import Shell
    from mq.daemons.console.streams import Streams


def metrics_of(
    shell: "Shell", streams: "Streams", audit: "Audit", clusters: "Iterable[Cluster]"
) -> Iterator[Metric]:
    """Yield the metrics of a console's components."""
    yield counter("mq_console_requests_total", "Requests from browsers.", float(shell.requests))
    yield gauge("mq_console_requests_active", "Requests in progress.", float(shell.active))
    doc = "Requests refused because too many were in progress."
    yield counter("mq_console_requests_refused_total", doc, float(shell.turned_away))
    yield gauge("mq_console_streams", "Open live updates of pages.", float(streams.open))
    failures = float(audit.failures)
    yield counter(
        "mq_console_audit_failures_total", "Audit entries that could not be written.", failures
    )
    ages = [((one.name,), one.snapshot.at / 1000) for one in clusters]
    doc = "When a cluster last answered, in seconds since 1970; 0: never."
    yield Metric("mq_console_snapshot_timestamp_seconds", Kind.gauge, doc, ("cluster",), ages)
