"""The strings that describe brokers and partitions: their addresses and owners."""

from collections.abc import Iterable
from dataclasses import dataclass

from mq.protocol.tube.codes import BROKER_PORT, BROKER_TLS_PORT, MASTER_PORT
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.parts import MAX_LONG, count, name, port_number


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """`host:port`; an IPv6 address is in brackets, and its ``host`` has none."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        host, colon, port = text.strip().rpartition(":")
        if not colon:
            raise MalformedText(text, "an address is host:port")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return cls(name(text, host), port_number(text, port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_addresses(text: str, port: int = MASTER_PORT) -> tuple[Address, ...]:
    """Parse `host:port,host:port`: the masters, in order. `port` is the default for a host, or an
    IPv6 address in brackets, without one.

    Raises MalformedText if there is no address, or an invalid one.
    """
    found = []
    for item in text.replace(";", ",").split(","):
        if item.strip():
            has_port = ":" in item.rpartition("]")[2]
            found.append(Address.parse(item if has_port else f"{item.strip()}:{port}"))
    if not found:
        raise MalformedText(text, "no address is in it")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, order=True)
class BrokerInfo:
    """`id:host:port`, or `id:host: ` with the default port."""

    broker_id: int
    host: str
    port: int = BROKER_PORT

    @classmethod
    def parse(cls, text: str, default_port: int = BROKER_PORT) -> "BrokerInfo":
        """Parse either form; ``default_port`` is BROKER_TLS_PORT with TLS."""
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
    """`brokerId:topic:partitionId`: identifies a partition, independent of the broker's address."""

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
    """`brokerId:host:port#topic:partitionId`. Sorts as in masters: broker, topic, id."""

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
    """`code:` and a partition: the error of a partition in the response to a heartbeat."""

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
    """`consumerId@group#` and a partition: the owner of the partition."""

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
class RequiredPartitions:
    """`brokerId:topic:partitionId=offset,…`: the start offsets of a bound group."""

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
            offsets[PartitionKey.parse(key)] = count(text, offset.strip(), MAX_LONG)
        return cls(tuple(offsets.items()))

    def __str__(self) -> str:
        return ",".join([f"{key}={offset}" for key, offset in self.offsets])


@dataclass(frozen=True, slots=True)
class BrokerClientId:
    """`brokerId:host:port:version`: the id with which a broker registers. Its heartbeats have only
    the broker id.
    """

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
    """Parse a list of brokers, in either form. Raises MalformedText for an invalid one."""
    port = BROKER_TLS_PORT if tls else BROKER_PORT
    return {broker.broker_id: broker for broker in (BrokerInfo.parse(t, port) for t in texts)}
