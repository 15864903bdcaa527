"""Which brokers are meant: by cluster name, broker name or address.

Where Java's CommandUtil prints "[error] Make sure the specified clusterName exists …" and goes on
as if all were well, these raise NotFound.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from mq.client.operations import java_order
from mq.client.operations.errors import NextStep, NotFound
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.caller import Caller
    from mq.client.operations.wire import Clusters
    from mq.protocol.bodies import BrokerData

T = TypeVar("T")


async def clusters(session: "Caller") -> "Clusters":
    """Every cluster and broker that the name server knows."""
    from mq.client.operations import (
        wire,  # here: it takes 8 ms to load, and most commands need none of it
    )

    return await wire.clusters(session)


def broker_names(info: "Clusters", cluster: str) -> list[str]:
    """The broker names of a cluster, in Java's order. Raises NotFound."""
    names = info.cluster_addr_table.get(cluster)
    if names is None:
        known = ", ".join(sorted(info.cluster_addr_table)) or "there are none"
        raise NotFound(f"no cluster {cluster!r} (known: {known})", hint=NextStep.LIST_CLUSTERS)
    return java_order.hash_order(names)


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
        raise NotFound(f"cluster {cluster!r} has no master now", hint=NextStep.LIST_CLUSTERS)
    return java_order.hash_order(found)


def addresses(info: "Clusters", cluster: str) -> list[str]:
    """The addresses of all brokers of a cluster, replicas included. Raises NotFound."""
    found = [
        broker.broker_addrs[broker_id]
        for broker in brokers(info, cluster)
        for broker_id in sorted(broker.broker_addrs)
    ]
    return java_order.hash_order(found)


def broker_name(info: "Clusters", address: str) -> str:
    """The name of the broker at an address. Raises NotFound."""
    for name, broker in info.broker_addr_table.items():
        if address in broker.broker_addrs.values():
            return name
    raise NotFound(f"no name server knows a broker at {address}", hint=NextStep.LIST_CLUSTERS)


def cluster_of(info: "Clusters", broker: str) -> str | None:
    """The cluster that a broker name belongs to."""
    for name in java_order.hash_order(info.cluster_addr_table):
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


async def at_each(
    admin: "Admin",
    addresses: Iterable[str],
    act: Callable[["Admin", str], Coroutine[Any, Any, T]],
    *,
    any_will_do: bool = False,
) -> tuple[dict[str, T], list[str]]:
    """Do something at each broker, all side by side, so that a dead one delays no other.

    Returns what came of it by address, in the order of `addresses`, and why others failed. Raises
    the last one's error, with those of the others as its notes, when none succeeded, unless
    `any_will_do`.
    """
    from mq.client.errors import MQError

    targets = list(addresses)
    outcomes: dict[str, T | MQError] = {}
    if len(targets) == 1:
        try:
            outcomes[targets[0]] = await act(admin, targets[0])
        except MQError as error:
            outcomes[targets[0]] = error
    else:
        _in_threads(admin, targets, act, outcomes)
    done: dict[str, T] = {}
    failures: list[str] = []
    last: MQError | None = None
    for address in targets:
        outcome = outcomes[address]
        if isinstance(outcome, MQError):
            last = outcome
            failures.append(str(outcome))
        else:
            done[address] = outcome
    if last is not None and not done and not any_will_do:
        for failure in failures[:-1]:
            last.add_note(failure)
        raise last
    return done, failures


def _in_threads(
    admin: "Admin",
    addresses: list[str],
    act: Callable[["Admin", str], Coroutine[Any, Any, T]],
    outcomes: dict[str, Any],
) -> None:
    """A thread and a session for each: an event loop would take longer to import than they run."""
    import threading

    from mq.client.admin import Admin
    from mq.client.blocking import run

    def work(address: str) -> None:
        try:
            with admin.session.blocking() as own:
                outcomes[address] = run(act(Admin(own), address))
        except BaseException as error:  # raised again below, where there is somebody to see it
            outcomes[address] = error

    # Daemon threads, so that Ctrl-C need not wait for a broker that does not answer.
    threads = [threading.Thread(target=work, args=(item,), daemon=True) for item in addresses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    from mq.client.errors import MQError

    for outcome in outcomes.values():
        if isinstance(outcome, BaseException) and not isinstance(outcome, MQError):
            raise outcome
