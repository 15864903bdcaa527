"""A broker that has registered: what it is to have, what it says it has, and how far that is shown.

    wait_online   it has registered but does not serve yet
    wait_sync     it has other settings than it is to have; they go to it with each answer
    wait_sub      consumers see its topics; producers do in half a minute
    wait_pub      producers see them, too
    idle          nothing is to be done, until settings change or two hours have passed
    load_data     settings have changed and are read again; then wait_sync

Source: BrokerRunStatusInfo and BrokerSyncData of TubeMQ, with their waits (StepStatus). In two
things this differs. There, a change of settings alone keeps the id of the settings; here each
version has its own. (Brokers compare id and checksum, and take both as they come.) And there, a
broker that cannot take its settings is not told of better ones before it registers again.
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

#: Of a topic on one broker: partitions of a store are numbered below 10,000.
MOST_PARTITIONS = 9_999
MOST_STORES = 100


class Step(IntEnum):
    """How far a broker's start, or a change, has come (StepStatus)."""

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
    """How long steps take, in seconds."""

    subscribe: float = 30.0  # between consumers and producers
    publish: float = 5.0  # between producers and the end; none where nothing was new
    forced_sync: float = 7200.0  # all is sent again so often

    # TubeMQ waits 15 s in the place of 30 where producers may see all at once; it never does, as
    # it then goes on at once.


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a broker is to have."""

    status: ManageStatus
    defaults: str
    topics: tuple[str, ...]  # settings of each, sorted


@dataclass(frozen=True, slots=True)
class Report:
    """What a broker says of itself with a registration or a heartbeat."""

    online: bool
    config_id: int
    checksum: int
    defaults: str | None = None  # None where it says only what it had said before
    topics: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sync:
    """The settings that go to the broker, and those that it has reported."""

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
        """Whether settings have changed that are not yet in force everywhere."""
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
        """What it has said it has."""
        return self._sync.topics

    def to_send(self) -> Assignment | None:
        """What it has to be told; None if it has all."""
        return None if self._sync.is_done else self._sync.wanted

    def changed(self) -> None:
        """Its settings, or what it is let do, are others now."""
        self._changed = True

    def registered(self, report: Report, views: Views, now: float) -> None:
        """It has registered. Raises MalformedText if what it reports cannot be read."""
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
        """A heartbeat. `load` gives what it is to have now, None if it is not configured any more,
        `next_id` an id for that; they are called where that is looked at. Raises MalformedText."""
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
            # It may be that it cannot take what it was told, and that this puts it right.
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
        if wanted is None:  # it is not configured any more: it stays as it is
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
    """What a broker has, by topic. Raises MalformedText."""
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
