"""Rows of a snapshot, made from the replies of brokers."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from mq.client.operations import broker_stats
from mq.daemons.console.collector.book import BrokerBook
from mq.daemons.console.collector.snapshot import (
    BrokerRow,
    ClientRow,
    ClusterRow,
    ConsumerRow,
    GroupRow,
    GroupTopicRow,
    ProducerRow,
    TopicRow,
)
from mq.protocol import names
from mq.protocol.names import MASTER_ID

Client = TypeVar("Client", bound=ClientRow)

# Values of a topic's attribute message.type (TopicMessageType of 5.x).
_KINDS = frozenset(("normal", "delay", "fifo", "transaction", "mixed"))


def broker_row(book: BrokerBook, master_end: int | None) -> BrokerRow:
    """Return the row of a broker; `master_end` is the end of its master's log, if known."""
    table = book.runtime
    if not table:
        role = "master" if book.id == MASTER_ID else "slave"
        return BrokerRow(
            book.cluster, book.name, book.id, book.address, role,
            seen=book.seen, problem=book.problem, response_ms=book.response_ms,
        )  # fmt: skip
    days = broker_stats.totals(table)
    own_end = broker_stats.integer(table, "commitLogMaxOffset")
    lag = None
    if book.id != MASTER_ID and None not in (own_end, master_end):
        lag = max(0, (master_end or 0) - (own_end or 0))
    consumers = {one.client_id for members in book.members.values() for one in members.clients}
    producers = book.producers
    return BrokerRow(
        cluster=book.cluster,
        name=book.name,
        id=book.id,
        address=book.address,
        role=_role(book),
        seen=book.seen,
        problem=book.problem,
        response_ms=book.response_ms,
        version=table.get("brokerVersionDesc"),
        started_at=broker_stats.integer(table, "bootTimestamp"),
        in_rate=broker_stats.in_rate(table),
        out_rate=broker_stats.out_rate(table),
        in_bytes_rate=book.in_bytes_rate,
        in_today=days and days.in_today,
        out_today=days and days.out_today,
        in_yesterday=days and days.in_yesterday,
        out_yesterday=days and days.out_yesterday,
        disk_used=broker_stats.disk_used(table),
        earliest_at=broker_stats.earliest_at(table),
        send_queue=broker_stats.integer(table, "sendThreadPoolQueueSize"),
        pull_queue=broker_stats.integer(table, "pullThreadPoolQueueSize"),
        send_wait_ms=broker_stats.integer(table, "sendThreadPoolQueueHeadWaitTimeMills"),
        page_cache_busy_ms=broker_stats.integer(table, "pageCacheLockTimeMills"),
        put_p99_ms=broker_stats.number(table, "putLatency99"),
        memory=broker_stats.integer(table, "processPrivateBytes"),
        dispatch_behind=broker_stats.integer(table, "dispatchBehindBytes"),
        replication_behind=lag,
        producers=None if producers is None else len({one.client_id for one in producers}),
        consumers=len(consumers) if book.members else None,
        topics=len(book.topics) or None,
        groups=len(book.groups) or None,
    )


def _role(book: BrokerBook) -> str:
    if book.id == MASTER_ID:
        return "master"
    return "acting master" if book.runtime.get("actingMaster") == "true" else "slave"


def cluster_rows(brokers: Sequence[BrokerRow]) -> tuple[ClusterRow, ...]:
    """Return clusters by name."""
    found: dict[str, list[BrokerRow]] = {}
    for broker in brokers:
        found.setdefault(broker.cluster, []).append(broker)
    return tuple(_cluster(name, found[name]) for name in sorted(found))


def _cluster(name: str, brokers: list[BrokerRow]) -> ClusterRow:
    silent = [f"{one.name} ({one.id})" for one in brokers if not one.alive]
    # A replica counts replicated messages, too: they would be counted twice.
    masters = [one for one in brokers if one.role != "slave"]
    return ClusterRow(
        name,
        tuple(dict.fromkeys(one.name for one in brokers)),
        in_rate=_sum(one.in_rate for one in masters if one.alive),
        out_rate=_sum(one.out_rate for one in brokers if one.alive),
        problem=f"no answer from {', '.join(silent)}" if silent else None,
    )


def topic_row(name: str, heads: Sequence[BrokerBook], hidden: frozenset[str]) -> TopicRow | None:
    """Return a topic over the leading brokers; None if none has it.

    `hidden` are names of topics that brokers create for themselves.
    """
    books = [book for book in heads if name in book.topics]
    if not books:
        return None
    settings = [book.topics[name] for book in books]
    perms = {one.perm for one in settings}
    kept = [book.kept[name] for book in books if name in book.kept]
    readers = sorted({group for book in books for group in book.readers_of(name)})
    parts = [book.progress[group].topics[name] for book in books for group in book.readers_of(name)]
    seen, rates = _topic_rates(name, books)
    times = seen + [one.at for one in kept]
    silent = [book for book in books if not book.alive]
    return TopicRow(
        name=name,
        kind=_kind(name, settings[0].kind, hidden),
        read_queues=sum(one.read_queues for one in settings),
        write_queues=sum(one.write_queues for one in settings),
        brokers=tuple(sorted({book.name for book in books})),
        perm=perms.pop() if len(perms) == 1 else None,
        order=any(one.order for one in settings),
        seen=min(times, default=None),
        problem=_silent(silent),
        partial=bool(silent) or 0 < len(rates) < len(books),
        in_rate=_sum(rates),
        out_rate=_sum(part.consume_rate for part in parts),
        stored=sum(one.bounds.stored for one in kept) if kept else None,
        last_stored_at=max((one.bounds.last_stored_at for one in kept), default=0) or None,
        groups=tuple(readers),
        lag=sum(part.lag for part in parts) if parts else None,
    )


