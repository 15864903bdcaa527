"""Lists that the server filters, sorts and cuts into pages, by the query of their address.

q      text that a name contains, in any case
sort   the column to sort by; unknown values come last
order  asc or desc
page   from 1
size   rows per page
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mq.daemons.console.call import Call
from mq.daemons.console.parsing import Kind, choice, integer, text
from mq.daemons.console.route import N_, Query

T = TypeVar("T")

SIZE = 50
MOST_ROWS = 500  # per page


@dataclass(frozen=True, slots=True)
class Cut:
    """The position of these rows in a list: ``total`` match the filter, out of ``known``."""

    total: int
    known: int
    page: int
    pages: int
    size: int
    sort: str
    order: str
    q: str


def queries(columns: Iterable[str], default: str) -> tuple[Query, ...]:
    """Return the query parameters of a list that can be sorted by these columns."""
    return (
        Query("q", text, "", N_("Text that names contain.")),
        Query("sort", choice(*columns), default, N_("Column to sort by.")),
        Query("order", choice("asc", "desc"), "asc", N_("Ascending or descending.")),
        Query("page", integer, 1, N_("Page of the list, from 1.")),
        Query("size", integer, SIZE, N_("Rows of a page.")),
    )


def words(*values: str) -> Kind:
    """Some of these words, separated by commas."""
    known = set(values)

    def read(given: str, _: object) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(part for part in given.split(",") if part))
        if not known.issuperset(found):
            raise ValueError(f"expected some of {', '.join(values)}")
        return found

    return Kind("text", read)


def matching(rows: Iterable[T], q: str, name: Callable[[T], str]) -> list[T]:
    """Return the rows whose name contains the text."""
    wanted = q.casefold()
    return [row for row in rows if wanted in name(row).casefold()] if wanted else list(rows)


def ordered(
    rows: Sequence[T], query: Mapping[str, Any], columns: Mapping[str, Callable[[T], Any]]
) -> list[T]:
    """Return the rows sorted by the column of the query; those with unknown values come last."""
    key = columns[query["sort"]]
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    return [*sorted(known, key=key, reverse=query["order"] == "desc"), *unknown]


def cut(rows: Sequence[T], known: int, query: Mapping[str, Any]) -> tuple[tuple[T, ...], Cut]:
    """Return the requested page of the rows; the last one if the page is beyond."""
    size = min(max(query["size"], 1), MOST_ROWS)
    pages = max(1, -(-len(rows) // size))
    page = min(max(query["page"], 1), pages)
    begin = (page - 1) * size
    sorting = (query["sort"], query["order"], query["q"])
    return tuple(rows[begin : begin + size]), Cut(len(rows), known, page, pages, size, *sorting)


def seen_topics(call: Call, rows: Iterable[T], name: Callable[[T], str]) -> list[T]:
    """Return the rows of topics that the user may see."""
    if "*" in call.user.topics and "*" in call.user.groups:
        return list(rows)
    return [row for row in rows if call.sees_topic(name(row))]


def seen_groups(call: Call, rows: Iterable[T], name: Callable[[T], str]) -> list[T]:
    """Return the rows of groups that the user may see."""
    if "*" in call.user.groups:
        return list(rows)
    return [row for row in rows if call.sees_group(name(row))]
