"""Where topics can be consumed and produced: what brokers have said, and what they are let do.

Consumers see a topic before producers do, so that nothing is sent that nobody could be asked to
read (BrokerPSInfoHolder, BrokerTopicInfoView).
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
        """All that a broker has."""
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
        """A topic on its brokers, by id."""
        there = self._topics.get(topic, {})
        yield from (there[broker_id] for broker_id in sorted(there))


class Views:
    """Both views, and which brokers take part."""

    def __init__(self) -> None:
        self.consumed = TopicView()
        self.produced = TopicView()
        self._publishing: set[int] = set()
        self._subscribable: set[int] = set()

    def begin(self, broker_id: int, status: ManageStatus, topics: Mapping[str, TopicInfo]) -> None:
        """A broker that was here before, or that other master knew, goes on as it was."""
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
        """Show consumers what a broker has; whether producers may see it at once: nothing is new.

        Producers see at once what is not there any more, or not to be sent to any more; in topics
        that they do not know, and in more partitions than before, they see nothing yet
        (fastUpdBrokerTopicConfInfo; there fewer partitions wait, too).
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
        """A broker has gone."""
        self._publishing.discard(broker_id)
        self._subscribable.discard(broker_id)
        self.consumed.remove(broker_id)
        self.produced.remove(broker_id)

    def status(self, broker_id: int) -> tuple[bool, bool]:
        """Whether a broker takes part for producers, and for consumers."""
        return broker_id in self._publishing, broker_id in self._subscribable

    def partitions(self, topics: Iterable[str]) -> list[Partition]:
        """What groups that read these topics share out, in order."""
        return sorted(partition for topic in topics for partition in self.partitions_of(topic))

    def partitions_of(self, topic: str) -> list[Partition]:
        """The same of one topic."""
        found = []
        for info in self.consumed.of(topic):
            if info.accept_subscribe and info.broker.broker_id in self._subscribable:
                found += [
                    Partition(info.broker, topic, number)
                    for number in partition_ids(info.stores, info.partitions)
                ]
        return sorted(found)

    def most_brokers(self, topics: Collection[str]) -> int:
        """How many brokers that topic has which has most; -1 if there is none."""
        counts = [
            sum(info.broker.broker_id in self._subscribable for info in self.consumed.of(topic))
            for topic in topics
        ]
        return max((count for count in counts if count), default=-1)

    def for_producers(self, sizes: Mapping[str, int]) -> list[str]:
        """Where topics may be sent; `sizes` has the largest message of each, in bytes."""
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
        """Whether a broker lets a topic be consumed now."""
        info = self.consumed.get(broker_id, topic)
        return info is not None and info.accept_subscribe and broker_id in self._subscribable
