"""Routes: the registrations of brokers, from which clients get the brokers of a topic.

All data is in memory and returns with the next registrations after a restart. The tables and their
changes follow RouteInfoManager of 4.9.8:

- A broker is live from its registration until it unregisters, its connection closes, or it is
  silent for the expiry time. Then its address is removed. With its last address a broker name is
  removed, and with it the name's queues in every topic and, if it was the last one, the topic and
  the cluster.
- Topics are accepted from masters only, or from the slave of 5.x that has the lowest id
  (`acting_master`), and only if the data version differs from the last known one, or at the first
  registration. A topic that a broker has deleted stays until it is deleted here, too, or the broker
  name is removed.
"""

import logging
from collections.abc import Callable, Iterable, Iterator

from mq.client.machine import clock
from mq.daemons.beacon import MISSED_BEACONS
from mq.daemons.namesrv.acting_master import (
    MEMBERS_PREFIX,
    LowestChanged,
    shown_as_masters,
    without_write,
)
from mq.daemons.namesrv.registration import (
    UNKNOWN_VERSION,
    BrokerConnection,
    LiveBroker,
    OutOfOrder,
    Outranked,
    Registration,
    check_order,
    check_rank,
    is_whole,
)
from mq.daemons.time_slices import TimeSlices
from mq.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from mq.protocol.flags import Permission
from mq.protocol.names import MASTER_ID

log = logging.getLogger(__name__)

# About half a millisecond.
_TOPICS_A_STEP = 200


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


