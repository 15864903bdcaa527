"""Static topics at their brokers: reading the state, and executing a plan of `static_mapping`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mq.client.operations.errors import BadData, NextStep, NotFound, Unavailable
from mq.client.operations.static_mapping import (
    Configs,
    empty,
    epoch_and_count,
    logical_offset,
    queues,
)
from mq.client.operations.wire import Clusters
from mq.protocol.bodies import MessageQueue, TopicRemappingDetailWrapper
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.client.admin import Admin


def master(info: Clusters, broker: str) -> str:
    """Return the address of a broker's master. Raises NotFound."""
    known = info.broker_addr_table.get(broker)
    if known is None or MASTER_ID not in known.broker_addrs:
        raise NotFound(f"broker {broker} has no master now", hint=NextStep.LIST_CLUSTERS)
    return known.broker_addrs[MASTER_ID]


def masters(info: Clusters, plan: TopicRemappingDetailWrapper) -> dict[str, str]:
    """Return the address of every broker of a plan: all must be available before anything is
    changed.
    """
    return {broker: master(info, broker) for broker in plan.broker_config_map}


async def known(admin: "Admin", info: Clusters, topic: str) -> Configs:
    """Return every broker's configuration of the topic. Raises the first error: all must answer."""
    found: Configs = {}
    for broker in sorted(info.broker_addr_table):
        config = await admin.static_topic(master(info, broker), topic)
        if config is None:
            continue
        if config.mapping_detail is None:
            raise BadData(
                f"topic {topic} is an ordinary one at broker {broker}",
                hint="a static topic needs a name that no broker has",
            )
        found[broker] = config
    return found


def complete(info: Clusters, plan: TopicRemappingDetailWrapper) -> None:
    """Add the other brokers of the same clusters, without queues: they must know the topic."""
    configs = plan.broker_config_map
    epoch, count = epoch_and_count(plan.topic or "", configs)
    for names in info.cluster_addr_table.values():
        if not set(names).isdisjoint(configs):
            for name in names:
                if name not in configs:
                    configs[name] = empty(plan.topic or "", name, count, epoch)


async def put_all(
    admin: "Admin", plan: TopicRemappingDetailWrapper, masters: Mapping[str, str], *, force: bool
) -> None:
    """Send its part of a plan to every broker; with `force` also over a newer mapping."""
    for broker, config in plan.broker_config_map.items():
        await admin.create_static_topic(masters[broker], config, force=force)


async def remap(
    admin: "Admin", plan: TopicRemappingDetailWrapper, masters: Mapping[str, str], *, force: bool
) -> None:
    """Execute a plan in an order that loses nothing (MQAdminUtils.remappingStaticTopic)."""
    configs = plan.broker_config_map
    gaining, losing = sorted(plan.broker_to_map_in), sorted(plan.broker_to_map_out)
    # First the new leaders are created, then the old ones stop accepting messages.
    for broker in (*gaining, *losing):
        await admin.create_static_topic(masters[broker], configs[broker], force=force)
    # Only now it is known where the old ones end.
    for broker in losing:
        await _decide_offsets(admin, plan, broker, masters[broker])
    for broker in (*gaining, *(name for name in configs if name not in {*gaining, *losing})):
        await admin.create_static_topic(masters[broker], configs[broker], force=force)


async def _decide_offsets(
    admin: "Admin", plan: TopicRemappingDetailWrapper, broker: str, address: str
) -> None:
    mapping = plan.broker_config_map[broker].mapping_detail
    assert mapping is not None
    offsets = (await admin.topic_stats(address, plan.topic or "")).offset_table
    for queue_id, items in mapping.hosted_queues.items():
        if len(items) < 2 or items[-1].logic_offset > 0:
            continue
        old = items[-2]
        known = offsets.get(MessageQueue(plan.topic or "", old.bname or "", old.queue_id))
        if known is None:
            raise Unavailable(
                f"{address}: no offsets of queue {old.queue_id} of topic {plan.topic}"
            )
        items[-1].logic_offset = logical_offset(old, known.max_offset)
        leader = plan.broker_config_map[items[-1].bname or ""].mapping_detail
        assert leader is not None
        leader.hosted_queues[queue_id] = items


def read_plan(content: bytes, file: str, topic: str) -> TopicRemappingDetailWrapper:
    """Parse and check the plan in a file. Raises BadData, which names the file."""
    try:
        plan = TopicRemappingDetailWrapper.decode(content)
    except RemoteProtocolError as error:
        raise BadData(f"{file}: {error}") from None
    if not plan.broker_config_map:
        raise BadData(f"{file}: a plan without brokers")
    epoch_and_count(topic, plan.broker_config_map)
    queues(plan.broker_config_map)
    return plan
