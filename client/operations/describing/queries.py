"""Whom a page asks, and how failures are told."""

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
    """A setting, and each value that it has with the brokers that have it; None: not set there."""

    name: str
    values: tuple[tuple[str | None, tuple[str, ...]], ...]

    @property
    def differs(self) -> bool:
        return len(self.values) > 1


def by_value(rows: Iterable[SettingRow], brokers: Iterable[str]) -> tuple[SettingValues, ...]:
    """The settings with the value of most brokers first."""
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
    """The broker to ask of each name, by its address: its master, or a replica."""
    info = await cluster.clusters(admin.session)
    return of_info(info)


def of_info(info: "Clusters") -> dict[str, str]:
    """The same of what a name server has said."""
    return {
        cluster.any_address(broker): name
        for name, broker in sorted(info.broker_addr_table.items())
        if broker.broker_addrs
    }


def of_route(route: "TopicRouteData") -> dict[str, str]:
    """The broker to ask of each name in a route, by its address."""
    return {
        cluster.any_address(broker): broker.broker_name
        for broker in sorted(route.broker_datas, key=lambda one: one.broker_name)
        if broker.broker_addrs
    }


def silent(names: Mapping[str, str], *failed: Mapping[str, MQError]) -> list[str]:
    """A line for each broker that did not answer: of several errors of one the first."""
    found: dict[str, MQError] = {}
    for errors in failed:
        for address, error in errors.items():
            found.setdefault(address, error)
    return [f"{names.get(address, address)}: {error}" for address, error in sorted(found.items())]


async def store_times(
    admin: "Admin", points: Iterable[tuple[str, str, int, int]], now: int, seconds: float
) -> tuple[dict[tuple[str, str, int], int], list[str]]:
    """When the message at an offset, or the next one, was stored, by topic, broker and queue.

    `points` are topic, broker, queue and offset; `now` in ms. Within `seconds`; what cannot be told
    has a line.
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
        return {}, [f"the times of messages were not told within {seconds:g} s"]
    times = {
        (item.key.topic, item.key.broker_name, item.key.queue_id): item.timestamp
        for item in found.records
        if item.timestamp is not None
    }
    return times, found.failures
