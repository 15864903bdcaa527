"""One request in the frame: its visitor, language and cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.requests import Request

from mq.client.machine import clock
from mq.daemons.console import locale, preferences
from mq.daemons.console.locale import Texts
from mq.daemons.console.parsing import BadQuery, Reading
from mq.daemons.console.preferences import Preferences
from mq.daemons.console.route import Query
from mq.daemons.console.security.visitors import Visitor

# Query parameters of the frame itself; no page has one of these names.
RESERVED = frozenset({"format"})


@dataclass(frozen=True, slots=True)
class RequestContext:
    """A request of a visitor. Errors are logged under ``id``; ``now`` is in ms."""

    request: Request
    visitor: Visitor
    id: str
    client: str
    now: int
    preferences: Preferences
    texts: Texts

    @property
    def path(self) -> str:
        """Return the path as in the browser, with the prefix: its parts are quoted."""
        scope = self.request.scope
        path: str = scope.get("mq.path") or scope["path"]
        return "/".join(quote(unquote(part), safe="") for part in path.split("/"))

    @property
    def path_parts(self) -> dict[str, str]:
        """The parameters of the path. They were matched in quoted form: a name may contain
        slashes."""
        return {name: unquote(part) for name, part in self.request.path_params.items()}

    @property
    def reading(self) -> Reading:
        """The context for parsing texts of this visitor."""
        return Reading(self.now, self.preferences.tz)


def asking(request: Request, visitor: Visitor) -> RequestContext:
    """Return a request whose visitor is known."""
    found = preferences.of_cookies(request.cookies)
    tag = locale.chosen(found.language, request.headers.get("accept-language", ""))
    return RequestContext(
        request,
        visitor,
        request.scope.get("mq.id", ""),
        request.client.host if request.client else "",
        clock.milliseconds(),
        found,
        locale.texts(tag),
    )


def read_query(declared: tuple[Query, ...], given: Mapping[str, str], reading: Reading) -> Any:
    """Return the values of the declared parameters. An empty text equals a missing one.

    Raises BadQuery for invalid values; undeclared parameters are ignored.
    """
    found = {}
    for one in declared:
        text = given.get(one.name, "")
        if text == "":
            found[one.name] = one.default
            continue
        try:
            found[one.name] = one.parse.read(text, reading)
        except ValueError as error:
            raise BadQuery(f"{one.name}={text[:100]}: {error}") from None
    return found


class Addresses:
    """Builds addresses below the console's prefix, for pages of a cluster."""

    def __init__(self, prefix: str, cluster: str, path: str, query: str) -> None:
        self.prefix = prefix
        self.cluster = cluster
        self._path = path
        self._query = dict(parse_qsl(query, keep_blank_values=False))

    def root(self, path: str, **query: object) -> str:
        """Return an address of the console without a cluster, such as "/login"."""
        return _with_query(self.prefix + path, query)

    def url(self, path: str, **query: object) -> str:
        """Return an address of this cluster: its parts must be `quoted` already."""
        return _with_query(f"{self.prefix}/c/{quote(self.cluster, safe='')}{path}", query)

    def here(self, **changes: object) -> str:
        """Return the address of this page with some query parameters changed; None removes one."""
        return _with_query(self._path, {**self._query, **changes})


def _with_query(path: str, query: Mapping[str, object]) -> str:
    pairs = [
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in query.items()
        if value is not None and value != ""
    ]
    return f"{path}?{urlencode(pairs)}" if pairs else path
