"""The progress of consumer groups, over all brokers."""

from typing import TYPE_CHECKING, Any

from mq.client.errors import ConsumerNotOnline, RouteNotFound
from mq.client.operations import cluster
from mq.client.operations.errors import NotFound
from mq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.bodies.route import BrokerData


class Stats:
    """The offsets of a group over all brokers, and its consumption rate."""

    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, Any] = {}
        self.consume_tps = 0.0
        self.has_retry_topic = True

    @property
    def lag(self) -> int:
        """The lag over all queues."""
        return sum(item.lag for item in self.offsets.values())


async def _brokers(
    admin: "Admin", group: str
) -> tuple[list["BrokerData"], RouteNotFound | NotFound | None]:
    """Return the brokers that may know a group, and the reason if these are all brokers.

    A group has no retry topic if none of its members ever sent a heartbeat with a subscription, as
    some clients in other languages do, or if the topic was deleted. Then any broker may know it.
    """
    absent: RouteNotFound | NotFound
    try:
        if brokers := (await admin.topic_route(RETRY_PREFIX + group)).broker_datas:
            return brokers, None
        absent = NotFound(f"no broker has consumer group {group}")
    except RouteNotFound as error:
        absent = error
    return list((await cluster.clusters(admin.session)).broker_addr_table.values()), absent


async def consume_stats(
    admin: "Admin", group: str, topic: str | None = None, cluster_name: str | None = None
) -> Stats:
    """Collect the group's offsets from every broker that has its retry topic, or from all.

    Raises NotFound if no broker has any (DefaultMQAdminExtImpl.examineConsumeStats), and
    RouteNotFound if the group has no retry topic either.
    """
    stats = Stats()
    brokers, absent = await _brokers(admin, group)
    stats.has_retry_topic = absent is None
    for broker in brokers:
        if cluster_name not in (None, broker.cluster):
            continue
        found = await admin.consume_stats(cluster.any_address(broker), group, topic)
        stats.offsets.update(found.offset_table)
        stats.consume_tps += found.consume_tps
    if not stats.offsets:
        if absent is not None:
            raise absent
        raise NotFound(
            f"no broker has offsets of consumer group {group}",
            hint="it may not have consumed anything yet",
        )
    return stats


async def group_broker(admin: "Admin", group: str) -> str:
    """Return the address of a broker that has the group. Raises NotFound, RouteNotFound."""
    brokers, absent = await _brokers(admin, group)
    for broker in brokers:
        address = cluster.any_address(broker)
        if absent is None:
            return address
        try:
            await admin.consumer_connection(address, group)
        except ConsumerNotOnline:
            continue
        return address
    raise absent or NotFound(f"no broker has consumer group {group}")
