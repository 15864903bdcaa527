"""The strings within messages: brokers, partitions, subscriptions, topics, settings.

`#` parts segments, `:` attributes, `@` an id and its group, `,` elements. Each class reads one kind
(``parse``, which raises MalformedText) and writes it (``str``); what was written is read as it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mq.protocol.tube.codes import BROKER_PORT, BROKER_TLS_PORT, MASTER_PORT
from mq.protocol.tube.errors import MalformedText

__all__ = [
    "Address",
    "BrokerClientId",
    "BrokerInfo",
    "Partition",
    "PartitionFailure",
    "PartitionKey",
    "ProducerTopic",
    "RequiredPartitions",
    "SubscribeInfo",
    "TopicBroker",
    "TopicCondition",
    "TopicInfo",
    "TopicMeta",
    "TopicMetaBroker",
    "TopicPartitions",
    "parse_addresses",
]

_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """`host:port`."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        host, colon, port = text.strip().rpartition(":")
        if not colon:
            raise MalformedText(text, "an address is host:port")
        return cls(name(text, host), port_number(text, port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_addresses(text: str, port: int = MASTER_PORT) -> tuple[Address, ...]:
    """`host:port,host:port`: the masters, in this order. A host alone has this port.

    Raises MalformedText if there is none, or one of them is no address.
    """
    found = []
    for item in text.replace(";", ",").split(","):
        if item.strip():
            found.append(Address.parse(item if ":" in item else f"{item}:{port}"))
    if not found:
        raise MalformedText(text, "no address is in it")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, order=True)
class BrokerInfo:
    """`id:host:port`, or `id:host: ` where the port is the usual one."""

    broker_id: int
    host: str
    port: int = BROKER_PORT

    @classmethod
    def parse(cls, text: str, default_port: int = BROKER_PORT) -> "BrokerInfo":
        """Read either form; ``default_port`` is BROKER_TLS_PORT where TLS is used."""
        parts = text.split(":")
        if len(parts) != 3:
            raise MalformedText(text, "a broker is id:host:port")
        number, host, port = parts
        return cls(
            count(text, number),
            name(text, host),
            port_number(text, port) if port.strip() else default_port,
        )

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    @property
    def simple(self) -> str:
        """The short form, as masters send it to producers (BrokerInfo.getSimpleInfo)."""
        return f"{self.broker_id}:{self.host}: " if self.port == BROKER_PORT else str(self)

    def with_port(self, port: int) -> "BrokerInfo":
        return BrokerInfo(self.broker_id, self.host, port)

    def __str__(self) -> str:
        return f"{self.broker_id}:{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class PartitionKey:
    """`brokerId:topic:partitionId`: what a partition is known by, wherever its broker is."""

    broker_id: int
    topic: str
    partition_id: int

    @classmethod
    def parse(cls, text: str) -> "PartitionKey":
        parts = text.strip().split(":")
        if len(parts) != 3:
            raise MalformedText(text, "a partition key is brokerId:topic:partitionId")
        return cls(count(text, parts[0]), name(text, parts[1]), count(text, parts[2]))

    def __str__(self) -> str:
        return f"{self.broker_id}:{self.topic}:{self.partition_id}"


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """`brokerId:host:port#topic:partitionId`. In order as masters sort them: broker, topic, id."""

    broker: BrokerInfo
    topic: str
    partition_id: int

    @classmethod
    def parse(cls, text: str) -> "Partition":
        segments = text.strip().split("#")
        if len(segments) != 2:
            raise MalformedText(text, "a partition is brokerId:host:port#topic:partitionId")
        return cls._of(text, *segments)

    @classmethod
    def _of(cls, text: str, broker: str, partition: str) -> "Partition":
        parts = partition.split(":")
        if len(parts) != 2:
            raise MalformedText(text, "a partition ends in topic:partitionId")
        try:
            place = BrokerInfo.parse(broker)
        except MalformedText as error:
            raise MalformedText(text, str(error)) from None
        return cls(place, name(text, parts[0]), count(text, parts[1]))

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.broker.broker_id, self.topic, self.partition_id)

    def __str__(self) -> str:
        return f"{self.broker}#{self.topic}:{self.partition_id}"


