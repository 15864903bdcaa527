"""The lines above each broker's output, as mqadmin prints them."""

from typing import TYPE_CHECKING

from mq.client.operations import cluster, java_order
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.client.admin import Admin


async def broker_heads(admin: "Admin", name: str) -> dict[str, str]:
    """Return the line above each broker's settings, by address: every master, then its replicas."""
    groups: dict[str, list[str]] = {}
    for broker in cluster.brokers(await cluster.clusters(admin.session), name):
        ids = sorted(broker.broker_addrs)
        master = broker.broker_addrs.get(MASTER_ID, "null")
        groups[master] = [broker.broker_addrs[item] for item in ids if item != MASTER_ID]
    heads = {}
    for master in java_order.hash_order(groups, capacity=4):
        if master != "null":
            heads[master] = f"============Master: {master}============\n"
        for replica in groups[master]:
            heads[replica] = f"============My Master: {master}=====Slave: {replica}============\n"
    return heads