class Routes(Tables):
    """Registration, liveness and removal of brokers."""

    # brokers --------------------------------------------------------------------------------

    def register(
        self,
        registration: Registration,
        connection: BrokerConnection,
        *,
        drop_missing_topics: bool = False,
    ) -> tuple[str | None, str | None]:
        """Process a registration; for a slave returns its master's address and HA address.

        Raises:
            OutOfOrder: the broker must send a whole registration.
            Outranked: another broker has its id.
        """
        for _ in self._registering(registration, connection, drop_missing_topics):
            pass
        return self._master_of(registration)

    async def register_in_steps(
        self,
        registration: Registration,
        connection: BrokerConnection,
        *,
        drop_missing_topics: bool = False,
    ) -> tuple[str | None, str | None]:
        """Like `register`, for one with many topics; other requests are served meanwhile.

        Raises:
            OutOfOrder: like `register`, or the broker has registered again or gone meanwhile.
        """
        steps = TimeSlices()
        for _ in self._registering(registration, connection, drop_missing_topics):
            await steps.rest()
        return self._master_of(registration)

    def _registering(
        self, registration: Registration, connection: BrokerConnection, drop_missing_topics: bool
    ) -> Iterator[None]:
        """Process a registration, with pauses in which other work may run.

        The broker is live from the first turn on, so that it is removed with its connection; the
        version of its topics is valid once all of them have been stored.
        """
        before = self.live.get(registration.address)
        check_order(registration, before)
        self._check_rank(registration)
        broker, changed = self._take_name(registration)
        live = self._take_address(registration, connection, before)
        if changed:
            live.data_version = UNKNOWN_VERSION
        is_master = registration.broker_id == MASTER_ID
        # Without a master a slave of 5.x registers its topics.
        speaks = is_master or (
            registration.acts is not None and registration.broker_id == min(broker.broker_addrs)
        )
        if speaks and changed:
            read_only = bool(registration.acts) and not is_master
            for _ in self._take_topics(registration, drop_missing_topics, read_only):
                yield
                here = broker.broker_addrs.get(registration.broker_id) == registration.address
                if self.live.get(registration.address) is not live or not here:
                    raise OutOfOrder("the broker has registered again or disconnected meanwhile")
        live.data_version = registration.data_version

    def _check_rank(self, registration: Registration) -> None:
        named = self.brokers.get(registration.broker_name)
        there = None if named is None else named.broker_addrs.get(registration.broker_id)
        if there is None or there == registration.address:
            return
        try:
            check_rank(registration, self.live.get(there))
        except Outranked:
            self._remove_address(registration.address)  # like Java
            raise

    def _take_name(self, registration: Registration) -> tuple[BrokerData, bool]:
        """Store the address under its broker's name; returns that, and whether the topics have
        changed.
        """
        self.clusters.setdefault(registration.cluster, {})[registration.broker_name] = None
        broker = self.brokers.get(registration.broker_name)
        if broker is None:
            broker = BrokerData(
                cluster=registration.cluster, broker_name=registration.broker_name, broker_addrs={}
            )
            self.brokers[registration.broker_name] = broker
        if registration.acts is not None or broker.enable_acting_master is not None:
            broker.enable_acting_master = bool(registration.acts)
        lowest = min(broker.broker_addrs, default=MASTER_ID)
        # A slave that became master registers the same address with another id: an address has only
        # one id.
        for other_id in [i for i, a in broker.broker_addrs.items() if a == registration.address]:
            if other_id != registration.broker_id:
                del broker.broker_addrs[other_id]
        former = broker.broker_addrs.get(registration.broker_id)
        broker.broker_addrs[registration.broker_id] = registration.address
        if former != registration.address and registration.broker_id == MASTER_ID:
            log.info(
                "master of %s: %s -> %s", registration.broker_name, former, registration.address
            )
        if registration.broker_id < lowest:
            members = dict(broker.broker_addrs)
            self.on_lowest_changed(LowestChanged(members, ha_address=registration.ha_address))
        return broker, former is None or self.is_changed(
            registration.address, registration.data_version
        )

    def _take_address(
        self, registration: Registration, connection: BrokerConnection, before: LiveBroker | None
    ) -> LiveBroker:
        """Store the liveness of a broker, and its data except topics."""
        if registration.address not in self.live:
            log.info(
                "broker registered: %s %s (HA %s)",
                registration.broker_name,
                registration.address,
                registration.ha_address,
            )
        same_start = before is not None and before.beacon_source == registration.beacon_source
        live = self.live[registration.address] = LiveBroker(
            self._clock(),
            registration.timeout,
            registration.data_version,
            connection,
            registration.ha_address,
            registration.beacon_source,
            before.last_beacon if before is not None and same_start else None,
            registration.beacon_interval,
            registration.order,
            registration.data_version.state_version or 0,
        )
        if registration.filter_servers:
            self.filter_servers[registration.address] = registration.filter_servers
        elif registration.filter_servers is not None:
            self.filter_servers.pop(registration.address, None)
        return live

    def _master_of(self, registration: Registration) -> tuple[str | None, str | None]:
        broker = self.brokers.get(registration.broker_name)
        master = None if broker is None else broker.broker_addrs.get(MASTER_ID)
        if registration.broker_id == MASTER_ID or master is None or master not in self.live:
            return None, None
        return master, self.live[master].ha_address

    def _take_topics(
        self, registration: Registration, drop_missing: bool, read_only: bool
    ) -> Iterator[None]:
        new = changed = 0
        for number, (topic, config) in enumerate(registration.topics.items(), 1):
            if number % _TOPICS_A_STEP == 0:
                yield
            queues = QueueData(
                broker_name=registration.broker_name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=without_write(config.perm) if read_only else config.perm,
                topic_sys_flag=config.topic_sys_flag,
            )
            by_broker = self.topics.setdefault(topic, {})
            former = by_broker.get(registration.broker_name)
            by_broker[registration.broker_name] = queues
            if former is None:
                new += 1
            elif former != queues:
                changed += 1
        if new or changed:
            log.info("topics of %s: %d new, %d changed", registration.broker_name, new, changed)
        for topic, mapping in registration.mappings.items():
            self.mappings.setdefault(topic, {})[registration.broker_name] = mapping
        if drop_missing and is_whole(registration) and not registration.mappings:
            self._remove_queues(registration.broker_name, keep=registration.topics)

    def is_changed(self, address: str, version: DataVersion) -> bool:
        """Whether the topics of a broker differ from those known here."""
        live = self.live.get(address)
        return live is None or live.data_version != version

    def data_version(self, address: str) -> DataVersion | None:
        """The last data version that a broker registered."""
        live = self.live.get(address)
        return live.data_version if live is not None else None

    def touch(self, address: str) -> None:
        """Note a sign of life of a broker."""
        live = self.live.get(address)
        if live is not None:
            live.last_seen = self._clock()

    def beacon(self, address: str, start: str, source: str) -> bool:
        """Process a beacon of a broker; returns whether it is accepted.

        It is accepted if the broker has registered over TCP from the same IP address with the same
        start id. From then on beacons are expected. A beacon neither registers a broker nor delays
        the expiry of one that does not register again.
        """
        live = self.live.get(address)
        if live is None or live.beacon_source != (start, source):
            return False
        live.last_beacon = self._clock()
        return True

    def expire_beacons(self, timeout: float) -> list[str]:
        """Evict brokers that have sent beacons, but none for `timeout` seconds.

        If a broker sends them rarely, several must be missing.
        """
        now = self._clock()
        expired = [
            address
            for address, live in self.live.items()
            if live.last_beacon is not None
            and now - live.last_beacon > max(timeout, MISSED_BEACONS * live.beacon_interval)
        ]
        for address in expired:
            silent = now - (self.live[address].last_beacon or now)
            log.warning("evicting broker %s: no beacon for %.1f s", address, silent)
            connection = self.live[address].connection
            self._remove_address(address)
            connection.close()  # a live broker thus learns that it must register again
        return expired

    def forgive(self, seconds: float) -> None:
        """Extend all beacon deadlines: beacons could not be received for so long."""
        for live in self.live.values():
            if live.last_beacon is not None:
                live.last_beacon += seconds

    def unregister(self, cluster: str, broker_name: str, address: str, broker_id: int) -> None:
        """Unregister a broker that stops.

        Another broker may have its name and id by now, so only the given address is removed. Java
        (RouteInfoManager.unregisterBroker) removes any address with that id.
        """
        known = self.live.pop(address, None) is not None
        log.info("broker unregistered: %s %s%s", broker_name, address,
                 "" if known else " (not known)")  # fmt: skip
        self.filter_servers.pop(address, None)
        broker = self.brokers.get(broker_name)
        if broker is None or broker.broker_addrs.get(broker_id) != address:
            return
        self._remove_id(broker, broker_id, address)

    def connection_lost(self, connection: BrokerConnection) -> None:
        """Evict the brokers that registered over a closed connection."""
        for address in [a for a, live in self.live.items() if live.connection is connection]:
            log.warning("evicting broker %s: its connection closed", address)
            self._remove_address(address)

    def expire(self, timeout: float) -> list[str]:
        """Evict brokers silent for `timeout` seconds, or for their own timeout; returns their
        addresses.
        """
        now = self._clock()
        expired = [
            address
            for address, live in self.live.items()
            if now - live.last_seen > (timeout if live.timeout is None else live.timeout)
        ]
        for address in expired:
            live = self.live[address]
            log.warning("evicting broker %s: silent for %.1f s", address, now - live.last_seen)
            self._remove_address(address)
            live.connection.close()
        return expired
