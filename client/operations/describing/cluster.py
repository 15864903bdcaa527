"""The overview page of a cluster: name servers, brokers, topics and groups."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.admin import Admin
from mq.client.errors import MQError
from mq.client.operations import broker_stats, cluster
from mq.client.operations.cluster_snapshot import BrokerSnapshot, Collection, reason
from mq.client.operations.columns import number, text, time
from mq.client.operations.describing import queries
from mq.protocol import names
from mq.protocol.flags import permission_text
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.client.operations.wire import Clusters
    from mq.client.transport.caller import Caller
    from mq.protocol.bodies import ClusterInfo, SubscriptionGroupConfig, TopicConfig


_OF_GROUPS = (names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)


@dataclass(frozen=True, slots=True)
class NameServerRow:
    """A name server. ``brokers`` is the number of addresses that it knows; None if it does not
    answer, for the reason in ``problem``.
    """

    address: str
    brokers: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker. Values that it does not report are None. Rates are messages per second, ``disk`` is
    0 to 1, ``oldest`` is in ms.
    """

    cluster: str = text("cluster", "Cluster").field()
    name: str = text("brokerName", "Broker").field()
    broker_id: int = number("brokerId", "Id").field()
    role: str = text("role", "Role").field()
    address: str = text("brokerAddr", "Address").field()
    version: str | None = text("version", "Version").field()
    in_rate: float | None = number("inTps", "In/s").field()
    out_rate: float | None = number("outTps", "Out/s").field()
    disk: float | None = number("diskRatio", "Disk").field()
    oldest: int | None = time("earliestMessage", "").field()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic at a broker."""

    topic: str = text("topic", "Topic").field()
    broker: str = text("brokerName", "Broker").field()
    read_queues: int = number("readQueueNums", "Read").field()
    write_queues: int = number("writeQueueNums", "Write").field()
    perm: str = text("perm", "Perm").field()


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """``topics`` and ``groups`` exclude those of the system; None if no broker reports them."""

    name_servers: tuple[NameServerRow, ...]
    brokers: tuple[BrokerRow, ...]
    topics: tuple[TopicRow, ...] | None
    groups: tuple[str, ...] | None
    failures: tuple[str, ...]

    @property
    def topic_names(self) -> list[str]:
        return sorted({row.topic for row in self.topics or ()})


async def describe(session: "Caller", only: str | None, seconds: float) -> ClusterPage:
    """Collect everything that name servers and brokers report, waiting up to `seconds` for each
    broker.

    `only` selects a cluster. Raises NotFound for an unknown cluster, and the error of a name server
    if none answers.
    """
    admin = Admin(session)
    collection = Collection(admin)
    await session.find_name_servers()
    views, errors = await collection.name_servers()
    if not views:
        raise next(iter(errors.values()))
    info = await cluster.clusters(session)
    wanted = (
        cluster.broker_names(info, only) if only is not None else sorted(info.broker_addr_table)
    )
    heads = {at: name for at, name in queries.of_info(info).items() if name in wanted}
    (brokers, failed), (topics, no_topics), (groups, no_groups) = await asyncio.gather(
        _brokers(collection, info, wanted, seconds),
        cluster.outcomes(
            admin, heads, cluster.within(seconds, lambda each, at: each.topic_configs(at))
        ),
        cluster.outcomes(
            admin, heads, cluster.within(seconds, lambda each, at: each.subscription_groups(at))
        ),
    )
    servers = [NameServerRow(address, len(_addresses(one)), None) for address, one in views.items()]
    servers += [NameServerRow(address, None, reason(error)) for address, error in errors.items()]
    lines = [f"name server {address}: {reason(error)}" for address, error in errors.items()]
    named = {row.address: f"{row.name} ({row.broker_id})" for row in brokers}
    return ClusterPage(
        tuple(sorted(servers, key=lambda row: row.address)),
        tuple(brokers),
        _topics({heads[at]: one.topic_config_table for at, one in topics.items()}, info)
        if topics
        else None,
        _groups([one.subscription_group_table for one in groups.values()]) if groups else None,
        (*lines, *queries.silent(named, failed, no_topics, no_groups)),
    )


def _addresses(info: "ClusterInfo") -> set[str]:
    """Return the addresses of all brokers that a name server knows."""
    return {
        address
        for broker in info.broker_addr_table.values()
        for address in broker.broker_addrs.values()
    }


async def _brokers(
    collection: Collection, info: "Clusters", wanted: list[str], seconds: float
) -> tuple[list[BrokerRow], dict[str, MQError]]:
    brokers = [
        BrokerSnapshot(name, broker_id, address, cluster.cluster_of(info, name) or "")
        for name in wanted
        if name in info.broker_addr_table
        for broker_id, address in info.broker_addr_table[name].broker_addrs.items()
    ]
    brokers.sort(key=lambda one: (one.cluster, one.name, one.broker_id))
    await collection.runtime(brokers, seconds)
    rows = [_broker(one) for one in brokers]
    return rows, {one.address: one.error for one in brokers if one.error is not None}


def _broker(found: BrokerSnapshot) -> BrokerRow:
    table = found.runtime
    return BrokerRow(
        found.cluster,
        found.name,
        found.broker_id,
        "master" if found.broker_id == MASTER_ID else "slave",
        found.address,
        table.get("brokerVersionDesc"),
        broker_stats.in_rate(table),
        broker_stats.out_rate(table),
        broker_stats.disk_used(table),
        broker_stats.earliest_at(table),
        None if found.error is None else reason(found.error),
    )


def _topics(
    tables: "Mapping[str, Mapping[str, TopicConfig]]", info: "Clusters"
) -> tuple[TopicRow, ...]:
    # Each broker has topics named after itself and its cluster, and a reply topic of the cluster.
    own = set(info.broker_addr_table) | set(info.cluster_addr_table)
    own |= {names.reply_topic(name) for name in info.cluster_addr_table}
    found = [
        TopicRow(
            topic, broker, one.read_queue_nums, one.write_queue_nums, permission_text(one.perm)
        )
        for broker, table in tables.items()
        for topic, one in table.items()
        if not (names.is_system_topic(topic) or topic in own or topic.startswith(_OF_GROUPS))
    ]
    return tuple(sorted(found, key=lambda row: (row.topic, row.broker)))


def _groups(tables: "list[dict[str, SubscriptionGroupConfig]]") -> tuple[str, ...]:
    found = {group for table in tables for group in table if not names.is_system_group(group)}
    found -= names.PREDEFINED_GROUPS | set(names.BUILT_IN_GROUPS)
    return tuple(sorted(found))
