"""The state of an active master: live nodes, their partitions, and the administrators' settings.

Requests and rounds use it in one thread; nothing here waits.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from mq.client.machine import clock
from mq.daemons.supervision import Work
from mq.daemons.tube.failed_logins import host_of
from mq.daemons.tube.master.brokers import Brokers
from mq.daemons.tube.master.catalog import Catalog
from mq.daemons.tube.master.certificates import Certificates
from mq.daemons.tube.master.config import MasterConfig
from mq.daemons.tube.master.grants import BrokerGrants
from mq.daemons.tube.master.groups import ConsumeType, Group, Groups, now_ms
from mq.daemons.tube.master.liveness import Liveness
from mq.daemons.tube.master.producers import Producers
from mq.daemons.tube.master.tokens import VisitTokens
from mq.daemons.tube.rpc import ServiceFailure
from mq.protocol.tube.errors import STANDBY
from mq.protocol.tube.strings import TopicMeta, TopicMetaBroker

log = logging.getLogger(__name__)


class Peer(NamedTuple):
    """The sender of a request: `host:port`, and whether by TLS."""

    address: str
    over_tls: bool

    @property
    def host(self) -> str:
        """The address without its port."""
        return host_of(self.address)


class MemberKey(NamedTuple):
    """A member of a group, for heartbeats: `id@group`."""

    member: str
    group: str

    def __str__(self) -> str:
        return f"{self.member}@{self.group}"


class Core:
    """The parts. ``is_active`` returns whether this master is active; ``address`` names it;
    ``spawn``
    starts a task of the daemon."""

    def __init__(
        self,
        config: MasterConfig,
        catalog: Catalog,
        certificates: Certificates,
        *,
        is_active: Callable[[], bool],
        address: Callable[[], str],
        spawn: Callable[[Work, str], object],
    ) -> None:
        self.config = config
        self.catalog = catalog
        self.certificates = certificates
        self.tokens = VisitTokens(config.visit_token_valid_period_ms)
        self.grants = BrokerGrants(catalog, self.tokens, authorizes=config.start_consume_authorize)
        self.brokers = Brokers(catalog, config.waits())
        self.groups = Groups()
        self.producers = Producers()
        self.broker_beats: Liveness[int] = Liveness(config.broker_heartbeat_timeout_ms / 1000)
        self.consumer_beats: Liveness[MemberKey] = Liveness(
            config.consumer_heartbeat_timeout_ms / 1000
        )
        self.producer_beats: Liveness[str] = Liveness(config.producer_heartbeat_timeout_ms / 1000)
        self.is_active = is_active
        self._address = address
        self.spawn = spawn
        self.since = self.now()  # when this master became active
        self.rounds = 0  # since then
        self.rounds_in_all = 0
        self.round_id = clock.milliseconds()
        self.expired = {"broker": 0, "consumer": 0, "producer": 0}
        self.events_made = 0
        self.events_done = 0
        catalog.on_change.append(self.brokers.from_catalog)

    def now(self) -> float:
        return clock.monotonic()

    def check_active(self, client_id: str) -> None:
        """Raises ServiceFailure if another master is active: clients then try the next one
        (TMaster.checkNodeStatus)."""
        if not self.is_active():
            raise ServiceFailure(
                STANDBY,
                f"{self._address()} is not master now. the connecting client id is {client_id}",
            )

    def forget(self) -> None:
        """Reset to the state of a start: this master was inactive for a while, or is now."""
        self.brokers.clear()
        self.groups.clear()
        self.producers.clear()
        for beats in (self.broker_beats, self.consumer_beats, self.producer_beats):
            beats.clear()
        self.rounds = 0
        self.since = self.now()

    def remove_consumer(self, key: MemberKey) -> None:
        self.consumer_beats.end(key)
        self.groups.leave(key.group, key.member)

    def expire(self) -> None:
        """Remove nodes without timely heartbeats."""
        now = self.now()
        for key in self.consumer_beats.expired(now):
            log.info("consumer %s has timed out", key)
            self.groups.leave(key.group, key.member)
            self.expired["consumer"] += 1
        for producer in self.producer_beats.expired(now):
            log.info("producer %s has timed out", producer)
            self.producers.remove(producer)
            self.expired["producer"] += 1
        for broker_id in self.broker_beats.expired(now):
            log.warning("broker %d has timed out", broker_id)
            self.brokers.remove(broker_id)
            self.expired["broker"] += 1

    def refresh_meta(self, group: Group) -> None:
        """Send a client-balanced group the present state of its topics (freshTopicMetaInfo)."""
        forbidden = self.catalog.forbidden_topics(group.name)
        found = {}
        for topic in sorted(group.topics):
            brokers = tuple(
                TopicMetaBroker(
                    one.broker_id,
                    one.props.num_topic_stores,
                    one.props.num_partitions,
                    topic not in forbidden
                    and self.brokers.views.subscribable(one.broker_id, topic),
                )
                for one in self.catalog.of_topic(topic)
            )
            if brokers:
                found[topic] = str(TopicMeta(topic, brokers))
        group.set_meta(found, now_ms())

    def awaited_brokers(self) -> set[int]:
        """Return brokers with consumable topics that have not registered yet since this master
        became
        active."""
        if self.now() >= self.since + self.config.broker_heartbeat_timeout_ms / 1000:
            return set()
        return self.brokers.awaited()

    def allowed_rate(self, group: str) -> int:
        """Return how many brokers may serve one member of a group."""
        control = self.catalog.group_control(group)
        if control is not None and control.broker_client_rate > 0:
            return control.broker_client_rate
        return self.config.max_group_broker_consume_rate

    def of_type(self, consume_type: ConsumeType) -> list[Group]:
        return [group for group in self.groups if group.consume_type is consume_type]
