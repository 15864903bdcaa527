"""The options that choose the brokers of a command, and the addresses that result."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated

from mq.cli.parameters import broker_option, cluster_option
from mq.cli.runtime.errors import UsageError
from mq.client.operations import cluster
from mq.client.operations.errors import NextStep, NotFound

if TYPE_CHECKING:
    from mq.cli.runtime.call import Call
    from mq.client.admin import Admin
    from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig

BrokerAddr = Annotated[str | None, broker_option()]
ClusterName = Annotated[
    str | None,
    cluster_option("Every master of this cluster."),
]
OnBroker = Annotated[str | None, broker_option("Address of a broker to do it on.")]
OnMasters = Annotated[
    str | None,
    cluster_option("Do it on every master of this cluster."),
]
EachOfCluster = Annotated[
    str | None,
    cluster_option("Every broker of this cluster."),
]


def report_notes(call: "Call", notes: Mapping[str, str]) -> None:
    """Write the notes of peers about accepted settings to standard error, each with its address."""
    for address, note in notes.items():
        if note:
            call.environment.report(f"mq {call.name}: {address}: {note}")


async def cluster_or_only(
    admin: "Admin", broker_addr: str | None, cluster_name: str | None
) -> str | None:
    """Return the given cluster, or the only one of the name servers; None if a broker is given.

    mqadmin requires the option. Raises UsageError if there are several clusters.
    """
    if broker_addr or cluster_name:
        return cluster_name
    known = sorted((await cluster.clusters(admin.session)).cluster_addr_table)
    if len(known) == 1:
        return known[0]
    if not known:
        raise NotFound("the name server has no cluster", hint=NextStep.LIST_CLUSTERS)
    raise UsageError(f"several clusters: {', '.join(known)}", hint=f"choose one: -c {known[0]}")


async def refuse_change(
    admin: "Admin",
    cluster_name: str | None,
    name: str,
    wanted: "TopicConfig | SubscriptionGroupConfig",
    ask: Callable[[str], Awaitable["TopicConfig | SubscriptionGroupConfig | None"]],
) -> None:
    """Raise UsageError if a master has other settings than `wanted`.

    Creating needs no option when there is only one cluster. Changing needs one: options that are
    left out have their defaults, and would undo the settings of others.
    """
    assert cluster_name is not None
    info = await cluster.clusters(admin.session)
    for address in cluster.masters(info, cluster_name):
        if (found := await ask(address)) is None:
            continue
        there = dict(found.to_plain())
        for key, value in wanted.to_plain().items():
            if value not in (None, {}, []) and there.get(key) != value:
                raise UsageError(
                    f"{name} already exists, with {key} {there.get(key)} at {address}",
                    hint=f"to change it, choose the cluster: -c {cluster_name}",
                )


def require(broker_addr: str | None, cluster_name: str | None) -> None:
    """Raise UsageError unless one of them is given. As in Java, -b wins if both are."""
    if not broker_addr and not cluster_name:
        raise UsageError(
            "one of -b/--brokerAddr or -c/--clusterName is required",
            hint="-c CLUSTER, or -b HOST:PORT",
        )


async def targets(
    admin: "Admin", broker_addr: str | None, cluster_name: str | None, *, replicas: bool = False
) -> list[str]:
    """Return the address given, or the masters of the cluster, or all its brokers with `replicas`.

    Raises UsageError if neither is given, NotFound for a cluster without brokers.
    """
    require(broker_addr, cluster_name)
    if broker_addr:
        return [broker_addr]
    assert cluster_name is not None
    info = await cluster.clusters(admin.session)
    return (
        cluster.addresses(info, cluster_name) if replicas else cluster.masters(info, cluster_name)
    )
