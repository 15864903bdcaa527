"""Producers: those that brokers list, and those of one group at the brokers of a topic.

Brokers know the connected clients, not the topics that they send to: for a topic they return
possible producers (GET_PRODUCER_CONNECTION_LIST takes a group and ignores the topic).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mq.client.errors import MQError, NoneThere, RouteNotFound
from mq.client.operations import cluster
from mq.client.operations.connections import client_of
from mq.client.operations.errors import NotFound
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow, ProducerRow
from mq.daemons.console.guarded_session import Forbidden
from mq.daemons.console.pages import broker_queries as asked
from mq.daemons.console.pages import lists
from mq.daemons.console.pages.broker_queries import DEADLINE, MissingPart
from mq.daemons.console.pages.lists import Cut
from mq.daemons.console.parsing import text
from mq.daemons.console.route import N_, Page, Permission, Query, Route, Sheet

COLUMNS: Mapping[str, Callable[[ProducerRow], Any]] = {
    "group": lambda row: row.group,
    "client": lambda row: row.client_id,
    "address": lambda row: row.address,
    "language": lambda row: row.language,
    "version": lambda row: row.version,
    "seen": lambda row: row.seen,
}


@dataclass(frozen=True, slots=True)
class Producers:
    """``asked`` is whether brokers were queried for one group (204), else their lists are shown
    (328).

    ``silent`` are brokers that do not list producers, so some may be missing."""

    at: int | None
    asked: bool
    group: str
    topic: str
    rows: tuple[ProducerRow, ...]
    list: Cut
    silent: tuple[MissingPart, ...]


async def show(call: Call) -> Page:
    """List the producers of the snapshot, or those of a group, queried from brokers."""
    group, topic = call.query["group"], call.query["topic"]
    snapshot = call.cluster.snapshot
    problems: tuple[MissingPart, ...] = ()
    if group:
        rows, problems = await _of_group(call, group, topic)
    else:
        homes = await _brokers_of(call, topic) if topic else None
        rows = [row for row in snapshot.producers if homes is None or homes & set(row.brokers)]
    seen = lists.seen_groups(call, rows, lambda row: row.group)
    named = lists.matching(seen, call.query["q"], lambda row: f"{row.group}\n{row.client_id}")
    named = lists.ordered(named, call.query, COLUMNS)
    data = Producers(
        *(snapshot.at or None, bool(group), group, topic),
        *lists.cut(named, len(seen), call.query),
        problems,
    )
    command = ("producerConnection", "-g", group, "-t", topic) if group and topic else ()
    return Page(
        "producers/list.html",
        call.text("Producers"),
        data,
        command=command,
        sheet=Sheet(
            ("group", "clientId", "clientAddr", "language", "version", "seen"),
            [
                (row.group, row.client_id, row.address, row.language, row.version, row.seen)
                for row in named
            ],
        ),
    )


async def _brokers_of(call: Call, topic: str) -> set[str]:
    """Return the addresses of the brokers of a topic. Raises NotFound, Forbidden."""
    if not call.sees_topic(topic):
        raise Forbidden(call.text("You may not do this."))
    known = call.cluster.snapshot.topic(topic)
    if known is not None:
        return set(asked.heads(call, known.brokers))
    try:
        async with asyncio.timeout(DEADLINE):
            route = await call.admin.topic_route(topic)
    except RouteNotFound:
        raise NotFound(call.text("There is no topic %(name)s.", name=topic)) from None
    return set(asked.heads(call, (broker.broker_name for broker in route.broker_datas)))


async def _of_group(
    call: Call, group: str, topic: str
) -> tuple[list[ProducerRow], tuple[MissingPart, ...]]:
    """Return the producers of a group at all brokers, or at those of a topic."""
    if not call.sees_group(group):
        raise Forbidden(call.text("You may not do this."))
    names = asked.heads(call)
    if topic:
        homes = await _brokers_of(call, topic)
        names = {address: row for address, row in names.items() if address in homes}
    done, failed = await cluster.outcomes(
        call.admin,
        names,
        cluster.within(DEADLINE, lambda admin, at: admin.producer_connection(at, group)),
    )
    found: dict[tuple[str, str], ProducerRow] = {}
    for address, connection in done.items():
        for item in connection.connection_set:
            client = client_of(item)
            key = client.client_id, client.address
            brokers = (*(found[key].brokers if key in found else ()), address)
            what = (client.address, client.language, client.version, brokers, call.now)
            found[key] = ProducerRow(group, client.client_id, *what)
    return list(found.values()), asked.silent(_other_failures(failed, names), names)


def _other_failures(
    failed: Mapping[str, MQError], names: Mapping[str, BrokerRow]
) -> dict[str, MQError]:
    """Return the failures without those of brokers that do not know the group."""
    return {at: error for at, error in failed.items() if not isinstance(error, NoneThere)}


ROUTES = (
    Route(
        "/producers",
        show,
        Permission.READ,
        N_("The connected producers, by group."),
        query=(
            *lists.queries(COLUMNS, "group"),
            Query("group", text, "", N_("Ask brokers for this producer group.")),
            Query("topic", text, "", N_("Only at the brokers of this topic.")),
        ),
        menu=N_("Producers"),
        data=Producers,
    ),
)
