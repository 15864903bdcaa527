"""The list of topics, from the snapshot alone: the page waits for no broker."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import TopicRow
from mq.daemons.console.pages import lists
from mq.daemons.console.pages.lists import Cut
from mq.daemons.console.route import N_, Page, Permission, Query, Route, Sheet

# Kinds of topics in the order of their boxes.
KINDS = {
    "normal": N_("Normal"),
    "delay": N_("Delay"),
    "fifo": N_("Ordered"),
    "transaction": N_("Transaction"),
    "mixed": N_("Mixed"),
    "unspecified": N_("Unspecified"),
    "retry": N_("Retry"),
    "dlq": N_("Dead letters"),
    "system": N_("System"),
}
# The default selection: topics that users have created.
_OWN = tuple(kind for kind in KINDS if kind not in ("retry", "dlq", "system"))

COLUMNS: Mapping[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.name,
    "kind": lambda row: row.kind,
    "queues": lambda row: row.queues,
    "in": lambda row: row.in_rate,
    "out": lambda row: row.out_rate,
    "stored": lambda row: row.stored,
    "lag": lambda row: row.lag,
    "last": lambda row: row.last_stored_at,
}


@dataclass(frozen=True, slots=True)
class KindBox:
    """A kind of topics: their number, whether it is selected, and the value of `kind` in the
    address
    that toggles it."""

    kind: str
    label: str
    count: int
    chosen: bool
    turned: str


@dataclass(frozen=True, slots=True)
class Topics:
    """``at`` is the time of the data, in ms since 1970; None: no data yet."""

    at: int | None
    kinds: tuple[KindBox, ...]
    rows: tuple[TopicRow, ...]
    list: Cut


async def show(call: Call) -> Page:
    """List a page of the matching topics."""
    snapshot = call.cluster.snapshot
    known = lists.seen_topics(call, snapshot.topics, lambda row: row.name)
    named = lists.matching(known, call.query["q"], lambda row: row.name)
    chosen = call.query["kind"]
    counts = Counter(row.kind for row in named)
    rows = [row for row in named if row.kind in chosen]
    rows = lists.ordered(rows, call.query, COLUMNS)
    data = Topics(
        snapshot.at or None,
        _boxes(call, counts, chosen),
        *lists.cut(rows, len(known), call.query),
    )
    return Page(
        "topics/list.html",
        call.text("Topics"),
        data,
        command=("topicList",),
        sheet=Sheet(
            (
                *("topic", "kind", "readQueues", "writeQueues", "brokers", "perm", "inRate"),
                *("outRate", "stored", "lag", "lastStored", "problem"),
            ),
            [_cells(row) for row in rows],
        ),
    )


def _cells(row: TopicRow) -> tuple[Any, ...]:
    return (
        *(row.name, row.kind, row.read_queues, row.write_queues, " ".join(row.brokers), row.perm),
        *(row.in_rate, row.out_rate, row.stored, row.lag, row.last_stored_at, row.problem),
    )


def _boxes(call: Call, counts: Counter[str], chosen: tuple[str, ...]) -> tuple[KindBox, ...]:
    boxes = []
    for kind, label in KINDS.items():
        turned = set(chosen) ^ {kind}
        words = ",".join(one for one in KINDS if one in turned) or kind
        boxes.append(KindBox(kind, call.text(label), counts[kind], kind in chosen, words))
    return tuple(boxes)


ROUTES = (
    Route(
        "/topics",
        show,
        Permission.READ,
        N_("The topics of the cluster."),
        query=(
            *lists.queries(COLUMNS, "name"),
            Query("kind", lists.words(*KINDS), _OWN, N_("Kinds of topics, with commas.")),
        ),
        menu=N_("Topics"),
        data=Topics,
    ),
)
