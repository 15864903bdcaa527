"""How far consumer groups have come, over all brokers."""

from typing import TYPE_CHECKING, Any

from mq.client.operations import cluster
from mq.client.operations.errors import NotFound
from mq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.bodies import MessageQueue


class Stats:
    """The offsets of a group over all brokers, and how fast it consumes."""

    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, Any] = {}
        self.consume_tps = 0.0

    @property
    def lag(self) -> int:
        """Messages that wait, over all queues."""
        return sum(item.broker_offset - item.consumer_offset for item in self.offsets.values())


async def consume_stats(
    admin: "Admin", group: str, topic: str | None = None, cluster_name: str | None = None
) -> Stats:
    """Gather the group's offsets from every broker that has its retry topic.

    Raises NotFound when no broker has any (DefaultMQAdminExtImpl.examineConsumeStats).
    """
    stats = Stats()
    for broker in (await admin.topic_route(RETRY_PREFIX + group)).broker_datas:
        if cluster_name not in (None, broker.cluster):
            continue
        found = await admin.consume_stats(cluster.any_address(broker), group, topic)
        stats.offsets.update(found.offset_table)
        stats.consume_tps += found.consume_tps
    if not stats.offsets:
        raise NotFound(
            f"no broker has offsets of consumer group {group}",
            hint="it may not have consumed anything yet",
        )
    return stats


async def group_broker(admin: "Admin", group: str) -> str:
    """The address of a broker that has the group. Raises NotFound, RouteNotFound."""
    brokers = (await admin.topic_route(RETRY_PREFIX + group)).broker_datas
    if not brokers:
        raise NotFound(f"no broker has consumer group {group}")
    return cluster.any_address(brokers[0])
