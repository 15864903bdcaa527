"""Metrics of replication."""

from mq.daemons.broker.metrics.pacing import Values
from mq.daemons.broker.parts.group import Metrics
from mq.daemons.broker.replication.acks import SlaveAcks
from mq.daemons.broker.replication.master import HaMaster
from mq.daemons.broker.replication.slave import HaSlave
from mq.daemons.metrics import Kind, Metric, counter, gauge


def replication(master: HaMaster, acks: SlaveAcks | None, slave: HaSlave | None) -> Metrics:
    """The slaves, who waits for them, and the connection to the master."""
    slaves = [one for one in master.slaves if one.acked >= 0]
    yield gauge("mq_slaves_connected", "Slaves that replicate from this broker.", len(slaves))
    behind: Values = [((one.remote,), float(one.behind)) for one in slaves]
    doc = "Bytes of the commit log that a slave has not acknowledged."
    yield Metric("mq_replication_lag_bytes", Kind.gauge, doc, ("slave",), behind)
    late: Values = [((one.remote,), one.lag_seconds()) for one in slaves]
    doc = "For how long a slave has not acknowledged what it was sent."
    yield Metric("mq_replication_lag_seconds", Kind.gauge, doc, ("slave",), late)
    doc = "Connections to the port of replication that were turned away."
    yield counter("mq_replication_refused_total", doc, master.turned_away)
    doc = "Sends that wait for a slave."
    yield gauge("mq_sends_waiting_for_slaves", doc, acks.waiting_replies if acks else 0)
    doc = "Batches of sends that no slave had within slaveTimeout."
    yield counter("mq_replication_timeouts_total", doc, acks.timeouts if acks else 0)
    doc = "Batches of sends that came while no slave was near enough."
    yield counter("mq_replication_unavailable_total", doc, acks.unavailable if acks else 0)
    doc = "0 on a slave that gets nothing from its master, else 1."
    gets = slave is None or slave.connection is not None
    yield gauge("mq_replicating", doc, float(gets))
