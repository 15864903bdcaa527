"""The strings that describe topics: their brokers, and subscriptions to them."""

from dataclasses import dataclass

from mq.protocol.tube.brokers import BrokerInfo, PartitionKey
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.parts import count, counts, name, named, truth, word


@dataclass(frozen=True, slots=True)
class TopicCondition:
    """`topic#item,item`: the filter items of a group for a topic."""

    topic: str
    items: tuple[str, ...]  # sorted, without duplicates

    @classmethod
    def parse(cls, text: str) -> "TopicCondition":
        topic, _, items = named(text, "a condition is topic#item,item")
        kept = {item.strip() for item in items.split(",")} - {""}
        if not kept:
            raise MalformedText(text, "a condition has an item at least")
        return cls(topic, tuple(sorted(kept)))

    def __str__(self) -> str:
        return f"{self.topic}#{','.join(self.items)}"


@dataclass(frozen=True, slots=True)
class TopicBroker:
    """`brokerId:partitions:stores`: the partitions of a topic at a broker."""

    broker_id: int
    partitions: int  # in each store
    stores: int


@dataclass(frozen=True, slots=True)
class ProducerTopic:
    """`topic#brokerId:partitions:stores,…#maxMessageSize`: the brokers to which a topic may be
    sent.
    """

    topic: str
    brokers: tuple[TopicBroker, ...]
    max_message_size: int | None = None  # bytes

    @classmethod
    def parse(cls, text: str) -> "ProducerTopic":
        """Parse a topic; a size that is not a number is ignored, as in Java's producer."""
        topic, _, rest = named(text, "a topic of producers is topic#brokers#size")
        brokers, _, size = rest.partition("#")
        found = []
        for item in brokers.split(","):
            if item.strip():
                broker_id, partitions, stores = counts(text, item, 3)
                found.append(TopicBroker(broker_id, partitions, stores))
        limit = int(size) if size.isascii() and size.isdigit() and len(size) < 11 else None
        return cls(topic, tuple(found), limit)

    def __str__(self) -> str:
        brokers = ",".join([f"{b.broker_id}:{b.partitions}:{b.stores}" for b in self.brokers])
        size = "" if self.max_message_size is None else f"#{self.max_message_size}"
        return f"{self.topic}#{brokers}{size}"


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A broker, `#topic:partitions:acceptPublish:acceptSubscribe:stores`: a topic at a broker."""

    broker: BrokerInfo
    topic: str
    partitions: int
    accept_publish: bool
    accept_subscribe: bool
    stores: int = 1

    @classmethod
    def parse(cls, text: str) -> "TopicInfo":
        broker, _, rest = named(text, "a topic at a broker is id:host:port#topic:…")
        parts = rest.split(":")
        if len(parts) != 5:
            raise MalformedText(text, "a topic at a broker has five parts behind '#'")
        return cls(
            BrokerInfo.parse(broker),
            name(text, parts[0]),
            count(text, parts[1]),
            truth(text, parts[2]),
            truth(text, parts[3]),
            count(text, parts[4]),
        )

    def __str__(self) -> str:
        flags = f"{word(self.accept_publish)}:{word(self.accept_subscribe)}"
        return f"{self.broker}#{self.topic}:{self.partitions}:{flags}:{self.stores}"


@dataclass(frozen=True, slots=True)
class TopicMetaBroker:
    """`brokerId:stores:partitions:status`. The order differs from TopicBroker."""

    broker_id: int
    stores: int
    partitions: int  # in each store
    subscribable: bool


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """`topic#brokerId:stores:partitions:status,…`: a topic, for client-side balance."""

    topic: str
    brokers: tuple[TopicMetaBroker, ...]

    @classmethod
    def parse(cls, text: str) -> "TopicMeta":
        topic, _, rest = named(text, "a topic's metadata is topic#brokers")
        found = []
        for item in rest.split(","):
            if item.strip():
                broker_id, stores, partitions, status = counts(text, item, 4)
                found.append(TopicMetaBroker(broker_id, stores, partitions, status == 1))
        return cls(topic, tuple(found))

    def __str__(self) -> str:
        brokers = [
            f"{b.broker_id}:{b.stores}:{b.partitions}:{int(b.subscribable)}" for b in self.brokers
        ]
        return f"{self.topic}#{','.join(brokers)}"


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """`topic#brokerId:partitionId,…`: the partitions of a consumer that balances itself."""

    topic: str
    partitions: tuple[tuple[int, int], ...]  # broker id, partition id

    @classmethod
    def parse(cls, text: str) -> "TopicPartitions":
        topic, _, rest = named(text, "a topic's partitions are topic#brokerId:partitionId,…")
        found = []
        for item in rest.split(","):
            if item.strip():
                broker_id, partition_id = counts(text, item, 2)
                found.append((broker_id, partition_id))
        return cls(topic, tuple(found))

    @property
    def keys(self) -> tuple[PartitionKey, ...]:
        return tuple(PartitionKey(broker, self.topic, number) for broker, number in self.partitions)

    def __str__(self) -> str:
        items = ",".join([f"{broker}:{number}" for broker, number in self.partitions])
        return f"{self.topic}#{items}"
