"""The books of all brokers of a cluster, and the snapshot made from them.

Only changed rows are remade: most of a large cluster is idle.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from mq.client.operations import broker_stats
from mq.client.operations.cluster_snapshot import RegisteredBroker
from mq.daemons.console.collector import rows
from mq.daemons.console.collector.book import BrokerBook
from mq.daemons.console.collector.limits import Limits
from mq.daemons.console.collector.name_server_watch import NameServerWatch
from mq.daemons.console.collector.snapshot import (
    BrokerRow,
    ConsumerRow,
    GroupRow,
    NameServerRow,
    Problem,
    ProducerRow,
    Snapshot,
    TopicRow,
)
from mq.protocol import names

Row = TypeVar("Row")

# Rows of clients, of which there may be tens of thousands, are remade after this time.
_CLIENTS_MS = 10_000
_ROWS_AT_ONCE = 50  # about 5 ms
_NOT_LISTED = "no longer registered at any name server"


class Assembly:
    """Makes snapshots. `topics` and `groups` are the names whose rows must be remade."""

    def __init__(self, limits: Limits) -> None:
        self.name_servers: Sequence[NameServerWatch] = ()
        self.topics: set[str] = set()
        self.groups: set[str] = set()
        self._limits = limits
        self._books: dict[str, BrokerBook] = {}  # by address
        # by cluster and broker name, sorted by id
        self._sets: dict[tuple[str, str], list[BrokerBook]] = {}
        self._topic_rows: dict[str, TopicRow] = {}  # sorted by name, as the next
        self._group_rows: dict[str, GroupRow] = {}
        self._producers: tuple[ProducerRow, ...] = ()
        self._consumers: tuple[ConsumerRow, ...] = ()
        self._clients_at = 0
        self._sources: list[BrokerBook] = []
        self._sources_before: list[tuple[str, str, str, bool]] = []

    def leads(self, book: BrokerBook) -> bool:
        """Return whether a broker is the one of its name that is asked about topics and groups."""
        return book is _leader(self._sets.get((book.cluster, book.name), [book]))

    def follow(self, now: int) -> list[BrokerBook]:
        """Update brokers from the name servers; returns the books of all brokers, with new ones."""
        listed: dict[str, RegisteredBroker] = {}
        for server in self.name_servers:
            for address, broker in server.brokers.items():
                listed.setdefault(address, broker)
        for address, broker in listed.items():
            book = self._books.get(address)
            if book is None:
                if len(self._books) >= self._limits.brokers and not self._make_room(listed):
                    continue  # reported by `problems`
                book = BrokerBook(broker.cluster, broker.name, broker.id, address, now)
                self._books[address] = book
            book.cluster, book.name, book.id = broker.cluster, broker.name, broker.id
            book.listed = True
        for address, book in self._books.items():
            if address not in listed and book.listed:
                book.listed, book.since = False, now
        self._sort()
        return list(self._books.values())

    def _make_room(self, listed: Container[str]) -> bool:
        """Remove the broker that has been unregistered for longest.

        Brokers that return at other addresses would otherwise fill the room of a day.
        """
        removable = [book for book in self._books.values() if book.address not in listed]
        if not removable:
            return False
        oldest = min(removable, key=lambda book: (book.listed, book.since))
        self._all_of(self._books.pop(oldest.address))
        return True

    def forget(self, before: int) -> list[str]:
        """Remove brokers that no name server has had since `before`, in ms; returns their
        addresses."""
        removable = [
            a for a, book in self._books.items() if not book.listed and book.since < before
        ]
        for address in removable:
            book = self._books.pop(address)
            self._all_of(book)
        self._sort()
        return removable

    async def snapshot(self, now: int) -> Snapshot:
        """Return the current snapshot; `now` is in ms.

        It yields to other tasks: thousands of rows take half a second after the start.
        """
        self._sources = [_source(books) for books in self._sets.values()]
        before = self._sources_before
        self._sources_before = [
            (book.address, book.cluster, book.name, book.alive) for book in self._sources
        ]
        if before != self._sources_before:
            for book in self._books.values():  # each row depends on the sources
                self._all_of(book)
        brokers = tuple(self._broker_rows())
        await self._make_rows(now, brokers)
        if now - self._clients_at >= _CLIENTS_MS or now < self._clients_at:
            self._clients_at = now
            self._producers = rows.producer_rows(self._sources)
            self._consumers = rows.consumer_rows(self._sources)
        return Snapshot(
            at=now,
            name_servers=tuple(self._name_server_rows()),
            clusters=rows.cluster_rows(brokers),
            brokers=brokers,
            topics=tuple(self._topic_rows.values()),
            groups=tuple(self._group_rows.values()),
            producers=self._producers,
            consumers=self._consumers,
            problems=tuple(self._problems()),
            runtimes={book.address: book.runtime for book in self._books.values()},
        )

    def _sort(self) -> None:
        sets: dict[tuple[str, str], list[BrokerBook]] = {}
        for book in sorted(self._books.values(), key=_place):
            sets.setdefault((book.cluster, book.name), []).append(book)
        self._sets = sets

    def _all_of(self, book: BrokerBook) -> None:
        self.topics |= book.topics.keys()
        self.groups |= book.groups.keys()

    def _broker_rows(self) -> Iterable[BrokerRow]:
        ends = {
            (book.cluster, book.name): broker_stats.integer(book.runtime, "commitLogMaxOffset")
            for book in self._books.values()
            if book.id == names.MASTER_ID and book.alive
        }
        for book in sorted(self._books.values(), key=_place):
            row = rows.broker_row(book, ends.get((book.cluster, book.name)))
            if not book.listed and row.problem is None:
                row = replace(row, problem=_NOT_LISTED)
            yield row

    async def _make_rows(self, now: int, brokers: Sequence[BrokerRow]) -> None:
        clusters = {one.cluster for one in brokers}
        own = {one.name for one in brokers}
        hidden = frozenset(own | clusters | {names.reply_topic(name) for name in clusters})
        sources = self._sources
        changed_topics, self.topics = self.topics, set()
        changed_groups, self.groups = self.groups, set()
        try:
            topics = await _each(changed_topics, lambda name: rows.topic_row(name, sources, hidden))
            groups = await _each(changed_groups, lambda name: rows.group_row(name, sources, now))
        except BaseException:  # their rows must still be remade
            self.topics |= changed_topics
            self.groups |= changed_groups
            raise
        self._topic_rows = _merged(self._topic_rows, topics)
        self._group_rows = _merged(self._group_rows, groups)

    def _name_server_rows(self) -> Iterable[NameServerRow]:
        all_addresses = {address for server in self.name_servers for address in server.brokers}
        for server in self.name_servers:
            others = {
                a for other in self.name_servers if other is not server for a in other.brokers
            }
            known = server.seen is not None
            several = len(self.name_servers) > 1
            yield NameServerRow(
                server.address,
                server.seen,
                server.problem,
                server.response_ms,
                len(server.brokers) if known else None,
                tuple(sorted(all_addresses - server.brokers.keys())) if known else (),
                tuple(sorted(server.brokers.keys() - others)) if known and several else (),
            )

    def _problems(self) -> Iterable[Problem]:
        for server in self.name_servers:
            subject = f"name server {server.address}"
            if server.problem is not None:
                yield Problem(subject, server.problem, server.since)
            if server.refused is not None:
                count, why = server.refused
                yield Problem(subject, f"{count} of its brokers are ignored: {why}")
        for book in self._books.values():
            subject = f"broker {book.name} ({book.address})"
            if book.problem is not None:
                yield Problem(subject, book.problem, book.since)
            elif not book.listed:
                yield Problem(subject, _NOT_LISTED, book.since)
            for what, count in book.left_out.items():
                yield Problem(subject, f"over the limits, not shown: {count} {what}")
        if len(self._books) >= self._limits.brokers:
            yield Problem("collector", f"the limit of {self._limits.brokers} brokers is reached")


def _place(book: BrokerBook) -> tuple[str, str, int, bool, str]:
    """Return the sort key; a broker that returned at another address precedes its old entry."""
    return book.cluster, book.name, book.id, not book.listed, book.address


def _leader(books: Sequence[BrokerBook]) -> BrokerBook:
    """Return the first broker that answers: the master, if it does."""
    return next((book for book in books if book.alive), books[0])


def _source(books: Sequence[BrokerBook]) -> BrokerBook:
    """Return the broker whose data are shown: the leader, as soon as it has reported topics."""
    leader = _leader(books)
    if leader.topics:
        return leader
    return next((book for book in books if book.topics), leader)


async def _each(names: Iterable[str], make: Callable[[str], Row]) -> dict[str, Row]:
    """Return a row for each name, yielding to other tasks in between."""
    made: dict[str, Row] = {}
    for place, name in enumerate(names, 1):
        made[name] = make(name)
        if place % _ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return made


def _merged(rows_before: dict[str, Row], changed: dict[str, Row | None]) -> dict[str, Row]:
    """Return the rows with changes, without deleted ones (None), sorted by name."""
    if not changed:
        return rows_before
    rows_now = dict(rows_before)
    added = False
    for name, row in changed.items():
        if row is None:
            rows_now.pop(name, None)
        else:
            added = added or name not in rows_now
            rows_now[name] = row
    return dict(sorted(rows_now.items())) if added else rows_now
