"""Connected clients, producers and consumers in one list."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import ClientRow
from mq.daemons.console.parsing import choice, integer, text
from mq.daemons.console.route import N_, Page, Permission, Query, Route, Sheet

PAGE_ROWS = 100
_SORTS = ("client", "group", "kind", "address", "language", "version")


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A client in a group. ``seen`` is in ms since 1970; brokers are addresses."""

    client_id: str
    kind: str  # producer | consumer
    group: str
    address: str
    language: str | None
    version: str | None
    brokers: tuple[str, ...]
    seen: int | None


@dataclass(frozen=True, slots=True)
class VersionCount:
    """The number of clients of a language and a version."""

    language: str | None
    version: str | None
    clients: int


@dataclass(frozen=True, slots=True)
class ClientsData:
    """A page of the list; ``total`` rows match the filter."""

    at: int | None
    total: int
    page: int
    clients: tuple[ConnectedClient, ...]
    versions: tuple[VersionCount, ...]


_KEYS: dict[str, Callable[[ConnectedClient], Any]] = {
    "client": lambda one: one.client_id,
    "group": lambda one: (one.group, one.client_id),
    "kind": lambda one: (one.kind, one.client_id),
    "address": lambda one: (one.address, one.client_id),
    "language": lambda one: (one.language or "", one.client_id),
    "version": lambda one: (one.version or "", one.client_id),
}


async def clients(call: Call) -> Page:
    """List connected producers and consumers."""
    snapshot, query = call.cluster.snapshot, call.query
    wanted = query["q"].lower()
    rows = [one for one in _all(call) if query["kind"] in ("", one.kind) and _fits(one, wanted)]
    rows.sort(key=_KEYS[query["sort"]], reverse=query["order"] == "desc")
    counts: dict[tuple[str | None, str | None], set[str]] = {}
    for one in rows:
        counts.setdefault((one.language, one.version), set()).add(one.client_id)
    page = max(1, query["page"])
    data = ClientsData(
        at=snapshot.at or None,
        total=len(rows),
        page=page,
        clients=tuple(rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]),
        versions=tuple(
            VersionCount(*key, len(ids))
            for key, ids in sorted(counts.items(), key=lambda item: -len(item[1]))
        ),
    )
    sheet = Sheet(
        ("clientId", "kind", "group", "clientAddr", "language", "version", "brokers", "seen"),
        [
            (one.client_id, one.kind, one.group, one.address, one.language, one.version,
             " ".join(one.brokers), one.seen)
            for one in rows
        ],
    )  # fmt: skip
    heads = snapshot.heads()
    words = ("producer", "-b", heads[0].address) if heads else ()
    return Page(
        "clients/clients.html",
        call.text("Clients"),
        data,
        command=words,
        sheet=sheet,
        extra={"size": PAGE_ROWS},
    )


def _all(call: Call) -> Iterator[ConnectedClient]:
    snapshot = call.cluster.snapshot
    for producer in snapshot.producers:
        if call.sees_group(producer.group):
            yield _client("producer", producer)
    for consumer in snapshot.consumers:
        if call.sees_group(consumer.group):
            yield _client("consumer", consumer)


def _client(kind: str, one: ClientRow) -> ConnectedClient:
    return ConnectedClient(
        one.client_id, kind, one.group, one.address, one.language, one.version, one.brokers,
        one.seen,
    )  # fmt: skip


def _fits(one: ConnectedClient, wanted: str) -> bool:
    texts = (one.client_id, one.group, one.address, one.version or "", one.language or "")
    return not wanted or any(wanted in part.lower() for part in texts)


ROUTES = (
    Route(
        "/clients",
        clients,
        Permission.READ,
        N_("Connected producers and consumers: address, language and version."),
        query=(
            Query("q", text, "", N_("Part of a client id, group, address, language or version.")),
            Query("kind", choice("", "producer", "consumer"), "", N_("Only these.")),
            Query("sort", choice(*_SORTS), "client", N_("The column to sort by.")),
            Query("order", choice("asc", "desc"), "asc", N_("From the first or last queue on.")),
            Query("page", integer, 1, N_("The part of the list, from 1.")),
        ),
        menu=N_("Clients"),
        data=ClientsData,
    ),
)
