"""The elements of pages: routes for reading, changes, streams for live updates.

A module of `pages/` has ``ROUTES``, a tuple of these. They define the addresses (below
``/c/{cluster}`` for users, below ``/api/v1/clusters/{cluster}`` for programs), the permissions, the
menu, the forms with their previews, and the description of the API. Undeclared input is not passed
on: a query parameter without a `Query` is ignored, a form field without a `Field` is refused.

Texts for users (``about``, ``menu``, labels) are marked by `N_`; the frame translates them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mq.client.operations.columns import columns_of, row_of
from mq.daemons.console.parsing import Kind, text
from mq.daemons.console.permissions import ROLES as ROLES
from mq.daemons.console.permissions import Permission as Permission

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller
    from mq.daemons.console.call import Call

API = "/api/v1"
FORMATS = ("json", "csv")  # of pages for programs

Values = Mapping[str, Any]  # the values of a form's fields, by their names
Choices = Sequence[str | tuple[str, str]]
Cell = str | int | float | bool | None  # None is unknown, and shown as such: never as 0


def N_(text: str) -> str:  # gettext's own name
    """Mark a text for the catalogue of translations; it is translated where it is shown."""
    return text


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of plain values: the CSV of a page, or a part of a plan."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    title: str = ""

    @classmethod
    def of(cls, kind: type, items: Iterable[Any]) -> "Sheet":
        """Return a table of instances of a dataclass with columns, under the columns' names."""
        return cls(
            tuple(column.name for column in columns_of(kind)), [row_of(one) for one in items]
        )


@dataclass(frozen=True, slots=True)
class Page:
    """The result of a route.

    ``data`` is a frozen dataclass of plain values, tuples and dataclasses: the API returns it as
    JSON, the template has it as ``data``. ``command`` has the words after `mq` that show the same.
    ``title`` is text for users (with names in it), ``sheet`` the main table for CSV. ``status`` is
    the HTTP status: 404 for a missing subject.
    """

    template: str
    title: str
    data: Any
    command: tuple[str, ...] = ()
    sheet: Sheet | None = None
    status: int = 200
    extra: Mapping[str, Any] = field(default_factory=dict)  # for the template only, not the API


@dataclass(frozen=True, slots=True)
class Download:
    """Bytes that browsers save and do not display; instead of a `Page`.

    In ``name`` other characters than letters, digits, ".", "_" and "-" become "_".
    """

    name: str
    content: bytes | AsyncIterator[bytes]
    kind: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect to another page: a path below the cluster, such as "/topics/Orders".

    Programs get ``data`` instead, if given: forms are for users only.
    """

    path: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter: its name, kind and default."""

    name: str
    parse: Kind = text
    default: Any = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """A page.

    ``subject`` names the path parameter that is compared with the user's patterns: "topic" or
    "group". With ``menu`` it has an entry in the menu, in the order of the modules. A page that
    searches may take ``seconds`` instead of pageTimeoutMillis.
    """

    path: str
    show: "Callable[[Call], Awaitable[Page | Download | Redirect]]"
    needs: Permission
    about: str
    subject: str = ""
    query: tuple[Query, ...] = ()
    menu: str = ""
    seconds: float = 0.0
    data: type | None = None  # the class of its page's data, which the API describes
    kinds: tuple[str, ...] = ()  # the content types of a `Download`
    redirects: bool = False  # whether programs may get a `Redirect`


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form. ``kind`` is text, integer, choice, flag, secret, lines, moment, or
    body: a text of several lines, of which the audit has the size and the SHA-256.

    ``choices`` are values, or pairs of a value and its label, or a function of the call that
    returns them (names in the snapshot); ``limit`` is in characters. An empty optional field is
    None, a flag that is not ticked is False.
    """

    name: str
    label: str
    kind: str = "text"
    required: bool = False
    choices: "Choices | Callable[[Call], Choices]" = ()
    help: str = ""
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of a change in terms of its subject: ``lines`` of text, ``tables`` with before
    and
    after. ``command`` has the words after `mq` that do the same. A ``warning`` is shown first."""

    lines: tuple[str, ...]
    tables: tuple[Sheet, ...] = ()
    command: tuple[str, ...] = ()
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one target: a broker, a queue, a message. ``link`` is a path of the console
    below the cluster, such as "/topics/Orders", or empty."""

    target: str
    ok: bool
    text: str
    link: str = ""


class Perform(Protocol):
    """Makes the change through ``session``. The preview calls it with a session that records
    requests
    instead of sending them, so it must send the same each time and have no state."""

    async def __call__(self, call: "Call", values: Values, session: "Caller") -> list[Outcome]: ...


@dataclass(frozen=True, slots=True)
class Change:
    """A form, its preview and its action.

    GET shows the form, POST the preview, and a POST that confirms the preview performs it.
    ``initial`` fills in the form. ``destroys`` gives the name that the user has to type if data is
    lost for good. ``plan`` and ``perform`` raise OperationError, MQError or BadQuery if the change
    is impossible.
    """

    path: str
    needs: Permission
    about: str
    subject: str
    fields: tuple[Field, ...]
    plan: "Callable[[Call, Values], Awaitable[Plan]]"
    perform: Perform
    initial: "Callable[[Call], Awaitable[Values]] | None" = None
    destroys: "Callable[[Call, Values], str] | None" = None
    query: tuple[Query, ...] = ()  # of the form: its initial values
    menu: str = ""
    # Checks combinations of valid values; raises BadField or BadQuery.
    check: "Callable[[Call, Values], None] | None" = None


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream: its name, and the data for the script as JSON."""

    name: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stream:
    """Events for open pages (server-sent events). The generator is closed when the client leaves,
    the
    daemon stops, or the user loses the permission."""

    path: str
    events: "Callable[[Call], AsyncIterator[Event]]"
    needs: Permission
    about: str
    subject: str = ""
    query: tuple[Query, ...] = ()


AnyRoute = Route | Change | Stream


def subject_of(route: AnyRoute, path: Mapping[str, str]) -> dict[str, str]:
    """Return the topic or group of a path that is compared with the user's patterns."""
    return {route.subject: path[route.subject]} if route.subject in path else {}
