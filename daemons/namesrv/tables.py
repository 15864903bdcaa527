"""The tables of a name server: removals and queries."""

from collections.abc import Callable, Iterable

from mq.client.machine import clock
from mq.daemons.namesrv.acting_master import (
    MEMBERS_PREFIX,
    LowestChanged,
    shown_as_masters,
    without_write,
)
from mq.daemons.namesrv.registration import LiveBroker
from mq.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from mq.protocol.flags import Permission
from mq.protocol.names import MASTER_ID


class Tables:
    """The registered brokers, topics and clusters."""

    def __init__(self, clock: Callable[[], float] = clock.monotonic) -> None:
        self._clock = clock
        self.topics: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> its queues
        self.brokers: dict[str, BrokerData] = {}  # broker name -> its addresses by broker id
        self.clusters: dict[str, dict[str, None]] = {}  # cluster -> broker names
        self.live: dict[str, LiveBroker] = {}  # address -> its registration and liveness
        self.filter_servers: dict[str, list[str]] = {}  # broker address -> filter servers
        self.mappings: dict[
            str, dict[str, TopicQueueMappingInfo]
        ] = {}  # topic -> broker name -> 5.x mapping
        self.shows_acting: Callable[[], bool] = lambda: False  # slaves as masters
        self.on_lowest_changed: Callable[[LowestChanged], None] = lambda change: None

    def now(self) -> float:
        """The clock of `LiveBroker.last_seen`."""
        return self._clock()

    # removal ------------------------------------------------------------------------------

    def _remove_address(self, address: str) -> None:
        self.live.pop(address, None)
        self.filter_servers.pop(address, None)
        for broker in list(self.brokers.values()):
            for broker_id in [i for i, a in broker.broker_addrs.items() if a == address]:
                self._remove_id(broker, broker_id, address)

    def _remove_id(self, broker: BrokerData, broker_id: int, address: str) -> None:
        was_lowest = broker_id == min(broker.broker_addrs)
        del broker.broker_addrs[broker_id]
        if not broker.broker_addrs:
            self._remove_name(broker.broker_name)
            return
        if not broker.enable_acting_master:
            return
        if MASTER_ID not in broker.broker_addrs:
            self._set_permission(broker.broker_name, without_write)
        if was_lowest:
            self.on_lowest_changed(LowestChanged(dict(broker.broker_addrs), gone=address))

    def _remove_name(self, broker_name: str) -> None:
        del self.brokers[broker_name]
        for cluster in list(self.clusters):
            self.clusters[cluster].pop(broker_name, None)
            if not self.clusters[cluster]:
                del self.clusters[cluster]
        self._remove_queues(broker_name)

    def _remove_queues(self, broker_name: str, keep: Iterable[str] = ()) -> None:
        kept = set(keep)
        for topic in [t for t, by_broker in self.topics.items() if broker_name in by_broker]:
            if topic not in kept:
                self._remove_queue(topic, broker_name)

    def _remove_queue(self, topic: str, broker_name: str) -> None:
        for table in (self.topics, self.mappings):
            by_broker = table.get(topic)
            if by_broker is not None:
                by_broker.pop(broker_name, None)
                if not by_broker:
                    del table[topic]

    # queries --------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRouteData | None:
        """Queues and addresses of a topic; None if no broker serves it."""
        by_broker = self.topics.get(topic)
        brokers = [self.brokers[name] for name in by_broker or () if name in self.brokers]
        if by_broker is None or not brokers:
            return None
        filters = {
            address: self.filter_servers[address]
            for broker in brokers
            for address in broker.broker_addrs.values()
            if address in self.filter_servers
        }
        if self.shows_acting() and not topic.startswith(MEMBERS_PREFIX):
            brokers = shown_as_masters(brokers, by_broker)
        return TopicRouteData(
            queue_datas=list(by_broker.values()),
            broker_datas=brokers,
            filter_server_table=filters,
            topic_queue_mapping_by_broker=self.mappings.get(topic),
        )

    def cluster_info(self) -> ClusterInfo:
        """Every cluster, broker name and address."""
        return ClusterInfo(
            broker_addr_table=dict(self.brokers),
            cluster_addr_table={cluster: set(names) for cluster, names in self.clusters.items()},
        )

    # changes by administrators ----------------------------------------------------------

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, everywhere or in one cluster."""
        if not cluster:
            self.topics.pop(topic, None)
            self.mappings.pop(topic, None)
            return
        for broker_name in list(self.clusters.get(cluster, ())):
            self._remove_queue(topic, broker_name)

    def add_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Add one topic that a 5.x broker registers alone; unknown brokers are ignored."""
        for queue in queues:
            if queue.broker_name is not None and queue.broker_name in self.brokers:
                self.topics.setdefault(topic, {})[queue.broker_name] = queue

    def wipe_write_permission(self, broker_name: str) -> int:
        """Remove the write permission of all topics of a broker; returns their number."""
        return self._set_permission(broker_name, lambda perm: perm & ~Permission.WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Allow reads and writes for all topics of a broker; returns their number."""
        return self._set_permission(broker_name, lambda _: Permission.READ | Permission.WRITE)

    def _set_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for by_broker in self.topics.values():
            queues = by_broker.get(broker_name)
            if queues is not None:
                queues.perm = change(queues.perm)
                count += 1
        return count
