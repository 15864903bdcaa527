"""The commands with which a broker registers at a name server.

A registration is *whole* or an *increment*. A whole one has every topic; an increment has those
that changed since a version that the name server accepted over the same connection. A name server
knows only the last data version, and considers a registration with the same version unchanged
(RouteInfoManager.registerBroker). So a version must identify one content:

- an increment carries the version at the very moment of its topics;
- a whole one carries a version never sent before, unless it repeats an accepted one.

Java's name servers cannot tell the two kinds apart. Those of mq can, by fields that Java ignores:
they refuse an increment whose base they do not have, and a registration that arrives after a newer
one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from mq.daemons.beacon import INTERVAL_FIELD, START_FIELD
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.roles import has_acting_slaves
from mq.daemons.broker.topics.topic_table import READ_WRITE
from mq.daemons.registration_body import body_crc32, compress
from mq.daemons.registration_order import Kind, RegistrationOrder
from mq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.broker import (
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)

# Limit in bytes of a whole registration, about 20,000 topics; a larger one is sent in parts. A
# frame holds 16 MiB, and a name server processes one in one turn of its event loop.
PART_BYTES = 6 * 1024 * 1024
# Bytes of one topic as JSON, without its name (which occurs twice) and its attributes.
TOPIC_BYTES = 200


class Content(NamedTuple):
    """The data to register, all of one moment.

    It never changes: a change of a topic replaces the table.
    """

    table: Mapping[str, TopicConfig]
    version: DataVersion
    permission: int  # brokerPermission: an upper limit for all topics
    filter_servers: tuple[str, ...] = ()  # addresses

    def is_as(self, other: "Content") -> bool:
        """Whether another content is the same."""
        return self.table is other.table and self[1:] == other[1:]

    def only(self, names: Iterable[str]) -> "Content":
        """The same moment with only these topics, as far as they exist."""
        return self._replace(table={n: self.table[n] for n in names if n in self.table})

    def parts(self) -> Iterator["Content"]:
        """Split into parts that fit a frame."""
        part: dict[str, TopicConfig] = {}
        size = 0
        for name, topic in self.table.items():
            part[name] = topic
            attributes = len(str(topic.attributes)) if topic.attributes else 0
            size += TOPIC_BYTES + 2 * len(name) + attributes
            if size > PART_BYTES:
                yield self._replace(table=part)
                part, size = {}, 0
        if part or not self.table:
            yield self._replace(table=part)


class RegistrationRequests:
    """Builds the commands of one broker. `start` identifies this start of the broker."""

    def __init__(self, settings: BrokerSettings, address: str, ha_address: str, start: str) -> None:
        self._settings = settings
        self._address = address
        self._ha_address = ha_address
        self._start = start
        self._sent = 0

    def register(
        self, content: Content, version: DataVersion, kind: Kind, base: DataVersion | None
    ) -> Command:
        """A registration with this data version; an increment is based on `base`.

        Takes time that grows with the topics; may be called in a thread.
        """
        broker = self._settings.broker
        body = RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
                topic_config_table=_permitted(content), data_version=version
            ),
            filter_server_list=list(content.filter_servers),
        )
        data = compress(body) if broker.compressed_register else body.encode()
        acts = has_acting_slaves(self._settings)
        header = RegisterBrokerRequestHeader(
            broker_name=broker.broker_name,
            broker_addr=self._address,
            cluster_name=broker.broker_cluster_name,
            ha_server_addr=self._ha_address,
            broker_id=broker.broker_id,
            compressed=broker.compressed_register,
            body_crc32=body_crc32(data),
            heartbeat_timeout_millis=broker.broker_not_active_timeout_millis if acts else None,
            enable_acting_master=acts or None,
        )
        self._sent += 1
        fields = header.encode() | RegistrationOrder(self._start, self._sent, kind, base).encode()
        operation = self._settings.operation
        if operation.liveness_beacon_enable:
            fields[START_FIELD] = self._start
            fields[INTERVAL_FIELD] = str(operation.liveness_beacon_interval_millis)
        return Command(RequestCode.REGISTER_BROKER, fields, data)

    def query(self, version: DataVersion) -> Command:
        """Query whether the name server has what was registered with this version."""
        broker = self._settings.broker
        header = QueryDataVersionRequestHeader(
            broker_name=broker.broker_name,
            broker_addr=self._address,
            cluster_name=broker.broker_cluster_name,
            broker_id=broker.broker_id,
        )
        return Command(RequestCode.QUERY_DATA_VERSION, header.encode(), version.encode())

    def unregister(self) -> Command:
        """Report that the broker stops."""
        broker = self._settings.broker
        header = UnRegisterBrokerRequestHeader(
            broker_name=broker.broker_name,
            broker_addr=self._address,
            cluster_name=broker.broker_cluster_name,
            broker_id=broker.broker_id,
        )
        return Command(RequestCode.UNREGISTER_BROKER, header.encode())


def _permitted(content: Content) -> dict[str, TopicConfig]:
    """Limit all topics to the broker's permission (BrokerController.registerBrokerAll).

    Java then drops all other data of a topic, including its attributes and flags.
    """
    if content.permission == READ_WRITE:
        return dict(content.table)
    return {
        name: TopicConfig(
            topic_name=topic.topic_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=content.permission,
        )
        for name, topic in content.table.items()
    }