@dataclass(frozen=True, slots=True)
class PartitionFailure:
    """`code:` and a partition: what a broker says of one in the answer to a heartbeat."""

    code: int
    partition: Partition

    @classmethod
    def parse(cls, text: str) -> "PartitionFailure":
        code, colon, partition = text.strip().partition(":")
        if not colon:
            raise MalformedText(text, "a failure is code:brokerId:host:port#topic:partitionId")
        return cls(count(text, code), Partition.parse(partition))

    def __str__(self) -> str:
        return f"{self.code}:{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class SubscribeInfo:
    """`consumerId@group#` and a partition: who has it."""

    consumer_id: str
    group: str
    partition: Partition

    @classmethod
    def parse(cls, text: str) -> "SubscribeInfo":
        segments = text.strip().split("#")
        if len(segments) != 3:
            raise MalformedText(text, "a subscription is consumerId@group#partition")
        consumer, at, group = segments[0].partition("@")
        if not at or "@" in group:
            raise MalformedText(text, "a subscription begins with consumerId@group")
        partition = Partition._of(text, segments[1], segments[2])
        return cls(name(text, consumer), name(text, group), partition)

    def __str__(self) -> str:
        return f"{self.consumer_id}@{self.group}#{self.partition}"


@dataclass(frozen=True, slots=True)
class TopicCondition:
    """`topic#item,item`: what a group reads of a topic."""

    topic: str
    items: tuple[str, ...]  # sorted, each once

    @classmethod
    def parse(cls, text: str) -> "TopicCondition":
        topic, _, items = _two(text, "a condition is topic#item,item")
        kept = {item.strip() for item in items.split(",")} - {""}
        if not kept:
            raise MalformedText(text, "a condition has an item at least")
        return cls(topic, tuple(sorted(kept)))

    def __str__(self) -> str:
        return f"{self.topic}#{','.join(self.items)}"


@dataclass(frozen=True, slots=True)
class RequiredPartitions:
    """`brokerId:topic:partitionId=offset,…`: where the members of a bound group begin."""

    offsets: tuple[tuple[PartitionKey, int], ...]

    @classmethod
    def parse(cls, text: str) -> "RequiredPartitions":
        offsets: dict[PartitionKey, int] = {}
        for item in text.split(","):
            if not item.strip():
                continue
            key, equals, offset = item.partition("=")
            if not equals:
                raise MalformedText(text, f"{item!r} is not brokerId:topic:partitionId=offset")
            offsets[PartitionKey.parse(key)] = count(text, offset.strip(), _MAX_LONG)
        return cls(tuple(offsets.items()))

    def __str__(self) -> str:
        return ",".join([f"{key}={offset}" for key, offset in self.offsets])


@dataclass(frozen=True, slots=True)
class TopicBroker:
    """`brokerId:partitions:stores`: how much of a topic a broker has."""

    broker_id: int
    partitions: int  # in each store
    stores: int


@dataclass(frozen=True, slots=True)
class ProducerTopic:
    """`topic#brokerId:partitions:stores,…#maxMessageSize`: where a topic may be sent."""

    topic: str
    brokers: tuple[TopicBroker, ...]
    max_message_size: int | None = None  # bytes

    @classmethod
    def parse(cls, text: str) -> "ProducerTopic":
        """Read one; a size that is no number is left out, as Java's producer does."""
        topic, _, rest = _two(text, "a topic of producers is topic#brokers#size")
        brokers, _, size = rest.partition("#")
        found = []
        for item in brokers.split(","):
            if item.strip():
                broker_id, partitions, stores = _counts(text, item, 3)
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
        broker, _, rest = _two(text, "a topic at a broker is id:host:port#topic:…")
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
        flags = f"{_bool(self.accept_publish)}:{_bool(self.accept_subscribe)}"
        return f"{self.broker}#{self.topic}:{self.partitions}:{flags}:{self.stores}"


