"""The partitions that a producer may send to, and which of them it avoids for a while.

The partitions of a topic are used in turn, starting at a random one. These are avoided:

- a partition, for some seconds, after several consecutive failures
- a broker that reports itself as unavailable, for most of a minute; if no other one is usable, only
  as long as a partition: a restarting broker reports this briefly, and Java's producer then sends
  nothing for that minute
- a broker that repeatedly cannot be reached, until it can, if there are others
- a broker with too many unanswered sends.

If all partitions are avoided, but not all brokers, they are still used in turn, as in Java
(RoundRobinPartitionRouter); if all brokers are avoided, the send is refused
(DefaultBrokerRcvQltyStats).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from mq.client.errors import BadAnswer
from mq.client.machine import random_ids
from mq.client.tube.connection import TubeConnection
from mq.client.tube.errors import TubeError
from mq.client.tube.producer_options import TubeProducerOptions
from mq.protocol.tube.codes import Code
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.names import DEFAULT_MESSAGE_SIZE, partition_ids
from mq.protocol.tube.strings import (
    Address,
    BrokerInfo,
    Partition,
    ProducerTopic,
    brokers_by_id,
)

#: How long a topic missing from a master's answer is still sent to: a master that has just started
#: knows no broker until they have registered. (Java's producer sends nothing then.)
MISSED_SECONDS = 30.0

#: The limit of a plausible answer.
MAX_PARTITIONS = 1_000_000


class BrokerLink:
    """A producer's view of a broker."""

    def __init__(self, info: BrokerInfo) -> None:
        self.info = info
        self.address: Address = info.address
        self.connection: TubeConnection | None = None  # from the service
        self.pending = 0  # unanswered sends
        self.frozen_until = 0.0
        # from when it is used if there is no other one, although it is frozen
        self.asked_from = 0.0
        self.forbidden_until = 0.0
        self.failures: deque[float] = deque()  # times of failed connections


class Lane:
    """A partition that may be sent to."""

    __slots__ = ("broker", "failures", "frozen_until", "head", "partition")

    def __init__(self, broker: BrokerLink, partition: Partition) -> None:
        self.broker = broker
        self.partition = partition
        self.failures = 0
        self.frozen_until = 0.0
        self.head = b""  # the common start of all requests to it: see send_request


class _Topic:
    def __init__(self, described: ProducerTopic, lanes: list[Lane]) -> None:
        self.described = described
        self.lanes = lanes
        self.turn = random_ids.randrange(len(lanes)) if lanes else 0


