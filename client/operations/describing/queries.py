"""The queries of overview pages, and how they report failures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mq.client.errors import MQError
from mq.client.operations import cluster
from mq.client.operations.offsets.groups import Times
from mq.client.operations.offsets.records import GroupQueue, OffsetRecord
from mq.client.operations.subjects.drift import SettingRow

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.client.operations.wire import Clusters
    from mq.protocol.bodies import TopicRouteData


@dataclass(frozen=True, slots=True)
class SettingValues:
    """A setting, and each of its values with the brokers that have it; None means unset."""

    name: str
    values: tuple[tuple[str | None, tuple[str, ...]], ...]

    @property
    def differs(self) -> bool:
        return len(self.values) > 1


def by_value(rows: Iterable[SettingRow], brokers: Iterable[str]) -> tuple[SettingValues, ...]:
    """Return the settings, each with the value of most brokers first."""
    names = tuple(brokers)
    found = []
    for row in rows:
        held: dict[str | None, list[str]] = {}
        for name, value in zip(names, row.values, strict=True):
            held.setdefault(value, []).append(name)
        order = sorted(held.items(), key=lambda item: -len(item[1]))
        found.append(SettingValues(row.name, tuple((value, tuple(at)) for value, at in order)))
    return tuple(found)


async def heads(admin: "Admin") -> dict[str, str]:
    """Return the broker to query for each broker name, by address: the master, or a slave."""
    info = await cluster.clusters(admin.session)
    return of_info(info)


def of_info(info: "Clusters") -> dict[str, str]:
    """Return the same from the answer of a name server."""
    return {
        cluster.any_address(broker): name
        for name, broker in sorted(info.broker_addr_table.items())
        if broker.broker_addrs
    }


def of_route(route: "TopicRouteData") -> dict[str, str]:
    """Return the broker to query for each broker name in a route, by address."""
    return {
        cluster.any_address(broker): broker.broker_name
        for broker in sorted(route.broker_datas, key=lambda one: one.broker_name)
        if broker.broker_addrs
    }


def silent(names: Mapping[str, str], *failed: Mapping[str, MQError]) -> list[str]:
    """Return a line for each broker that did not answer, with its first error."""
    found: dict[str, MQError] = {}
    for errors in failed:
        for address, error in errors.items():
            found.setdefault(address, error)
    return [f"{names.get(address, address)}: {error}" for address, error in sorted(found.items())]


async def store_times(
    admin: "Admin", points: Iterable[tuple[str, str, int, int]], now: int, seconds: float
) -> tuple[dict[tuple[str, str, int], int], list[str]]:
    """Return the store times of the messages at, or next after, given offsets, by topic, broker and
    queue.

    `points` are topic, broker, queue and offset; `now` is in ms. Stops after `seconds`; also
    returns a line for each failure.
    """
    import asyncio

    records = [
        OffsetRecord(GroupQueue("", topic, broker, queue_id), offset)
        for topic, broker, queue_id, offset in points
    ]
    try:
        async with asyncio.timeout(seconds):
            found = await Times(admin, now).stamp(records)
    except TimeoutError:
        return {}, [f"no store times of messages within {seconds:g} s"]
    times = {
        (item.key.topic, item.key.broker_name, item.key.queue_id): item.timestamp
        for item in found.records
        if item.timestamp is not None
    }
    return times, found.failures
