"""Selects brokers by cluster name, broker name or address.

Java's CommandUtil prints "[error] Make sure the specified clusterName exists …" and continues as if
nothing had failed; these functions raise NotFound.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from mq.client.operations import java_order
from mq.client.operations.errors import NextStep, NotFound
from mq.protocol.names import MASTER_ID

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.errors import MQError
    from mq.client.operations.wire import Clusters
    from mq.client.transport.caller import Caller
    from mq.protocol.bodies import BrokerData

T = TypeVar("T")


async def clusters(session: "Caller") -> "Clusters":
    """Return every cluster and broker that the name server knows."""
    from mq.client.operations import (
        wire,  # imported here: it takes 8 ms, and most commands do not need it
    )

    return await wire.clusters(session)


def broker_names(info: "Clusters", cluster: str) -> list[str]:
    """Return the broker names of a cluster, in Java's order. Raises NotFound."""
    names = info.cluster_addr_table.get(cluster)
    if names is None:
        known = ", ".join(sorted(info.cluster_addr_table)) or "there are none"
        raise NotFound(f"no cluster {cluster!r} (known: {known})", hint=NextStep.LIST_CLUSTERS)
    return java_order.hash_order(names)


def brokers(info: "Clusters", cluster: str) -> list["BrokerData"]:
    """Return the registered brokers of a cluster. Raises NotFound for an unknown cluster."""
    table = info.broker_addr_table
    return [table[name] for name in broker_names(info, cluster) if name in table]


def masters(info: "Clusters", cluster: str) -> list[str]:
    """Return the addresses of the cluster's masters. Raises NotFound if there is none."""
    found = [
        broker.broker_addrs[MASTER_ID]
        for broker in brokers(info, cluster)
        if MASTER_ID in broker.broker_addrs
    ]
    if not found:
        raise NotFound(f"cluster {cluster!r} has no master now", hint=NextStep.LIST_CLUSTERS)
    return java_order.hash_order(found)


def kept(info: "Clusters", cluster: str) -> list[str]:
    """Return a line for each broker of the cluster without a master, after a deletion at the
    masters: such a broker keeps the deleted object.
    """
    return [
        f"broker {name}: it has no master now, and keeps what it has: delete that when it is back"
        for name in broker_names(info, cluster)
        if name not in info.broker_addr_table
        or MASTER_ID not in info.broker_addr_table[name].broker_addrs
    ]


def addresses(info: "Clusters", cluster: str) -> list[str]:
    """Return the addresses of all brokers of a cluster, slaves included. Raises NotFound."""
    found = [
        broker.broker_addrs[broker_id]
        for broker in brokers(info, cluster)
        for broker_id in sorted(broker.broker_addrs)
    ]
    return java_order.hash_order(found)


def broker_name(info: "Clusters", address: str) -> str:
    """Return the name of the broker at an address. Raises NotFound."""
    for name, broker in info.broker_addr_table.items():
        if address in broker.broker_addrs.values():
            return name
    raise NotFound(f"no name server knows a broker at {address}", hint=NextStep.LIST_CLUSTERS)


def cluster_of(info: "Clusters", broker: str) -> str | None:
    """Return the cluster of a broker name."""
    for name in java_order.hash_order(info.cluster_addr_table):
        if broker in info.cluster_addr_table[name]:
            return name
    return None


def any_address(broker: "BrokerData") -> str:
    """Return the master's address, or that of a slave (BrokerData.selectBrokerAddr)."""
    found = broker.broker_addrs.get(MASTER_ID)
    if found is None:
        found = next(iter(broker.broker_addrs.values()), None)
    if found is None:
        raise NotFound(f"broker {broker.broker_name} has no address now")
    return found


def homes(info: "Clusters") -> list[str]:
    """Return one address per replica set of all clusters, of the master if there is one."""
    return [
        any_address(broker) for broker in info.broker_addr_table.values() if broker.broker_addrs
    ]


async def at_each(
    admin: "Admin",
    addresses: Iterable[str],
    act: Callable[["Admin", str], Coroutine[Any, Any, T]],
    *,
    any_will_do: bool = False,
) -> tuple[dict[str, T], list[str]]:
    """Run an action at each broker, all concurrently, so that a dead one does not delay the others.

    Returns the results by address, in the order of `addresses`, and the errors of the others. If
    none succeeded, raises the last error with the others as notes, unless `any_will_do`.
    """
    done, failed = await outcomes(admin, addresses, act)
    if failed and not done and not any_will_do:
        *others, last = failed.values()
        for error in others:
            last.add_note(str(error))
        raise last
    return done, [str(error) for error in failed.values()]


async def outcomes(
    admin: "Admin",
    addresses: Iterable[str],
    act: Callable[["Admin", str], Coroutine[Any, Any, T]],
) -> tuple[dict[str, T], dict[str, "MQError"]]:
    """Run an action at each broker, all concurrently; returns results and errors by address.

    A session on an event loop runs all of them on it; a blocking session uses one thread for each.
    """
    from mq.client.errors import MQError

    targets = list(dict.fromkeys(addresses))
    found: dict[str, T | BaseException]
    if admin.session.is_concurrent:
        found = await _on_the_loop(admin, targets, act)
    elif len(targets) == 1:
        found = {}
        try:
            found[targets[0]] = await act(admin, targets[0])
        except MQError as error:
            found[targets[0]] = error
    else:
        found = _in_threads(admin, targets, act)
    done: dict[str, T] = {}
    failed: dict[str, MQError] = {}
    for address in targets:
        outcome = found[address]
        if isinstance(outcome, MQError):
            failed[address] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            done[address] = outcome
    return done, failed


async def _on_the_loop(
    admin: "Admin", addresses: list[str], act: Callable[["Admin", str], Coroutine[Any, Any, T]]
) -> dict[str, T | BaseException]:
    import asyncio

    found = await asyncio.gather(
        *(act(admin, address) for address in addresses), return_exceptions=True
    )
    return dict(zip(addresses, found, strict=True))


def _in_threads(
    admin: "Admin", addresses: list[str], act: Callable[["Admin", str], Coroutine[Any, Any, T]]
) -> dict[str, T | BaseException]:
    """Run each action in a thread with its own session: importing an event loop would take
    longer.
    """
    import threading

    from mq.client.admin import Admin
    from mq.client.transport.blocking import run

    found: dict[str, T | BaseException] = {}

    def work(address: str) -> None:
        try:
            with admin.session.blocking() as own:
                found[address] = run(act(Admin(own), address))
        except BaseException as error:  # raised again in the calling thread
            found[address] = error

    # Daemon threads, so that Ctrl-C does not wait for a broker that does not answer.
    threads = [threading.Thread(target=work, args=(item,), daemon=True) for item in addresses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def within(
    seconds: float, act: Callable[["Admin", str], Coroutine[Any, Any, T]]
) -> Callable[["Admin", str], Coroutine[Any, Any, T]]:
    """Return `act`, for `outcomes` on an event loop, with a time limit that raises ConnectError.

    A limit per request would multiply for a broker that gets several requests.
    """

    async def limited(admin: "Admin", address: str) -> T:
        import asyncio

        from mq.client.errors import ConnectError

        try:
            async with asyncio.timeout(seconds):
                return await act(admin, address)
        except TimeoutError:
            raise ConnectError(address, f"no answer within {seconds:g} s") from None

    return limited