@dataclass(frozen=True, slots=True)
class TopicMetaBroker:
    """`brokerId:stores:partitions:status`. Not in the order of TopicBroker."""

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
        topic, _, rest = _two(text, "a topic's metadata is topic#brokers")
        found = []
        for item in rest.split(","):
            if item.strip():
                broker_id, stores, partitions, status = _counts(text, item, 4)
                found.append(TopicMetaBroker(broker_id, stores, partitions, status == 1))
        return cls(topic, tuple(found))

    def __str__(self) -> str:
        brokers = [
            f"{b.broker_id}:{b.stores}:{b.partitions}:{int(b.subscribable)}" for b in self.brokers
        ]
        return f"{self.topic}#{','.join(brokers)}"


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """`topic#brokerId:partitionId,…`: what a consumer that balances itself has of a topic."""

    topic: str
    partitions: tuple[tuple[int, int], ...]  # broker id, partition id

    @classmethod
    def parse(cls, text: str) -> "TopicPartitions":
        topic, _, rest = _two(text, "a topic's partitions are topic#brokerId:partitionId,…")
        found = []
        for item in rest.split(","):
            if item.strip():
                broker_id, partition_id = _counts(text, item, 2)
                found.append((broker_id, partition_id))
        return cls(topic, tuple(found))

    @property
    def keys(self) -> tuple[PartitionKey, ...]:
        return tuple(PartitionKey(broker, self.topic, number) for broker, number in self.partitions)

    def __str__(self) -> str:
        items = ",".join([f"{broker}:{number}" for broker, number in self.partitions])
        return f"{self.topic}#{items}"


@dataclass(frozen=True, slots=True)
class BrokerClientId:
    """`brokerId:host:port:version`: how a broker registers. Its heartbeats have the id alone."""

    broker: BrokerInfo
    version: str

    @classmethod
    def parse(cls, text: str) -> "BrokerClientId":
        parts = text.strip().split(":")
        if len(parts) < 3:
            raise MalformedText(text, "a broker's id is brokerId:host:port:version")
        return cls(BrokerInfo.parse(":".join(parts[:3])), ":".join(parts[3:]))

    def __str__(self) -> str:
        return f"{self.broker}:{self.version}"


def brokers_by_id(texts: Iterable[str], *, tls: bool = False) -> dict[int, BrokerInfo]:
    """The brokers of a list, in either form. Raises MalformedText if one of them is none."""
    port = BROKER_TLS_PORT if tls else BROKER_PORT
    return {broker.broker_id: broker for broker in (BrokerInfo.parse(t, port) for t in texts)}


def count(text: str, part: str, most: int = _MAX_INT) -> int:
    """A part of a text that is a number from 0 on."""
    part = part.strip()
    if not (part.isascii() and part.isdigit()) or len(part) > 19 or int(part) > most:
        raise MalformedText(text, f"{part[:40]!r} is no number from 0 to {most}")
    return int(part)


def name(text: str, part: str) -> str:
    """A part of a text that is a name: not blank."""
    part = part.strip()
    if not part:
        raise MalformedText(text, "a name in it is blank")
    return part


def truth(text: str, part: str) -> bool:
    """A part of a text that is `true` or `false`."""
    word = part.strip().lower()
    if word not in ("true", "false"):
        raise MalformedText(text, f"{part[:40]!r} is neither true nor false")
    return word == "true"


def port_number(text: str, part: str) -> int:
    port = count(text, part, 65535)
    if port == 0:
        raise MalformedText(text, "0 is no port")
    return port


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _two(text: str, form: str) -> tuple[str, str, str]:
    """The name before the first `#`, and what is behind it."""
    first, separator, rest = text.strip().partition("#")
    if not separator:
        raise MalformedText(text, form)
    return name(text, first), separator, rest


def _counts(text: str, item: str, number: int) -> list[int]:
    parts = item.split(":")
    if len(parts) != number:
        raise MalformedText(text, f"{item[:40]!r} has {len(parts)} parts instead of {number}")
    return [count(text, part) for part in parts]
