"""The brokers of a page's requests, the deadline, and the report of those that do not answer.

Brokers are those of the snapshot, or of a route from a name server: no address comes from a
browser.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mq.client.errors import MQError
from mq.client.operations.cluster import any_address
from mq.client.operations.wire import Clusters
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import N_, Cell, Outcome, Sheet
from mq.protocol.bodies import TopicRouteData
from mq.protocol.names import MASTER_ID, retry_topic

# Seconds that a page waits for all brokers in total.
DEADLINE = 2.0


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A missing part of a page, and the reason."""

    subject: str
    text: str


def heads(call: Call, names: Iterable[str] | None = None) -> dict[str, BrokerRow]:
    """Return the broker to ask for each name, by address; only for given names, if any."""
    wanted = None if names is None else set(names)
    return {
        row.address: row
        for row in call.cluster.snapshot.heads()
        if wanted is None or row.name in wanted
    }


def of_route(call: Call, route: TopicRouteData) -> dict[str, BrokerRow]:
    """Return the brokers to ask for a route, with those that the snapshot does not have yet."""
    found = heads(call, [broker.broker_name for broker in route.broker_datas])
    there = {row.name for row in found.values()}
    for broker in route.broker_datas:
        if broker.broker_name not in there and broker.broker_addrs:
            address = any_address(broker)
            found[address] = BrokerRow(broker.cluster, broker.broker_name, 0, address, "master")
    return dict(sorted(found.items(), key=lambda item: item[1].name))


async def of_group(call: Call, group: str) -> dict[str, BrokerRow]:
    """Return the brokers to ask about a group.

    They are those of the snapshot; for a group that it does not have yet all known brokers, or
    those of its retry topic.
    """
    known = call.cluster.snapshot.group(group)
    if known is not None:
        return heads(call, known.brokers or None)
    found = heads(call)
    if found:
        return found
    try:
        async with asyncio.timeout(DEADLINE):
            return of_route(call, await call.admin.topic_route(retry_topic(group)))
    except (MQError, TimeoutError):
        return {}


def clusters(call: Call) -> tuple[str, ...]:
    """Return the names of the clusters that the name servers have."""
    return tuple(row.name for row in call.cluster.snapshot.clusters)


def master_names(call: Call) -> tuple[str, ...]:
    """Return the names of all brokers that have a master now."""
    names = (row.name for row in call.cluster.snapshot.brokers if row.id == MASTER_ID)
    return tuple(dict.fromkeys(names))


def clusters_of(call: Call, names: Iterable[str]) -> tuple[str, ...]:
    """Return the clusters of brokers with these names."""
    wanted = set(names)
    found = {row.cluster for row in call.cluster.snapshot.brokers if row.name in wanted}
    return tuple(sorted(found))


def masters(call: Call, cluster: str, names: Iterable[str] | None = None) -> dict[str, BrokerRow]:
    """Return the masters of a cluster by address; only those with given names, if any."""
    wanted = None if names is None else set(names)
    found: dict[str, BrokerRow] = {}
    for row in call.cluster.snapshot.brokers:
        if (
            row.cluster == cluster
            and row.id == MASTER_ID
            and (wanted is None or row.name in wanted)
        ):
            found.setdefault(row.name, row)  # a later row is an old address of the same broker
    return {row.address: row for row in found.values()}


def masters_there(call: Call, cluster: str) -> dict[str, BrokerRow]:
    """Return the masters of a form's cluster. Raises BadField if there is none."""
    found = masters(call, cluster)
    if not found:
        known = ", ".join(clusters(call)) or call.text("none")
        line = call.text("No cluster of this name has a master now; known: %(known)s.", known=known)
        raise BadField("cluster", line)
    return found


def settings_table(call: Call, rows: Sequence[tuple[Cell, ...]]) -> Sheet:
    """Return the table of a plan: broker, setting, before and after."""
    heads = (N_("Broker"), N_("Setting"), N_("Before"), N_("After"))
    return Sheet(tuple(map(call.text, heads)), rows, call.text("Settings"))


def silent(
    failed: Mapping[str, MQError], names: Mapping[str, BrokerRow]
) -> tuple[MissingPart, ...]:
    """Return a line for each broker that did not answer."""
    return tuple(
        MissingPart(names[address].name if address in names else address, str(error))
        for address, error in failed.items()
    )


def done(addresses: Iterable[str], names: Mapping[str, BrokerRow], text: str) -> list[Outcome]:
    """Return the successes, broker by broker."""
    return [Outcome(_target(address, names), True, text) for address in addresses]


def failed(lines: Iterable[str], names: Mapping[str, BrokerRow]) -> list[Outcome]:
    """Return the failures: lines that start with the address of a broker."""
    found = []
    for line in lines:
        address = next((one for one in names if line.startswith(f"{one}:")), "")
        found.append(Outcome(_target(address, names) if address else "?", False, line))
    return found


def raised(error: MQError, names: Mapping[str, BrokerRow]) -> list[Outcome]:
    """Return the failures of an error whose notes are those of the other brokers."""
    return failed([*getattr(error, "__notes__", ()), str(error)], names)


def away(
    call: Call, names: Mapping[str, BrokerRow], info: Clusters, held: Iterable[str] | None
) -> list[Outcome]:
    """Return a failure for each master that is no longer registered, in a deletion.

    The data there come back with the broker. ``held`` are the names of brokers that have it; None:
    unknown.
    """
    there = info.broker_addr_table
    text = call.text("It is down and keeps its data: delete again when it is back.")
    return [
        Outcome(_target(address, names), False, text)
        for address, row in names.items()
        if (held is None or row.name in held)
        and (row.name not in there or MASTER_ID not in there[row.name].broker_addrs)
    ]


def _target(address: str, names: Mapping[str, BrokerRow]) -> str:
    return f"{names[address].name} ({address})" if address in names else address
