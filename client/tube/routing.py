"""Where a producer may send: partitions by topic, and which of them to leave alone for a while.

Partitions have their turn, topic by topic, from one drawn by chance on. Left alone are
- a partition, for some seconds, after some failures in a row
- a broker that has said it is unavailable, for most of a minute; if no other one may be sent to, as
  long as a partition only: one that is started again says so for a moment, and Java's producer
  sends nothing for that minute then
- a broker that cannot be connected to again and again, until it can, if there are others
- a broker that has too many sends to answer.
Where all partitions are left alone, but not all brokers, each has its turn all the same, as in Java
(RoundRobinPartitionRouter); where all brokers are, the send is refused (DefaultBrokerRcvQltyStats).
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

#: A topic of which a master says nothing is sent to as before for so many seconds: one that has
#: just begun knows of no broker until these have come to it. (Java's producer sends nothing then.)
MISSED_SECONDS = 30.0

#: Of a cluster whose answers say more, something is wrong.
MAX_PARTITIONS = 1_000_000


class BrokerLink:
    """A broker as a producer sees it."""

    def __init__(self, info: BrokerInfo) -> None:
        self.info = info
        self.address: Address = info.address
        self.connection: TubeConnection | None = None  # as the service has it
        self.pending = 0  # sends that wait for their answers
        self.frozen_until = 0.0
        self.asked_from = 0.0  # if there is no other one, though it is frozen
        self.forbidden_until = 0.0
        self.failures: deque[float] = deque()  # when connections to it have failed


class Lane:
    """A partition that may be sent to."""

    __slots__ = ("broker", "failures", "frozen_until", "head", "partition")

    def __init__(self, broker: BrokerLink, partition: Partition) -> None:
        self.broker = broker
        self.partition = partition
        self.failures = 0
        self.frozen_until = 0.0
        self.head = b""  # what all requests to it begin with: see send_request


class _Topic:
    def __init__(self, described: ProducerTopic, lanes: list[Lane]) -> None:
        self.described = described
        self.lanes = lanes
        self.turn = random_ids.randrange(len(lanes)) if lanes else 0


class Routing:
    """The partitions of all topics that are published. ``now`` is the loop's clock."""

    def __init__(self, options: TubeProducerOptions, now: Callable[[], float]) -> None:
        self.checksum = -1  # of the brokers' list, as the master made it
        self.max_message_size = DEFAULT_MESSAGE_SIZE  # where a topic says nothing
        self._options = options
        self._now = now
        self._brokers: dict[int, BrokerLink] = {}
        self._topics: dict[str, _Topic] = {}
        self._described: list[ProducerTopic] = []
        self._missed: dict[str, float] = {}  # topics that masters say nothing of, and since when
        self.pending = 0

    def update_brokers(self, texts: Iterable[str], checksum: int) -> None:
        """Take the list of an answer. Raises BadAnswer if it is none; nothing has changed then."""
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
        """Take the topics of an answer: all that may be sent to. Raises BadAnswer likewise.

        One that was there is left as it was for MISSED_SECONDS.
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
        """Make lanes of topics and brokers; those that were there before keep what they know."""
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
        """What may be sent to of a topic; empty if nothing is known of it."""
        found = self._topics.get(topic)
        return [] if found is None else [lane.partition for lane in found.lanes]

    def limit(self, topic: str) -> int:
        """The bytes that body and attributes of a message may have."""
        found = self._topics.get(topic)
        own = None if found is None else found.described.max_message_size
        return self.max_message_size if own is None else own

    def choose(self, topic: str) -> Lane:
        """The partition for the next message.

        Raises TubeError: no partition of the topic, or all of its brokers are left alone.
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
            text = (
                f"all brokers of topic {topic} are left alone for now: {', '.join(sorted(reasons))}"
            )
            raise TubeError(Code.ALL_PARTITION_FROZEN, text)
        found.turn = (found.turn + 1) % count
        return usable

    def lane(self, partition: Partition) -> Lane:
        """This partition, whatever is known of it.

        Raises TubeError if it is not to be sent to, or too many sends wait for their answers.
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
            text = f"{self.pending} sends wait for their answers (pending)"
            raise TubeError(Code.CLIENT_HIGH_FREQUENCY_REQUEST, text)

    def _is_left_alone(self, broker: BrokerLink, now: float) -> bool:
        return (
            broker.frozen_until > now
            or broker.forbidden_until > now
            or broker.pending > self._options.link_pending
        )

    def _may_be_asked(self, broker: BrokerLink, now: float) -> bool:
        """Whether one that is left alone may be sent to if there is no other."""
        is_full = broker.pending > self._options.link_pending
        return broker.asked_from <= now and broker.forbidden_until <= now and not is_full

    def _reason(self, broker: BrokerLink, now: float) -> str:
        """Why a broker is left alone."""
        if broker.pending > self._options.link_pending:
            return f"{broker.pending} sends wait for their answers (link_pending)"
        if broker.forbidden_until > now:
            return "they cannot be connected to"
        return "they are unavailable (503)"

    def sent(self, lane: Lane) -> None:
        """A message is on its way there."""
        lane.broker.pending += 1
        self.pending += 1

    def answered(self, lane: Lane, code: int) -> None:
        """Its broker has said something of it."""
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
        """Nobody knows what has become of it; ``link``: there was no connection."""
        self._ended(lane)
        self._failed(lane)
        if link:
            self._link_failed(lane.broker)

    def abandoned(self, lane: Lane) -> None:
        """Nobody waits for what becomes of it any more."""
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
        # Of a single broker there is none that could take its place.
        if forbidden < min(
            len(self._brokers) - 1, max(1, round(len(self._brokers) * options.link_forbidden_rate))
        ):
            broker.forbidden_until = now + options.link_forbidden_seconds
        failures.clear()

    @property
    def brokers(self) -> Mapping[int, BrokerLink]:
        """All brokers that the master has named, by their numbers."""
        return self._brokers
