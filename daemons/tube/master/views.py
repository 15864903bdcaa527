"""The topics that can be consumed and produced: the brokers' reports, and their status.

Consumers see a topic before producers do, so that no message is sent before consumers can read it
(BrokerPSInfoHolder, BrokerTopicInfoView).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from mq.daemons.tube.master.records import ManageStatus
from mq.protocol.tube.names import partition_ids
from mq.protocol.tube.strings import Partition, ProducerTopic, TopicBroker, TopicInfo


class TopicView:
    """Topics on brokers, as one kind of client sees them."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, TopicInfo]] = {}
        self._brokers: dict[int, set[str]] = {}

    def replace(self, broker_id: int, topics: Mapping[str, TopicInfo]) -> None:
        """Set the topics of a broker."""
        self.remove(broker_id)
        for name, topic in topics.items():
            self._topics.setdefault(name, {})[broker_id] = topic
        if topics:
            self._brokers[broker_id] = set(topics)

    def remove(self, broker_id: int) -> None:
        for name in self._brokers.pop(broker_id, ()):
            there = self._topics[name]
            del there[broker_id]
            if not there:
                del self._topics[name]

    def get(self, broker_id: int, topic: str) -> TopicInfo | None:
        return self._topics.get(topic, {}).get(broker_id)

    def of(self, topic: str) -> Iterator[TopicInfo]:
        """Yield a topic on its brokers, by id."""
        there = self._topics.get(topic, {})
        yield from (there[broker_id] for broker_id in sorted(there))


class Views:
    """Both views, and the participating brokers."""

    def __init__(self) -> None:
        self.consumed = TopicView()
        self.produced = TopicView()
        self._publishing: set[int] = set()
        self._subscribable: set[int] = set()

    def begin(self, broker_id: int, status: ManageStatus, topics: Mapping[str, TopicInfo]) -> None:
        """Add a broker that was known before, or to another master, in its previous state."""
        self.set_status(broker_id, status)
        self.consumed.replace(broker_id, topics)
        self.produced.replace(broker_id, topics)

    def set_status(self, broker_id: int, status: ManageStatus) -> None:
        for members, is_in in (
            (self._publishing, status.publishes),
            (self._subscribable, status.subscribes),
        ):
            members.add(broker_id) if is_in else members.discard(broker_id)

    def show_consumers(self, broker_id: int, topics: Mapping[str, TopicInfo]) -> bool:
        """Show the topics of a broker to consumers; return whether producers may see them at once,
        since
        nothing is new.

        Producers see removals and closed topics at once; new topics and additional partitions are
        not shown to them yet (fastUpdBrokerTopicConfInfo; there fewer partitions wait, too).
        """
        self.consumed.replace(broker_id, topics)
        shown: dict[str, TopicInfo] = {}
        nothing_new = True
        for name, topic in topics.items():
            old = self.produced.get(broker_id, name)
            if old is None:
                nothing_new = False
                continue
            partitions = min(topic.partitions, old.partitions)
            stores = min(topic.stores, old.stores)
            shown[name] = replace(topic, partitions=partitions, stores=stores)
            nothing_new = nothing_new and shown[name] == topic
        self.produced.replace(broker_id, shown)
        return nothing_new

    def show_producers(self, broker_id: int, topics: Mapping[str, TopicInfo]) -> None:
        self.produced.replace(broker_id, topics)

    def remove(self, broker_id: int) -> None:
        """Remove a broker."""
        self._publishing.discard(broker_id)
        self._subscribable.discard(broker_id)
        self.consumed.remove(broker_id)
        self.produced.remove(broker_id)

    def status(self, broker_id: int) -> tuple[bool, bool]:
        """Return whether a broker participates for producers, and for consumers."""
        return broker_id in self._publishing, broker_id in self._subscribable

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        """Return the partitions for groups that consume these topics, in order."""
        return sorted(partition for topic in topics for partition in self.partitions_of(topic))

    def partitions_of(self, topic: str) -> list[Partition]:
        """Return the same for one topic."""
        found = []
        for info in self.consumed.of(topic):
            if info.accept_subscribe and info.broker.broker_id in self._subscribable:
                found += [
                    Partition(info.broker, topic, number)
                    for number in partition_ids(info.stores, info.partitions)
                ]
        return sorted(found)

    def most_brokers(self, topics: Collection[str]) -> int:
        """Return the number of brokers of the topic with the most; -1 without topics."""
        counts = [
            sum(info.broker.broker_id in self._subscribable for info in self.consumed.of(topic))
            for topic in topics
        ]
        return max((count for count in counts if count), default=-1)

    def for_producers(self, sizes: Mapping[str, int]) -> list[str]:
        """Return the brokers of topics for sending; `sizes` has the maximum message size of each,
        in bytes.
        """
        found = []
        for topic, size in sizes.items():
            brokers = tuple(
                TopicBroker(info.broker.broker_id, info.partitions, info.stores)
                for info in self.produced.of(topic)
                if info.accept_publish and info.broker.broker_id in self._publishing
            )
            if brokers:
                found.append(str(ProducerTopic(topic, brokers, size)))
        return found

    def subscribable(self, broker_id: int, topic: str) -> bool:
        """Return whether a topic can be consumed at a broker now."""
        info = self.consumed.get(broker_id, topic)
        return info is not None and info.accept_subscribe and broker_id in self._subscribable
