"""What a page is made of: routes to look, changes to make, streams to follow.

A module of `pages/` has ``ROUTES``, a tuple of these. From them derive the addresses (below
``/c/{cluster}`` for people, below ``/api/v1/clusters/{cluster}`` for programs), who may use them,
the menu, the forms with their previews, and the description of the API. What a route does not
declare it does not get: a query parameter without a `Query` is ignored, a form field without a
`Field` is refused.

Texts that people read (``about``, ``menu``, labels) are marked by `N_`; the frame translates them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mq.daemons.console.parsing import Kind, text
from mq.daemons.console.permissions import ROLES as ROLES
from mq.daemons.console.permissions import Permission as Permission

if TYPE_CHECKING:
    from mq.client.caller import Caller
    from mq.daemons.console.call import Call

API = "/api/v1"
FORMATS = ("json", "csv")  # in which programs get a page

Values = Mapping[str, Any]  # what was given for the fields of a form, by their names
Choices = Sequence[str | tuple[str, str]]
Cell = str | int | float | bool | None  # None is unknown, and shown as such: never as 0


def N_(text: str) -> str:  # gettext's own name
    """Marks a text for the catalogue of translations; it is translated where it is shown."""
    return text


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of plain values: the CSV of a page, or a part of a plan."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What a route shows.

    ``data`` is a frozen dataclass of plain values, tuples and dataclasses: the API answers it as
    JSON, the template has it as ``data``. ``command`` are the words after `mq` that show the same.
    ``title`` is text of people (with names in it), ``sheet`` the main table for CSV. ``status`` is
    that of HTTP: 404 for a subject that is not there.
    """

    template: str
    title: str
    data: Any
    command: tuple[str, ...] = ()
    sheet: Sheet | None = None
    status: int = 200
    extra: Mapping[str, Any] = field(default_factory=dict)  # for the template alone, not the API


@dataclass(frozen=True, slots=True)
class Download:
    """Bytes that are saved, never shown by a browser; instead of a `Page`.

    What is in ``name`` besides letters, digits, ".", "_" and "-" becomes "_".
    """

    name: str
    content: bytes | AsyncIterator[bytes]
    kind: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Redirect:
    """Another page instead: a path below the cluster, such as "/topics/Orders".

    Programs get ``data`` instead, if it is given: forms are for people only.
    """

    path: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter: its name, how it is read, what it is without one."""

    name: str
    parse: Kind = text
    default: Any = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """A page.

    ``subject`` names the path parameter that is held against the user's patterns: "topic" or
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

    ``choices`` are values, or pairs of a value and its label, or a function of the call that gives
    them (names that the snapshot has); ``limit`` is in characters. An
    optional field that is left empty is None, a flag that is not ticked False.
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
    """What a change will do, in words of its subject: ``lines`` as they are read, ``tables`` with
    before and after. ``command`` are the words after `mq` that do the same. A ``warning`` is shown
    above all."""

    lines: tuple[str, ...]
    tables: tuple[Sheet, ...] = ()
    command: tuple[str, ...] = ()
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one target: a broker, a queue, a message. ``link`` is a path of the console
    below the cluster, such as "/topics/Orders", or empty."""

    target: str
    ok: bool
    text: str
    link: str = ""


class Perform(Protocol):
    """Makes the change through ``session``. For the preview it is called with a session that
    records what would be sent; so it must send the same each time, and keep nothing itself."""

    async def __call__(self, call: "Call", values: Values, session: "Caller") -> list[Outcome]: ...


@dataclass(frozen=True, slots=True)
class Change:
    """A form, its preview and what it does.

    GET shows the form, POST the preview, and a POST that confirms the preview performs it.
    ``initial`` fills in the form. ``destroys`` gives the name that has to be typed where something
    is lost for good. ``plan`` and ``perform`` raise OperationError, MQError or BadQuery for what
    cannot be.
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
    query: tuple[Query, ...] = ()  # of the form: what it is to be filled in with
    menu: str = ""
    # Looks at values that pass one by one but do not go together; raises BadField or BadQuery.
    check: "Callable[[Call, Values], None] | None" = None


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream: its name, and what the script gets as JSON."""

    name: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stream:
    """Events for as long as somebody looks (server-sent events). The generator is closed when they
    leave, when the daemon stops, or when the user may no longer."""

    path: str
    events: "Callable[[Call], AsyncIterator[Event]]"
    needs: Permission
    about: str
    subject: str = ""
    query: tuple[Query, ...] = ()


AnyRoute = Route | Change | Stream


def subject_of(route: AnyRoute, path: Mapping[str, str]) -> dict[str, str]:
    """The topic or group of a path that its user's patterns are held against."""
    return {route.subject: path[route.subject]} if route.subject in path else {}
