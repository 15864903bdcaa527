"""Metrics of replication."""

from mq.daemons.broker.component import Metrics
from mq.daemons.broker.metrics.pacing import Values
from mq.daemons.broker.replication.acks import SlaveAcks
from mq.daemons.broker.replication.epochs import Epochs
from mq.daemons.broker.replication.master import HaMaster
from mq.daemons.broker.replication.slave import HaSlave
from mq.daemons.broker.replication.sync_state import SyncState
from mq.daemons.broker.store import ConfirmOffset
from mq.daemons.metrics import Kind, Metric, counter, gauge


def replication(master: HaMaster, acks: SlaveAcks | None, slave: HaSlave | None) -> Metrics:
    """The slaves, the waits for their acks, and the connection to the master."""
    slaves = [one for one in master.slaves if one.acked >= 0]
    yield gauge("mq_slaves_connected", "Slaves that replicate from this broker.", len(slaves))
    lag: Values = [((one.remote,), float(one.lag)) for one in slaves]
    doc = "Bytes of the commit log that a slave has not acknowledged."
    yield Metric("mq_replication_lag_bytes", Kind.gauge, doc, ("slave",), lag)
    late: Values = [((one.remote,), one.lag_seconds()) for one in slaves]
    doc = "Age of the oldest data sent to a slave and not acknowledged."
    yield Metric("mq_replication_lag_seconds", Kind.gauge, doc, ("slave",), late)
    doc = "Replication connections that were refused."
    yield counter("mq_replication_refused_total", doc, master.turned_away)
    doc = "Sends waiting for a slave."
    yield gauge("mq_sends_waiting_for_slaves", doc, acks.waiting_replies if acks else 0)
    doc = "Batches of sends that no slave acknowledged within slaveTimeout."
    yield counter("mq_replication_timeouts_total", doc, acks.timeouts if acks else 0)
    doc = "Batches of sends that arrived while no slave was close enough behind."
    yield counter("mq_replication_unavailable_total", doc, acks.unavailable if acks else 0)
    doc = "0 on a slave that receives nothing from its master, else 1."
    gets = slave is None or slave.connection is not None
    yield gauge("mq_replicating", doc, float(gets))


def controlled(
    master: HaMaster, epochs: Epochs, bound: ConfirmOffset, state: SyncState | None
) -> Metrics:
    """The metrics of a broker with controllers; ``state`` exists on the master."""
    last = epochs.last
    doc = "The number of the last epoch in the commit log, -1 if there is none."
    yield gauge("mq_replication_epoch", doc, -1 if last is None else last.number)
    doc = "Bytes of the commit log that not all in-sync brokers have: consumers may not read them."
    yield gauge("mq_replication_unconfirmed_bytes", doc, master.log.written - bound.offset)
    if state is None:
        return
    doc = "Brokers in the sync state set, including this one."
    yield gauge("mq_in_sync_replicas", doc, len(state.members))
    doc = "The epoch of the sync state set."
    yield gauge("mq_in_sync_replicas_epoch", doc, state.members_epoch)
    doc = "Changes of the sync state set that controllers refused or did not answer."
    yield counter("mq_in_sync_replicas_refused_total", doc, state.refused_changes)
