"""Offsets of consumer groups in each queue, as brokers know them.

One request per broker returns the offsets of all groups, one its topics, and one per topic the ends
of its queues. With many brokers the executors share the requests.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from mq.client.errors import MQError, TopicNotExist
from mq.pipeline.declared import ClusterOptions
from mq.protocol.names import (
    BUILT_IN_GROUPS,
    MASTER_ID,
    NOT_SENDABLE_TOPICS,
    is_system_group,
    is_system_topic,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mq.client.admin import Admin
    from mq.protocol.bodies import TopicOffset

# brokers; the driver queries fewer itself, which takes less time than to start tasks
SPREAD_FROM = 8
_TIMEOUT = 10.0  # seconds for a request


class BrokerAddress(NamedTuple):
    """A broker to query: the master of its set, or any replica if the master is unavailable."""

    broker_name: str
    address: str


@dataclass(frozen=True)
class GroupFilter:
    """A choice of groups and topics: names or glob patterns (`order-*`); empty means all."""

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    def takes(self, group: str, topic: str) -> bool:
        return _matches(group, self.groups) and _matches(topic, self.topics)


class QueueRow(NamedTuple):
    """A group in a queue. Offsets are None if the group has committed none; times in ms."""

    broker_name: str
    topic: str
    queue_id: int
    group: str
    consumer_offset: int | None
    broker_offset: int
    min_offset: int
    lag: int
    last_store_time: int | None


class Asked(NamedTuple):
    """The answers of brokers, and a line for each one that failed."""

    rows: list[QueueRow]
    failures: list[str]


def broker_addresses(options: ClusterOptions, cluster: str | None = None) -> list[BrokerAddress]:
    """Return the brokers that are registered now, or those of one cluster.

    Raises MQError if no name server answers, LookupError for an unknown cluster.
    """
    from mq.client.admin import Admin
    from mq.client.transport.blocking import run

    with options.open_session(_TIMEOUT) as session:
        info = run(Admin(session).cluster_info())
    known = info.broker_addr_table
    if cluster is not None and cluster not in info.cluster_addr_table:
        names = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise LookupError(f"there is no cluster {cluster}; clusters are: {names}")
    chosen: Collection[str] = known if cluster is None else info.cluster_addr_table[cluster]
    found = []
    for name in sorted(chosen):
        if name in known and known[name].broker_addrs:
            addresses = known[name].broker_addrs
            address = addresses.get(MASTER_ID) or addresses[min(addresses)]
            found.append(BrokerAddress(name, address))
    return found


def ask(options: ClusterOptions, brokers: Iterable[BrokerAddress], selection: GroupFilter) -> Asked:
    """Query brokers, one after the other."""
    rows: list[QueueRow] = []
    failures = []
    with options.open_session(_TIMEOUT) as session:
        from mq.client.admin import Admin

        for broker in brokers:
            try:
                rows += _rows_of(Admin(session), broker, selection)
            except MQError as error:
                failures.append(f"broker {broker.broker_name}: {error}")
    return Asked(rows, failures)


def ask_from_executors(
    spark: "SparkSession",
    options: ClusterOptions,
    brokers: Sequence[BrokerAddress],
    selection: GroupFilter,
) -> Asked:
    """Query brokers by tasks, one broker each. The executors' Python needs mq."""
    tasks = spark.sparkContext.parallelize(brokers, len(brokers))
    parts = tasks.map(lambda broker: ask(options, [broker], selection)).collect()
    rows = [row for part in parts for row in part.rows]
    return Asked(rows, [failure for part in parts for failure in part.failures])


QUEUES = (
    "brokerName string, topic string, queueId int, `group` string, consumerOffset bigint,"
    " brokerOffset bigint, minOffset bigint, lag bigint, lastStoreTime timestamp"
)


def as_frame(spark: "SparkSession", rows: Sequence[QueueRow]) -> "DataFrame":
    """Return the rows as a DataFrame with the schema `QUEUES`."""
    return spark.createDataFrame([(*row[:-1], _time(row.last_store_time)) for row in rows], QUEUES)


def _rows_of(admin: "Admin", broker: BrokerAddress, selection: GroupFilter) -> Iterator[QueueRow]:
    from mq.client.operations.offsets.bounds import bounds
    from mq.client.transport.blocking import run
    from mq.protocol.bodies import MessageQueue

    committed: dict[str, dict[str, dict[int, int]]] = {}
    for key, queues in run(admin.all_consumer_offsets(broker.address)).items():
        topic, _, group = key.partition("@")
        if group and not _is_systems(topic, group) and selection.takes(group, topic):
            committed.setdefault(topic, {})[group] = queues
    topics = run(admin.topic_configs(broker.address)).topic_config_table
    for topic, groups in sorted(committed.items()):
        if topic not in topics:
            continue  # offsets outlive their topic
        try:
            readable = [
                MessageQueue(topic, broker.broker_name, number)
                for number in range(topics[topic].read_queue_nums)
            ]
            stats = run(bounds(admin, broker.address, topic, readable))
        except TopicNotExist:
            continue  # it has just been deleted
        for queue in sorted(stats):
            for group, offsets in sorted(groups.items()):
                yield _row(broker.broker_name, topic, queue.queue_id, group, offsets, stats[queue])


def _row(
    broker_name: str,
    topic: str,
    queue_id: int,
    group: str,
    offsets: dict[int, int],
    at: "TopicOffset",
) -> QueueRow:
    offset = offsets.get(queue_id, -1)
    return QueueRow(
        broker_name,
        topic,
        queue_id,
        group,
        consumer_offset=offset if offset >= 0 else None,
        broker_offset=at.max_offset,
        min_offset=at.min_offset,
        lag=max(0, at.max_offset - (offset if offset >= 0 else at.min_offset)),
        last_store_time=at.last_update_timestamp or None,
    )


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_systems(topic: str, group: str) -> bool:
    """Whether topic and group belong to the broker itself."""
    return (
        is_system_group(group)
        or group in BUILT_IN_GROUPS
        or is_system_topic(topic)
        or topic in NOT_SENDABLE_TOPICS
    )
