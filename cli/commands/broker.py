"""The broker commands of mqadmin. Formats: org.apache.rocketmq.tools.command.broker."""

from typing import TYPE_CHECKING, Annotated

import typer

from mq.cli import cluster, java_text
from mq.cli.call import Call
from mq.cli.options import one_of
from mq.cli.result import Result, Row, text
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.client.admin import Admin

BrokerAddr = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Of this broker.")
]
ClusterName = Annotated[
    str | None,
    typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Of each broker of it."),
]

_COLUMNS = (text("brokerAddr", "Broker"), text("key", "Key"), text("value", "Value"))


@one_of("broker_addr", "cluster_name")
async def broker_status(
    call: Call, broker_addr: BrokerAddr = None, cluster_name: ClusterName = None
) -> Result:
    """Show what a broker, or each one of a cluster, says of itself."""
    async with call.admin() as admin:
        targets = [broker_addr or ""]
        if cluster_name is not None:
            targets = cluster.addresses(await cluster.clusters(admin.session), cluster_name)
        tables, failures = await cluster.at_each(
            admin, targets, lambda each, address: each.broker_runtime_info(address)
        )
    rows: list[Row] = [
        (address, key, table[key]) for address, table in tables.items() for key in sorted(table)
    ]
    lines = [
        f"{key:<32}: {value}\n" if cluster_name is None else f"{address:<24} {key:<32}: {value}\n"
        for address, key, value in rows
    ]
    return Result(_COLUMNS, rows, "".join(lines), data=tables, failures=failures)


@one_of("broker_addr", "cluster_name")
async def get_broker_config(
    call: Call, broker_addr: BrokerAddr = None, cluster_name: ClusterName = None
) -> Result:
    """Show the settings of a broker, or of each one of a cluster."""
    async with call.admin() as admin:
        heads = {broker_addr or "": f"============{broker_addr}============\n"}
        if cluster_name is not None:
            heads = await _heads(admin, cluster_name)
        settings, failures = await cluster.at_each(
            admin, heads, lambda each, address: each.broker_config(address)
        )
    rows: list[Row] = []
    plain = ""
    for address, found in settings.items():
        keys = java_text.properties_order(found)
        rows += [(address, key, found[key]) for key in keys]
        plain += heads[address]
        plain += "".join(f"{key:<50}=  {found[key]}\n" for key in keys) + "\n"
    return Result(_COLUMNS, rows, plain, data=settings, failures=failures)


async def _heads(admin: "Admin", name: str) -> dict[str, str]:
    """The line above each broker's settings, by address: every master, then its replicas."""
    groups: dict[str, list[str]] = {}
    for broker in cluster.brokers(await cluster.clusters(admin.session), name):
        ids = sorted(broker.broker_addrs)
        master = broker.broker_addrs.get(MASTER_ID, "null")
        groups[master] = [broker.broker_addrs[item] for item in ids if item != MASTER_ID]
    heads = {}
    for master in java_text.hash_order(groups, capacity=4):
        if master != "null":
            heads[master] = f"============Master: {master}============\n"
        for replica in groups[master]:
            heads[replica] = f"============My Master: {master}=====Slave: {replica}============\n"
    return heads
