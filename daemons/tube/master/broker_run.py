"""A registered broker: its configured and its reported settings, and their visibility.

    wait_online   it has registered but does not serve yet
    wait_sync     its settings differ from the configured ones, which are sent with each answer
    wait_sub      consumers see its topics; producers do in half a minute
    wait_pub      producers see them, too
    idle          nothing to do, until settings change or two hours have passed
    load_data     settings have changed and are read again; then wait_sync

Source: BrokerRunStatusInfo and BrokerSyncData of TubeMQ, with their waits (StepStatus). Two parts
differ. In TubeMQ a change of settings only keeps the id of the settings; here each version has its
own. (Brokers compare id and checksum, and accept any.) And in TubeMQ a broker that cannot apply its
settings gets corrected ones only after a registration.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from mq.daemons.tube.master.records import ManageStatus
from mq.daemons.tube.master.views import Views
from mq.protocol.tube.codes import UNDEFINED
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.settings import BrokerDefaults, TopicSettings, checksum
from mq.protocol.tube.strings import BrokerInfo, TopicInfo

# Of a topic on one broker: partitions of a store are numbered below 10,000.
MOST_PARTITIONS = 9_999
MOST_STORES = 100


class Step(IntEnum):
    """The progress of a broker's start, or of a change (StepStatus)."""

    IDLE = -2
    LOAD_DATA = 1
    WAIT_ONLINE = 2
    WAIT_SYNC = 3
    WAIT_SUB = 4
    WAIT_PUB = 5

    @property
    def text(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Waits:
    """The durations of steps, in seconds."""

    subscribe: float = 30.0  # between consumers and producers
    publish: float = 5.0  # between producers and the end; none without changes
    forced_sync: float = 7200.0  # interval of sending all settings again

    # TubeMQ waits 15 s instead of 30 if producers may see everything at once; it never does, as
    # it continues at once then.


@dataclass(frozen=True, slots=True)
class Assignment:
    """The configured settings of a broker."""

    status: ManageStatus
    defaults: str
    topics: tuple[str, ...]  # settings of each, sorted


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a broker with a registration or a heartbeat."""

    online: bool
    config_id: int
    checksum: int
    defaults: str | None = None  # None if unchanged
    topics: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sync:
    """The settings for the broker, and the reported ones."""

    wanted: Assignment
    config_id: int
    checksum: int
    reported_id: int = UNDEFINED
    reported_checksum: int = UNDEFINED
    topics: dict[str, TopicInfo] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return (self.reported_id, self.reported_checksum) == (self.config_id, self.checksum)


class BrokerRun:
    """One broker, from its registration on. Times are seconds of a monotonic clock."""

    def __init__(
        self,
        broker: BrokerInfo,
        wanted: Assignment,
        *,
        config_id: int,
        waits: Waits,
        now: float,
        tls_port: int = 0,
        over_tls: bool = False,
    ) -> None:
        self.broker = broker
        self.tls_port = tls_port  # 0: it does not offer TLS
        self.over_tls = over_tls
        self.online = False
        self.step = Step.WAIT_ONLINE
        self._waits = waits
        self._until = now
        self._sync = _Sync(wanted, config_id, _sum(wanted))
        self._synced_at = now
        self._changed = False
        self._shown_to_consumers = self._shown_to_producers = False

    @property
    def config_changed(self) -> bool:
        """Whether changed settings are not yet in force everywhere."""
        return not self.config_loaded

    @property
    def config_loaded(self) -> bool:
        return not self._changed and self.step is Step.IDLE

    @property
    def config_id(self) -> int:
        return self._sync.config_id

    @property
    def checksum(self) -> int:
        return self._sync.checksum

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """The reported topics."""
        return self._sync.topics

    def to_send(self) -> Assignment | None:
        """The settings to send; None if it has all."""
        return None if self._sync.is_done else self._sync.wanted

    def changed(self) -> None:
        """Note a change of its settings, or of its status."""
        self._changed = True

    def registered(self, report: Report, views: Views, now: float) -> None:
        """Process its registration. Raises MalformedText if its report cannot be read."""
        self._book(report)
        if report.online and report.defaults is not None:
            views.begin(self.broker.broker_id, self._sync.wanted.status, self._sync.topics)
        self._restart(now)
        self.step = self._first_step()
        self._act(views, now)

    def heard(
        self,
        report: Report,
        views: Views,
        now: float,
        load: Callable[[], Assignment | None],
        next_id: Callable[[], int],
    ) -> None:
        """Process a heartbeat. `load` returns its present settings, None if it is no longer
        configured,
        `next_id` an id for them; they are called when these are checked. Raises MalformedText."""
        self._book(report)
        if self.step is Step.IDLE:
            forced = now - self._synced_at > self._waits.forced_sync
            if not self._sync.is_done or self._changed or forced:
                self._restart(now)
                self._load(load(), next_id, forced=forced, now=now)
        elif self.step is Step.LOAD_DATA:
            self._load(load(), next_id, forced=False, now=now)
        elif (self.step is Step.WAIT_ONLINE and self.online) or (
            self.step is Step.WAIT_SYNC and self._sync.is_done
        ):
            self.step = self._first_step()
        elif self.step is Step.WAIT_SYNC and self._changed:
            # It may be unable to apply its settings, and this may correct them.
            self._load(load(), next_id, forced=False, now=now)
        elif self.step is Step.WAIT_SUB and self._shown_to_consumers and now > self._until:
            self.step = Step.WAIT_PUB
            self._until = now + self._waits.publish
        elif self.step is Step.WAIT_PUB and self._shown_to_producers and now > self._until:
            self._finish()
        self._act(views, now)

    def _book(self, report: Report) -> None:
        if report.defaults is not None:
            self._sync.topics = _topics(self.broker, report.defaults, report.topics)
        self.online = report.online
        self._sync.reported_id, self._sync.reported_checksum = report.config_id, report.checksum

    def _first_step(self) -> Step:
        if not self.online:
            return Step.WAIT_ONLINE
        return Step.WAIT_SUB if self._sync.is_done else Step.WAIT_SYNC

    def _restart(self, now: float) -> None:
        self._shown_to_consumers = self._shown_to_producers = False
        self._until = now

    def _load(
        self, wanted: Assignment | None, next_id: Callable[[], int], *, forced: bool, now: float
    ) -> None:
        self.step = Step.LOAD_DATA
        if wanted is None:  # no longer configured: unchanged
            return
        self._changed = False
        self._synced_at = now
        if not forced and wanted == self._sync.wanted and self._sync.is_done:
            self._finish()
            return
        if wanted != self._sync.wanted or forced:
            self._sync.wanted, self._sync.config_id = wanted, next_id()
            self._sync.checksum = _sum(wanted)
        self.step = self._first_step()

    def _act(self, views: Views, now: float) -> None:
        broker_id = self.broker.broker_id
        if self.step is Step.WAIT_SUB and not self._shown_to_consumers:
            views.set_status(broker_id, self._sync.wanted.status)
            at_once = views.show_consumers(broker_id, self._sync.topics)
            self._shown_to_consumers = True
            self._until = now + self._waits.subscribe
            if at_once:
                self.step = Step.WAIT_PUB
                self._until = now
        if self.step is Step.WAIT_PUB and not self._shown_to_producers:
            views.show_producers(broker_id, self._sync.topics)
            self._shown_to_producers = True

    def _finish(self) -> None:
        self.step = Step.IDLE


def _sum(wanted: Assignment) -> int:
    return checksum(wanted.defaults, wanted.topics)


def _topics(broker: BrokerInfo, defaults_text: str, topics: Iterable[str]) -> dict[str, TopicInfo]:
    """Return the topics of a broker. Raises MalformedText."""
    if not defaults_text.strip():
        return {}
    defaults = BrokerDefaults.parse(defaults_text)
    found = {}
    for text in topics:
        if not text.strip():
            continue
        one = TopicSettings.parse(text)
        partitions = defaults.partitions if one.partitions is None else one.partitions
        stores = one.stores or defaults.stores
        if partitions > MOST_PARTITIONS or stores > MOST_STORES:
            raise MalformedText(text, "more partitions than a topic may have")
        publish, subscribe = one.accept_publish, one.accept_subscribe
        found[one.topic] = TopicInfo(
            broker,
            one.topic,
            partitions,
            defaults.accept_publish if publish is None else publish,
            defaults.accept_subscribe if subscribe is None else subscribe,
            stores,
        )
    return found
