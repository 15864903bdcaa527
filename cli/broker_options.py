"""The options that say at which brokers a command acts, and what they come to."""

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


def tell_notes(call: "Call", notes: Mapping[str, str]) -> None:
    """Write what peers note about settings that they accepted, by address, to standard error."""
    for address, note in notes.items():
        if note:
            call.environment.tell(f"mq {call.name}: {address}: {note}")


async def cluster_or_only(
    admin: "Admin", broker_addr: str | None, cluster_name: str | None
) -> str | None:
    """The cluster that is meant: the one given, or the only one there is; None with a broker.

    mqadmin wants to be told. Raises UsageError where there are several.
    """
    if broker_addr or cluster_name:
        return cluster_name
    known = sorted((await cluster.clusters(admin.session)).cluster_addr_table)
    if len(known) == 1:
        return known[0]
    if not known:
        raise NotFound("the name server knows no cluster", hint=NextStep.LIST_CLUSTERS)
    raise UsageError(
        f"which cluster? there are {', '.join(known)}", hint=f"write -c: -c {known[0]}"
    )


async def refuse_change(
    admin: "Admin",
    cluster_name: str | None,
    name: str,
    wanted: "TopicConfig | SubscriptionGroupConfig",
    ask: Callable[[str], Awaitable["TopicConfig | SubscriptionGroupConfig | None"]],
) -> None:
    """Raise UsageError where a master has other settings than those `wanted`.

    What is made goes to the only cluster by itself. What is changed needs to be told where: options
    that are left out are defaults, and would undo what others have set.
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
                    f"{name} is there already, with {key} {there.get(key)} at {address}",
                    hint=f"to change it, say where: -c {cluster_name}",
                )


def require(broker_addr: str | None, cluster_name: str | None) -> None:
    """Raise UsageError unless one of them is given. As in Java, -b wins where both are."""
    if not broker_addr and not cluster_name:
        raise UsageError(
            "one of -b/--brokerAddr or -c/--clusterName is required",
            hint="say where: -c CLUSTER, or -b HOST:PORT",
        )


async def targets(
    admin: "Admin", broker_addr: str | None, cluster_name: str | None, *, replicas: bool = False
) -> list[str]:
    """The addresses that are meant: the one given, or the cluster's masters, or all of it.

    Raises UsageError when neither is given, NotFound for a cluster without brokers.
    """
    require(broker_addr, cluster_name)
    if broker_addr:
        return [broker_addr]
    assert cluster_name is not None
    info = await cluster.clusters(admin.session)
    return (
        cluster.addresses(info, cluster_name) if replicas else cluster.masters(info, cluster_name)
    )
