"""The list of consumer groups, from the snapshot alone."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import GroupRow
from mq.daemons.console.pages import lists
from mq.daemons.console.pages.lists import Cut
from mq.daemons.console.parsing import choice, flag
from mq.daemons.console.route import N_, Page, Permission, Query, Route, Sheet

STATES = {"online": N_("Online"), "offline": N_("Offline"), "unknown": N_("Unknown")}

COLUMNS: Mapping[str, Callable[[GroupRow], Any]] = {
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "members": lambda row: row.members,
    "lag": lambda row: row.lag,
    "age": lambda row: row.oldest_age_ms,
    "rate": lambda row: row.consume_rate,
    "trend": lambda row: row.lag_rate,
    "last": lambda row: row.last_consumed_at,
}


@dataclass(frozen=True, slots=True)
class StateBox:
    """Groups in a state: their number, and whether only they are shown."""

    state: str
    label: str
    count: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Groups:
    """``at`` is the time of the data, in ms since 1970; None: no data yet."""

    at: int | None
    states: tuple[StateBox, ...]
    system: bool
    rows: tuple[GroupRow, ...]
    list: Cut


async def show(call: Call) -> Page:
    """List a page of the matching groups."""
    snapshot = call.cluster.snapshot
    known = lists.seen_groups(call, snapshot.groups, lambda row: row.name)
    if not call.query["system"]:
        known = [row for row in known if not row.system]
    named = lists.matching(known, call.query["q"], lambda row: row.name)
    counts = Counter(row.state for row in named)
    wanted = call.query["state"]
    rows = [row for row in named if wanted in ("", row.state)]
    rows = lists.ordered(rows, call.query, COLUMNS)
    boxes = tuple(
        StateBox(state, call.text(label), counts[state], state == wanted)
        for state, label in STATES.items()
    )
    found = lists.cut(rows, len(known), call.query)
    return Page(
        "groups/list.html",
        call.text("Consumer groups"),
        Groups(snapshot.at or None, boxes, call.query["system"], *found),
        command=("consumerProgress",),
        sheet=Sheet(
            (
                *("group", "state", "members", "lag", "oldestAgeMillis", "consumeRate"),
                *("lagRate", "lastConsumed", "problem"),
            ),
            [_cells(row) for row in rows],
        ),
    )


def _cells(row: GroupRow) -> tuple[Any, ...]:
    return (
        *(row.name, row.state, row.members, row.lag, row.oldest_age_ms, row.consume_rate),
        *(row.lag_rate, row.last_consumed_at, row.problem),
    )


ROUTES = (
    Route(
        "/groups",
        show,
        Permission.READ,
        N_("The consumer groups of the cluster."),
        query=(
            *lists.queries(COLUMNS, "name"),
            Query("state", choice(*STATES), "", N_("Only groups in this state.")),
            Query("system", flag, False, N_("With the groups that brokers predefine.")),
        ),
        menu=N_("Consumer groups"),
        data=Groups,
    ),
)
