"""Snodes, the proxies between clients and brokers, as name servers list them."""

from typing import Annotated

from mq.cli.parameters import cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.options import subject
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, java_order
from mq.client.operations.columns import text
from mq.client.operations.errors import NextStep, NotFound

COMMANDS = {"cluster": ("snodeList",)}

_COLUMNS = (
    text("cluster", "Cluster"),
    text("snodeName", "Snode"),
    text("snodeAddr", "Address"),
    text("state", "State"),
)


@gives(_COLUMNS)
@subject("cluster_name")
async def snode_list(
    call: Call,
    cluster_name: Annotated[
        str | None,
        cluster_option("Only the snodes of this cluster."),
    ] = None,
) -> Result:
    """List the snodes that name servers know, and whether they answer.

    A snode that stops registering is listed for snodeExpiredTimeout, two minutes. -c selects snodes
    by the cluster that they report, which may differ from that of their brokers.

    Examples:
        mq snodeList          every snode, and whether it answers
        mq snodeList -o json  for a program
    """
    from mq.client.errors import MQError

    async with call.admin() as admin:
        found = (await admin.snodes(cluster_name)).snode_table
        if not found and cluster_name is not None:
            known = sorted((await admin.snodes()).snode_cluster)
            raise NotFound(
                f"no snode is in cluster {cluster_name!r} (known: {', '.join(known) or 'none'})",
                hint=NextStep.LIST_CLUSTERS,
            )
        addresses = sorted({one.address for one in found.values()})
        try:
            up, failures = await cluster.at_each(
                admin, addresses, lambda each, address: each.reach_snode(address), any_will_do=True
            )
        except MQError as error:  # the only one
            up, failures = {}, [str(error)]
    order = [found[name] for name in java_order.hash_order(found)]
    rows: list[Row] = [
        (one.cluster_name, one.snode_name, one.address, "up" if one.address in up else "silent")
        for one in sorted(order, key=lambda one: (one.cluster_name, one.snode_name))
    ]
    plain = f"{'#Cluster':<24}  {'#Snode':<24}  {'#Addr':<22}  #State\n"
    plain += "".join(f"{row[0]:<24}  {row[1]:<24}  {row[2]:<22}  {row[3]}\n" for row in rows)
    return Result(_COLUMNS, rows, plain, failures=failures)
