"""Topics: creation, deletion, queues and settings, broker by broker.

Each function acts on brokers that its caller names, those of one cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.operations import cluster, java_order
from mq.client.operations.columns import number, text, time
from mq.client.operations.errors import InvalidRequest, Parameter
from mq.client.operations.subjects.drift import SettingRow, compare
from mq.protocol.attributes import parse_changes

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.errors import MQError
    from mq.protocol.bodies import TopicConfig, TopicRouteData, TopicStatsTable


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """The result of creating a topic: the brokers that have it, the order configuration if it is
    ordered, and a line for each failure.
    """

    done: tuple[str, ...]
    order_conf: str | None
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """Where something was deleted (`broker` or `name server`, address, name), and the failures."""

    rows: tuple[tuple[str, str, str], ...]
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The offsets of a queue and the store time of its last message, in ms; None means unknown."""

    broker_name: str = text("brokerName", "Broker").field()
    queue_id: int = number("queueId", "Queue").field()
    min_offset: int = number("minOffset", "Min offset").field()
    max_offset: int = number("maxOffset", "Max offset").field()
    last_updated: int | None = time("lastUpdated", "Last updated").field()


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A broker in the route of a topic, as shown by `topicRoute`."""

    cluster: str = text("cluster", "Cluster").field()
    broker_name: str = text("brokerName", "Broker").field()
    broker_addrs: tuple[tuple[int, str], ...] = text("brokerAddrs", "Addresses").field()
    read_queue_nums: int = number("readQueueNums", "Read queues").field()
    write_queue_nums: int = number("writeQueueNums", "Write queues").field()
    perm: int = number("perm", "Permission").field()


def parse_attributes(text: str) -> dict[str, str]:
    """Parse `+key=value,-key` (AttributeParser.parseToMap). Raises InvalidRequest."""
    try:
        if changes := parse_changes(",".join(part.strip() for part in text.split(","))):
            return changes
        raise ValueError("it names no attribute")
    except ValueError as error:
        raise InvalidRequest(
            Parameter("attributes"),
            f": {error}",
            hint="+key=value sets one, -key removes one, each once",
        ) from None


async def make_at_broker(admin: "Admin", address: str, config: "TopicConfig") -> TopicCreation:
    """Create or change a topic at one broker; for an ordered one, update the order
    configuration.
    """
    await admin.create_topic(address, config)
    order = None
    if config.order:
        name = cluster.broker_name(await cluster.clusters(admin.session), address)
        order = f"{name}:{config.write_queue_nums}"
        await _merge_order_conf(admin, config.topic_name, order)
    return TopicCreation((address,), order, ())


async def make_in_cluster(admin: "Admin", name: str, config: "TopicConfig") -> TopicCreation:
    """Create or change a topic at every master of a cluster.

    Raises NotFound, and the last broker's error if all fail.
    """
    info = await cluster.clusters(admin.session)
    done, failures = await cluster.at_each(
        admin,
        cluster.masters(info, name),
        lambda each, address: each.create_topic(address, config),
    )
    order = None
    if config.order:
        from mq.client.admin.name_servers import ORDER_TOPICS

        names = java_order.hash_order(info.cluster_addr_table[name])
        order = ";".join(f"{broker}:{config.write_queue_nums}" for broker in names)
        await admin.put_kv(ORDER_TOPICS, config.topic_name, order)
    return TopicCreation(tuple(done), order, tuple(failures))


async def _merge_order_conf(admin: "Admin", topic: str, mine: str) -> None:
    """Add `broker:queues` to the topic's order configuration, replacing the broker's old entry.

    Each name server is queried first, and all get the merged value: a new name server has none.
    """
    from mq.client.admin.name_servers import ORDER_TOPICS

    parts: dict[str, str] = {}
    # the first one takes precedence
    for address in reversed(await admin.session.find_name_servers()):
        old = await admin.get_kv(address, ORDER_TOPICS, topic) or ""
        parts |= {part.split(":")[0]: part for part in old.split(";") if part}
    parts[mine.split(":")[0]] = mine
    order = ";".join(parts[name] for name in java_order.hash_order(parts))
    await admin.put_kv(ORDER_TOPICS, topic, order)


async def remove(
    admin: "Admin", masters: Iterable[str], topic: str, cluster_name: str
) -> TopicDeletion:
    """Delete a topic at the masters of a cluster, then its route there at the name servers.

    A broker that still has the topic would restore the route at once: then the name servers are
    left unchanged.
    """
    done, failures = await cluster.at_each(
        admin, masters, lambda each, address: each.delete_topic_in_broker(address, topic)
    )
    rows = [("broker", address, topic) for address in done]
    if not failures:
        for address in await admin.session.find_name_servers():
            await admin.delete_topic_in_name_server(address, topic, cluster_name)
            rows.append(("name server", address, topic))
    return TopicDeletion(tuple(rows), tuple(failures))


def queue_rows(table: "TopicStatsTable") -> list[QueueStatus]:
    """Return the queues in the order of broker names and numbers."""
    return [
        QueueStatus(
            queue.broker_name,
            queue.queue_id,
            offset.min_offset,
            offset.max_offset,
            offset.last_update_timestamp if offset.last_update_timestamp > 0 else None,
        )
        for queue, offset in sorted(table.offset_table.items())
    ]


async def status(
    admin: "Admin", addresses: Iterable[str], topic: str, seconds: float
) -> "tuple[list[QueueStatus], dict[str, MQError]]":
    """Return the queues at these brokers, and the failures by address, within `seconds`."""
    done, failed = await cluster.outcomes(
        admin,
        addresses,
        cluster.within(seconds, lambda each, address: each.topic_stats(address, topic)),
    )
    rows = [row for table in done.values() for row in queue_rows(table)]
    return sorted(rows, key=lambda row: (row.broker_name, row.queue_id)), failed


async def settings(admin: "Admin", address: str, topic: str) -> "TopicConfig | None":
    """Return the settings of a topic at a broker; None if it has none.

    A 4.9 broker cannot return a single topic: it is queried for all.
    """
    from mq.client.errors import RequestNotSupported

    try:
        return await admin.static_topic(address, topic)
    except RequestNotSupported:
        return (await admin.topic_configs(address)).topic_config_table.get(topic)


async def holders(admin: "Admin", topic: str) -> "tuple[list[str], dict[str, MQError]]":
    """Return the addresses of brokers that have a topic, and the failures by address.

    Name servers may not know it: one that has just started does not know all topics yet.
    """
    info = await cluster.clusters(admin.session)
    found, failed = await cluster.outcomes(
        admin, cluster.homes(info), lambda each, address: settings(each, address, topic)
    )
    return [address for address, config in found.items() if config is not None], failed


def compared(configs: "Mapping[str, TopicConfig]") -> tuple[SettingRow, ...]:
    """Compare the settings of a topic between brokers."""
    plain = {name: dict(config.to_plain()) for name, config in configs.items()}
    for values in plain.values():
        for key in ("topicName", "mappingDetail"):
            values.pop(key, None)
        if not values.get("attributes"):
            values.pop("attributes", None)
    return compare(plain)


def route_rows(route: "TopicRouteData") -> tuple[RouteRow, ...]:
    """Return the brokers of a route by name, with the queues that each one has."""
    queues = {item.broker_name: item for item in route.queue_datas}
    rows = []
    for broker in sorted(route.broker_datas, key=lambda item: item.broker_name):
        held = queues.get(broker.broker_name)
        counts = (held.read_queue_nums, held.write_queue_nums, held.perm) if held else (0, 0, 0)
        addresses = tuple(sorted(broker.broker_addrs.items()))
        rows.append(RouteRow(broker.cluster, broker.broker_name, addresses, *counts))
    return tuple(rows)