class Routing:
    """The partitions of all published topics. ``now`` is the loop's clock."""

    def __init__(self, options: TubeProducerOptions, now: Callable[[], float]) -> None:
        self.checksum = -1  # of the brokers' list, computed by the master
        self.max_message_size = DEFAULT_MESSAGE_SIZE  # for topics without a limit of their own
        self._options = options
        self._now = now
        self._brokers: dict[int, BrokerLink] = {}
        self._topics: dict[str, _Topic] = {}
        self._described: list[ProducerTopic] = []
        self._missed: dict[str, float] = {}  # topics missing from masters' answers, and since when
        self.pending = 0

    def update_brokers(self, texts: Iterable[str], checksum: int) -> None:
        """Apply the list of brokers in an answer. Raises BadAnswer, without a change, if it is
        invalid.
        """
        try:
            infos = brokers_by_id(texts, tls=self._options.tls is not None)
        except MalformedText as error:
            raise BadAnswer("the master", str(error)) from None
        known = self._brokers
        self._brokers = {
            number: known[number]
            if number in known and known[number].info == info
            else BrokerLink(info)
            for number, info in infos.items()
        }
        self.checksum = checksum
        self._join()

    def update_topics(self, texts: Iterable[str]) -> None:
        """Apply the topics in an answer: all that may be sent to. Raises BadAnswer in the same way.

        A missing topic is kept unchanged for MISSED_SECONDS.
        """
        try:
            described = [ProducerTopic.parse(text) for text in texts if text.strip()]
        except MalformedText as error:
            raise BadAnswer("the master", str(error)) from None
        count = sum(b.partitions * b.stores for topic in described for b in topic.brokers)
        if count > MAX_PARTITIONS:
            raise BadAnswer("the master", f"{count} partitions: {MAX_PARTITIONS} are believed")
        now, named = self._now(), {topic.topic for topic in described}
        missed = [topic for topic in self._described if topic.topic not in named]
        self._missed = {one.topic: self._missed.get(one.topic, now) for one in missed}
        kept = [one for one in missed if now - self._missed[one.topic] < MISSED_SECONDS]
        self._described = described + kept
        self._join()

    def _join(self) -> None:
        """Create lanes from topics and brokers; existing ones keep their state."""
        known = {
            (lane.broker, lane.partition): lane
            for topic in self._topics.values()
            for lane in topic.lanes
        }
        topics: dict[str, _Topic] = {}
        for described in self._described:
            lanes = []
            for at in described.brokers:
                broker = self._brokers.get(at.broker_id)
                if broker is None:
                    continue
                for number in partition_ids(at.stores, at.partitions):
                    partition = Partition(broker.info, described.topic, number)
                    lanes.append(known.get((broker, partition)) or Lane(broker, partition))
            before = self._topics.get(described.topic)
            topic = topics[described.topic] = _Topic(described, lanes)
            if before is not None:
                topic.turn = before.turn
        self._topics = topics

    def partitions(self, topic: str) -> list[Partition]:
        """Return the writable partitions of a topic; empty if it is unknown."""
        found = self._topics.get(topic)
        return [] if found is None else [lane.partition for lane in found.lanes]

    def limit(self, topic: str) -> int:
        """Return the limit of a message's body and attributes in bytes."""
        found = self._topics.get(topic)
        own = None if found is None else found.described.max_message_size
        return self.max_message_size if own is None else own

    def choose(self, topic: str) -> Lane:
        """Return the partition for the next message.

        Raises TubeError if the topic has no partition, or all its brokers are avoided.
        """
        found = self._topics.get(topic)
        if found is None or not found.lanes:
            raise TubeError(
                Code.PARAMETER_MSG_TOPIC_NO_PARTITION,
                f"topic {topic} has no partition that may be sent to: does it exist, and accept"
                " messages?",
            )
        self._check_room()
        lanes, count, now = found.lanes, len(found.lanes), self._now()
        usable: Lane | None = None
        last: Lane | None = None
        for step in range(1, count + 1):
            lane = lanes[(found.turn + step) % count]
            if self._is_left_alone(lane.broker, now):
                if last is None and self._may_be_asked(lane.broker, now):
                    last = lane
                continue
            if lane.frozen_until <= now:
                found.turn = (found.turn + step) % count
                return lane
            usable = usable or lane
        usable = usable or last
        if usable is None:
            reasons = {why for lane in lanes if (why := self._reason(lane.broker, now))}
            text = f"all brokers of topic {topic} are avoided for now: {', '.join(sorted(reasons))}"
            raise TubeError(Code.ALL_PARTITION_FROZEN, text)
        found.turn = (found.turn + 1) % count
        return usable

    def lane(self, partition: Partition) -> Lane:
        """Return this partition, whatever its state.

        Raises TubeError if it is not writable, or too many sends are unanswered.
        """
        self._check_room()
        found = self._topics.get(partition.topic)
        for lane in () if found is None else found.lanes:
            if lane.partition.key == partition.key:
                return lane
        raise TubeError(
            Code.PARAMETER_MSG_TOPIC_NO_PARTITION, f"{partition.key} may not be sent to now"
        )

    def _check_room(self) -> None:
        if self.pending >= self._options.pending:
            text = f"{self.pending} sends are unanswered (pending)"
            raise TubeError(Code.CLIENT_HIGH_FREQUENCY_REQUEST, text)

    def _is_left_alone(self, broker: BrokerLink, now: float) -> bool:
        return (
            broker.frozen_until > now
            or broker.forbidden_until > now
            or broker.pending > self._options.link_pending
        )

    def _may_be_asked(self, broker: BrokerLink, now: float) -> bool:
        """Whether an avoided broker may be used if there is no other."""
        is_full = broker.pending > self._options.link_pending
        return broker.asked_from <= now and broker.forbidden_until <= now and not is_full

    def _reason(self, broker: BrokerLink, now: float) -> str:
        """Return why a broker is avoided."""
        if broker.pending > self._options.link_pending:
            return f"{broker.pending} sends are unanswered (link_pending)"
        if broker.forbidden_until > now:
            return "they cannot be connected to"
        return "they are unavailable (503)"

    def sent(self, lane: Lane) -> None:
        """Record a send to a partition."""
        lane.broker.pending += 1
        self.pending += 1

    def answered(self, lane: Lane, code: int) -> None:
        """Record an answer of its broker."""
        self._ended(lane)
        broker = lane.broker
        broker.failures.clear()
        broker.forbidden_until = 0.0
        if code == Code.SUCCESS:
            lane.failures = 0
            return
        self._failed(lane)
        if code == Code.SERVICE_UNAVAILABLE:
            now, options = self._now(), self._options
            broker.frozen_until = now + options.unavailable_seconds
            broker.asked_from = now + min(options.frozen_seconds, options.unavailable_seconds)

    def failed(self, lane: Lane, *, link: bool) -> None:
        """Record a send with an unknown result; ``link`` means there was no connection."""
        self._ended(lane)
        self._failed(lane)
        if link:
            self._link_failed(lane.broker)

    def abandoned(self, lane: Lane) -> None:
        """Record a send whose result is no longer awaited."""
        self._ended(lane)

    def _ended(self, lane: Lane) -> None:
        lane.broker.pending -= 1
        self.pending -= 1

    def _failed(self, lane: Lane) -> None:
        lane.failures += 1
        if lane.failures > self._options.failures_to_freeze:
            lane.failures = 0
            lane.frozen_until = self._now() + self._options.frozen_seconds

    def _link_failed(self, broker: BrokerLink) -> None:
        options, now = self._options, self._now()
        failures = broker.failures
        failures.append(now)
        while failures[0] < now - options.link_window:
            failures.popleft()
        if len(failures) < options.link_failures:
            return
        forbidden = sum(one.forbidden_until > now for one in self._brokers.values())
        # A single broker cannot be replaced by another.
        if forbidden < min(
            len(self._brokers) - 1, max(1, round(len(self._brokers) * options.link_forbidden_rate))
        ):
            broker.forbidden_until = now + options.link_forbidden_seconds
        failures.clear()

    @property
    def brokers(self) -> Mapping[int, BrokerLink]:
        """All brokers that the master has listed, by id."""
        return self._brokers
