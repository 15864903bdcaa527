"""The results for `/`: topics, groups, brokers, message ids, from the snapshot alone."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from mq.daemons.console.call import Call
from mq.daemons.console.pages import lists
from mq.daemons.console.parsing import text
from mq.daemons.console.route import N_, Page, Permission, Query, Route, Sheet
from mq.daemons.console.template_filters import quoted

MOST_FOUND = 50  # of each kind
# An id of an address and an offset (IPv4 or IPv6), or a unique id: both are hexadecimal.
_MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
_KINDS = ("topic", "group", "broker", "message")


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A possible match of the text. ``path`` is below the cluster; ``note`` distinguishes it."""

    kind: str  # topic | group | broker | message
    name: str
    path: str
    note: str
    # 0 whole name, 1 start of the name, 2 start of a word, 3 within a word; later kinds: 1 more
    rank: int


@dataclass(frozen=True, slots=True)
class Search:
    """``more`` is the number of omitted hits."""

    q: str
    found: tuple[SearchHit, ...]
    more: int


async def show(call: Call) -> Page:
    """List all matches, the best first."""
    q = call.query["q"].strip()
    found = _all(call, q) if q else []
    found.sort(key=lambda one: (one.rank, _KINDS.index(one.kind), len(one.name), one.name))
    kept = []
    counts = dict.fromkeys(_KINDS, 0)
    for one in found:
        counts[one.kind] += 1
        if counts[one.kind] <= MOST_FOUND:
            kept.append(one)
    data = Search(q, tuple(kept), len(found) - len(kept))
    return Page(
        "search/results.html",
        call.text("Search"),
        data,
        sheet=Sheet(("kind", "name", "note"), [(one.kind, one.name, one.note) for one in kept]),
    )


def _all(call: Call, q: str) -> list[SearchHit]:
    snapshot = call.cluster.snapshot
    wanted = q.casefold()
    found = []
    topics = ((row.name, row) for row in snapshot.topics if wanted in row.name.casefold())
    for name, topic in lists.seen_topics(call, topics, lambda item: item[0]):
        # Topics of a group or of the system rank one lower than those of users.
        rank = _rank(name, wanted) + (0 if topic.kind not in ("retry", "dlq", "system") else 1)
        found.append(SearchHit("topic", name, f"/topics/{quoted(name)}", topic.kind, rank))
    groups = ((row.name, row) for row in snapshot.groups if wanted in row.name.casefold())
    for name, group in lists.seen_groups(call, groups, lambda item: item[0]):
        rank = _rank(name, wanted) + group.system
        found.append(SearchHit("group", name, f"/groups/{quoted(name)}", group.state, rank))
    for broker in snapshot.brokers:
        rank = min(_ranks((broker.name, broker.address), wanted), default=9)
        if rank < 9:
            path = f"/brokers/{quoted(broker.name)}/{broker.id}"
            note = f"{broker.cluster} {broker.role} {broker.address}"
            found.append(SearchHit("broker", broker.name, path, note, rank))
    if _MESSAGE_ID.fullmatch(q):
        found.append(
            SearchHit("message", q, f"/messages?id={quoted(q)}", call.text("message id"), 0)
        )
    return found


def _ranks(names: Iterable[str], wanted: str) -> list[int]:
    return [_rank(name, wanted) for name in names if wanted in name.casefold()]


def _rank(name: str, wanted: str) -> int:
    folded = name.casefold()
    if folded == wanted:
        return 0
    if folded.startswith(wanted):
        return 1
    words = re.split(r"[^0-9a-z\u0080-\U0010ffff]+", folded)
    return 2 if any(word.startswith(wanted) for word in words) else 3


ROUTES = (
    Route(
        "/search",
        show,
        Permission.READ,
        N_("Topics, groups, brokers and message ids by a part of their names."),
        query=(Query("q", text, "", N_("The text to search.")),),
        data=Search,
    ),
)
