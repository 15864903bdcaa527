"""Which brokers a command means: by cluster name, broker name or address.

Where Java's CommandUtil prints "[error] Make sure the specified clusterName exists …" and goes on
as if all were well, these raise NotFound.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from mq.cli import java_text
from mq.cli.errors import NotFound
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.cli.wire import Clusters
    from mq.client.caller import Caller
    from mq.protocol.bodies import BrokerData

T = TypeVar("T")


async def clusters(session: "Caller") -> "Clusters":
    """Every cluster and broker that the name server knows."""
    from mq.cli import wire  # here: it takes 8 ms to load, and most commands need none of it

    return await wire.clusters(session)


def broker_names(info: "Clusters", cluster: str) -> list[str]:
    """The broker names of a cluster, in Java's order. Raises NotFound."""
    names = info.cluster_addr_table.get(cluster)
    if names is None:
        known = ", ".join(sorted(info.cluster_addr_table)) or "there are none"
        raise NotFound(f"no cluster {cluster!r} (known: {known})", hint="see: mq clusterList")
    return java_text.hash_order(names)


def brokers(info: "Clusters", cluster: str) -> list["BrokerData"]:
    """The brokers of a cluster that are registered. Raises NotFound for an unknown cluster."""
    table = info.broker_addr_table
    return [table[name] for name in broker_names(info, cluster) if name in table]


def masters(info: "Clusters", cluster: str) -> list[str]:
    """The addresses of the cluster's masters. Raises NotFound when there is none."""
    found = [
        broker.broker_addrs[MASTER_ID]
        for broker in brokers(info, cluster)
        if MASTER_ID in broker.broker_addrs
    ]
    if not found:
        raise NotFound(f"cluster {cluster!r} has no master now", hint="see: mq clusterList")
    return java_text.hash_order(found)


def addresses(info: "Clusters", cluster: str) -> list[str]:
    """The addresses of all brokers of a cluster, replicas included. Raises NotFound."""
    found = [
        broker.broker_addrs[broker_id]
        for broker in brokers(info, cluster)
        for broker_id in sorted(broker.broker_addrs)
    ]
    return java_text.hash_order(found)


def broker_name(info: "Clusters", address: str) -> str:
    """The name of the broker at an address. Raises NotFound."""
    for name, broker in info.broker_addr_table.items():
        if address in broker.broker_addrs.values():
            return name
    raise NotFound(f"no name server knows a broker at {address}", hint="see: mq clusterList")


def cluster_of(info: "Clusters", broker: str) -> str | None:
    """The cluster that a broker name belongs to."""
    for name in java_text.hash_order(info.cluster_addr_table):
        if broker in info.cluster_addr_table[name]:
            return name
    return None


def any_address(broker: "BrokerData") -> str:
    """The master's address, or that of a replica (BrokerData.selectBrokerAddr)."""
    found = broker.broker_addrs.get(MASTER_ID)
    if found is None:
        found = next(iter(broker.broker_addrs.values()), None)
    if found is None:
        raise NotFound(f"broker {broker.broker_name} has no address now")
    return found


async def for_each(
    targets: Iterable[T], act: Callable[[T], Awaitable[Any]]
) -> tuple[list[T], list[str]]:
    """Do something at each target, in order; return those done and why others were not.

    Raises the error of the last one when none was done.
    """
    from mq.client.errors import MQError

    done: list[T] = []
    failures: list[str] = []
    last: MQError | None = None
    for target in targets:
        try:
            await act(target)
        except MQError as error:
            last = error
            failures.append(str(error))
        else:
            done.append(target)
    if last is not None and not done:
        raise last
    return done, failures
