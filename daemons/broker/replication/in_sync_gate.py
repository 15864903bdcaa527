"""In-sync gate: how many slaves must have a message before its sender is answered, without
controllers.

    inSyncReplicas             this many copies, including the master's; with less than two the
                               master still waits for one slave, because that is the meaning of
                               SYNC_MASTER (4.9; with Java 5.x it then has no meaning)
    enableAutoInSyncReplicas   as many of those as are near (haMaxGapNotInSync), and none if no
                               slave is; but not fewer than minInSyncReplicas, without which no
                               message is accepted

Java has the second one only with slaves that act as masters (CommitLog.calcNeedAckNums).
"""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.master import HaMaster
from mq.daemons.broker.store import Appender, StoreRefused
from mq.protocol.codes import ResponseCode

# The cause for refusing messages.
CAUSE = "in-sync replicas"


def not_enough() -> StoreRefused:
    """The refusal for senders while too few brokers are in sync (PutMessageStatus of 5.x)."""
    return StoreRefused(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")


class InSyncGate:
    """Counts the slaves of a SYNC_MASTER."""

    def __init__(self, settings: BrokerSettings, master: HaMaster, appender: Appender) -> None:
        self._settings = settings
        self._master = master
        self._appender = appender

    def acks_needed(self) -> int:
        """The number of slaves whose acknowledgement senders wait for."""
        store = self._settings.store
        if not store.enable_auto_in_sync_replicas:
            return max(1, store.in_sync_replicas - 1)
        most = min(store.in_sync_replicas, 1 + self._near())
        return max(store.min_in_sync_replicas, most) - 1

    def update(self) -> None:
        """Accept or refuse messages, after the number or the lag of the slaves has changed."""
        store = self._settings.store
        if store.enable_auto_in_sync_replicas and 1 + self._near() < store.min_in_sync_replicas:
            self._appender.refuse(CAUSE, not_enough())
        else:
            self._appender.accept(CAUSE)

    def _near(self) -> int:
        master, gap = self._master, self._settings.store.ha_max_gap_not_in_sync
        least = master.log.written - gap
        return sum(slave.acked >= 0 and slave.acked > least for slave in master.slaves)
