"""The state of an active master: live nodes, their partitions, and the administrators' settings.

Requests and rounds use it in one thread; nothing here waits.
"""

import hashlib
import json
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
from mq.daemons.tube.master.groups import ConsumeType, Group, Groups, Refused, now_ms
from mq.daemons.tube.master.liveness import Liveness
from mq.daemons.tube.master.storage import Changes
from mq.daemons.tube.master.tokens import VisitTokens
from mq.daemons.tube.rpc import ServiceFailure
from mq.protocol.tube.codes import Code
from mq.protocol.tube.errors import STANDBY
from mq.protocol.tube.grants import Grants, Rights, TopicRight, rights_json
from mq.protocol.tube.strings import TopicMeta, TopicMetaBroker

log = logging.getLogger(__name__)

# Limits for the memory of all producers together.
MOST_PRODUCERS = 50_000
MOST_TOPICS = 1_000_000  # named by producers; each takes some hundred bytes


class Producers:
    """The registered producers, by id."""

    def __init__(self) -> None:
        self._topics: dict[str, frozenset[str]] = {}
        self._of_topic: dict[str, set[str]] = {}
        self._named = 0
        self.most = MOST_PRODUCERS

    def __len__(self) -> int:
        return len(self._topics)

    def book(self, producer_id: str, topics: frozenset[str]) -> None:
        """Record the topics of a producer. Raises Refused if there are too many."""
        if producer_id not in self._topics and len(self._topics) >= self.most:
            raise Refused(Code.SERVICE_UNAVAILABLE, f"there are {self.most} producers already")
        before = self._topics.get(producer_id, frozenset())
        if topics == before and producer_id in self._topics:
            return
        named = self._named - len(before) + len(topics)
        if named > MOST_TOPICS:
            raise Refused(Code.SERVICE_UNAVAILABLE, "producers name more topics than can be kept")
        self.remove(producer_id)
        self._named = named
        self._topics[producer_id] = topics
        for topic in topics:
            self._of_topic.setdefault(topic, set()).add(producer_id)

    def of(self, topic: str) -> list[str]:
        """Return the producers of a topic."""
        return sorted(self._of_topic.get(topic, ()))

    def remove(self, producer_id: str) -> bool:
        """Remove a producer; return whether it was known."""
        topics = self._topics.pop(producer_id, None)
        self._named -= len(topics or ())
        for topic in topics or ():
            there = self._of_topic[topic]
            there.discard(producer_id)
            if not there:
                del self._of_topic[topic]
        return topics is not None

    def clear(self) -> None:
        self._topics.clear()
        self._of_topic.clear()
        self._named = 0


class BrokerGrants:
    """Builds them. Without ``authorizes`` brokers get tokens and no rights."""

    def __init__(self, catalog: Catalog, tokens: VisitTokens, *, authorizes: bool) -> None:
        self._catalog = catalog
        self._tokens = tokens
        self._authorizes = authorizes
        self._rights: dict[int, tuple[str, Rights]] = {}  # by broker, until the catalog changes
        catalog.on_change.append(self._changed)

    def for_broker(self, broker_id: int, known_id: str) -> Grants:
        """Return the access data of a broker, which has the rights of ``known_id`` already."""
        produce = tuple(self._tokens.of(produces=True))
        consume = tuple(self._tokens.of(produces=False))
        if not self._authorizes:
            return Grants(produce, consume)
        if broker_id not in self._rights:
            rights = self._rights_of(broker_id)
            text = json.dumps(rights_json(rights)).encode()
            self._rights[broker_id] = hashlib.sha256(text).hexdigest()[:32], rights
        rights_id, rights = self._rights[broker_id]
        return Grants(produce, consume, rights_id, None if known_id == rights_id else rights)

    def _changed(self, _: Changes) -> None:
        self._rights.clear()

    def _rights_of(self, broker_id: int) -> Rights:
        """Return the rights for each topic of a broker with restricted consumption."""
        found = {}
        for deployed in self._catalog.of_broker(broker_id):
            topic = deployed.topic
            control = self._catalog.topic_control(topic)
            groups = self._catalog.consume_controls(topic)
            if control is not None and control.auth_enabled:
                found[topic] = TopicRight(
                    {
                        one.group: frozenset(one.filters) if one.filter_enabled else None
                        for one in groups
                        if one.enabled
                    }
                )
            elif barred := frozenset(one.group for one in groups if not one.enabled):
                found[topic] = TopicRight(barred=barred)
        return found


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
