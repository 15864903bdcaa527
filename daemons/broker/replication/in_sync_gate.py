"""Enough slaves: how many have to have a message before its sender is answered, where no controller
keeps the set.

    inSyncReplicas             so many copies, the master's among them; with less than two one slave
                               is waited for all the same: that is what SYNC_MASTER means (4.9; with
                               Java 5.x it then means nothing)
    enableAutoInSyncReplicas   as many of those as there are near (haMaxGapNotInSync), and none at
                               all where none is; but not fewer than minInSyncReplicas, without
                               which nothing is taken

Java has the second with slaves that act as masters only (CommitLog.calcNeedAckNums).
"""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.replication.master import HaMaster
from mq.daemons.broker.store.append import Appender
from mq.daemons.broker.store.errors import StoreRefused
from mq.protocol.codes import ResponseCode

#: Why messages are refused.
CAUSE = "in-sync replicas"


def not_enough() -> StoreRefused:
    """What a sender is told where too few brokers are in sync (PutMessageStatus of 5.x)."""
    return StoreRefused(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")


class InSyncGate:
    """Counts the slaves of a SYNC_MASTER."""

    def __init__(self, settings: BrokerSettings, master: HaMaster, appender: Appender) -> None:
        self._settings = settings
        self._master = master
        self._appender = appender

    def wanted(self) -> int:
        """How many slaves are waited for."""
        store = self._settings.store
        if not store.enable_auto_in_sync_replicas:
            return max(1, store.in_sync_replicas - 1)
        most = min(store.in_sync_replicas, 1 + self._near())
        return max(store.min_in_sync_replicas, most) - 1

    def look(self) -> None:
        """There are more or fewer slaves, or they are nearer: take messages, or none."""
        store = self._settings.store
        if store.enable_auto_in_sync_replicas and 1 + self._near() < store.min_in_sync_replicas:
            self._appender.refuse(CAUSE, not_enough())
        else:
            self._appender.accept(CAUSE)

    def _near(self) -> int:
        master, gap = self._master, self._settings.store.ha_max_gap_not_in_sync
        least = master.log.written - gap
        return sum(slave.acked >= 0 and slave.acked > least for slave in master.slaves)