def _topic_rates(name: str, books: Iterable[BrokerBook]) -> tuple[list[int], list[float]]:
    """Return times and rates of incoming messages, from groups' progress or brokers' counters."""
    seen: list[int] = []
    rates: list[float] = []
    for book in books:
        reported = book.rates.get(name)
        derived = max(
            (
                (book.progress[group].at, rate)
                for group in book.readers_of(name)
                if (rate := book.progress[group].topics[name].in_rate) is not None
            ),
            default=None,
        )
        if derived is not None and (reported is None or derived[0] >= reported.at):
            seen.append(derived[0])
            rates.append(derived[1])
        elif reported is not None:
            seen.append(reported.at)
            rates.append(reported.rate)
    return seen, rates


def _kind(name: str, kind: str, hidden: frozenset[str]) -> str:
    if name.startswith(names.RETRY_PREFIX):
        return "retry"
    if name.startswith(names.DEAD_LETTER_PREFIX):
        return "dlq"
    if names.is_system_topic(name) or name in hidden:
        return "system"
    return kind if kind in _KINDS else "unspecified"


def group_row(name: str, heads: Sequence[BrokerBook], now: int) -> GroupRow | None:
    """Return a group over the leading brokers; None if none has it."""
    books = [book for book in heads if name in book.groups]
    if not books:
        return None
    settings = [book.groups[name] for book in books]
    polls = [book.progress[name] for book in books if name in book.progress]
    members = [book.members[name] for book in books if name in book.members]
    clients = {one.client_id for each in members for one in each.clients}
    more = max((each.more for each in members), default=0)  # a client is connected to each of them
    enabled = {one.enabled for one in settings}
    silent = [book for book in books if not book.alive]
    known = [poll for poll in polls if poll.topics]
    waiting = [poll.oldest_at for poll in known if poll.waiting]
    oldest = min((at for at in waiting if at is not None), default=None)
    return GroupRow(
        name=name,
        system=names.is_system_group(name) or name in names.PREDEFINED_GROUPS,
        state="unknown" if not members else "online" if clients or more else "offline",
        brokers=tuple(sorted({book.name for book in books})),
        seen=min((poll.at for poll in polls), default=None),
        problem=_silent(silent),
        partial=bool(silent) or 0 < len(polls) < len(books),
        lag=sum(poll.lag for poll in known) if known else None,
        lag_rate=_sum(poll.lag_rate for poll in known),
        oldest_age_ms=None if oldest is None or None in waiting else max(0, now - oldest),
        consume_rate=_sum(part.consume_rate for poll in known for part in poll.topics.values()),
        last_consumed_at=max((poll.consumed_at for poll in known), default=0) or None,
        members=len(clients) + more if members else None,
        model=next((each.model for each in members if each.model), None),
        way=next((each.way for each in members if each.way), None),
        enabled=enabled.pop() if len(enabled) == 1 else None,
        retry_max=settings[0].retry_max,
        topics=tuple(
            GroupTopicRow(
                topic,
                sum(poll.topics[topic].lag for poll in known if topic in poll.topics),
                _sum(poll.topics[topic].consume_rate for poll in known if topic in poll.topics),
            )
            for topic in sorted({topic for poll in known for topic in poll.topics})
        ),
    )


def producer_rows(heads: Iterable[BrokerBook]) -> tuple[ProducerRow, ...]:
    """Return producers by group and client id, without duplicates."""
    return _clients(one for book in heads for one in book.producers or ())


def consumer_rows(heads: Iterable[BrokerBook]) -> tuple[ConsumerRow, ...]:
    """Return consumers by group and client id, without duplicates."""
    return _clients(
        (one for book in heads for members in book.members.values() for one in members.clients),
    )


def _clients(rows: Iterable[Client]) -> tuple[Client, ...]:
    merged: dict[tuple[str, str], Client] = {}
    for row in rows:
        key = (row.group, row.client_id)
        known = merged.get(key)
        if known is not None:
            brokers = tuple(sorted({*known.brokers, *row.brokers}))
            row = replace(known, brokers=brokers, seen=max(known.seen or 0, row.seen or 0))
        merged[key] = row
    return tuple(merged[key] for key in sorted(merged))


def _silent(books: Sequence[BrokerBook]) -> str | None:
    if not books:
        return None
    return f"no answer from {', '.join(sorted(book.name for book in books))}"


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
