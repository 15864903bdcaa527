"""The methods of the administration port of TubeMQ's servers, and the protection of changes.

GET requests may change data, because TubeMQ's scripts use it. So any web page in the browser of an
administrator could do so, too, if the token is known or not needed, which is the default on
loopback. Browsers mark requests from other sites: these change nothing. And while the token is not
secret, only requests with a loopback Host are answered: a page may have resolved its own name to
this machine.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mq.daemons.acl.networks import is_loopback
from mq.daemons.tube.failed_logins import FailedLogins, host_of

# The original's default, and the token of its sample file: not secret.
KNOWN_TOKENS = frozenset({"ASDFGHJKL", "abc"})

# The result of a method: JSON, or text that is JSON already, as Java's servers write it.
Result = Mapping[str, Any] | str


class RequestRefused(Exception):
    """An invalid parameter. The text is sent to the client, with code 400 unless given.

    TubeMQ answers with status 200 and `"result":false` (WebParameterUtils.buildFailResult).
    """

    def __init__(self, text: str, code: int = 400) -> None:
        super().__init__(text)
        self.code = code


class Redirected(Exception):
    """Another server must answer: a standby master names the active one. The text is its URL."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A call of a method: its parameters, by name, and the client (`host:port`)."""

    path: str
    target: str  # path and query as received, for redirections
    parameters: Mapping[str, str]
    peer: str
    verb: str = "GET"
    host: str = ""  # the client's name for this server, with or without a port
    from_other_page: bool = False  # a browser marks the request as from another site

    def get(self, *names: str) -> str:
        """Return the first present parameter of these names, without surrounding blanks; or ""."""
        for name in names:
            if text := self.parameters.get(name, "").strip():
                return text
        return ""

    def need(self, *names: str) -> str:
        """Return the same for a required one. Raises RequestRefused."""
        if text := self.get(*names):
            return text
        raise RequestRefused(f"Parameter {names[0]} is missing or value is null or blank!")

    def items(self, *names: str) -> list[str]:
        """Return a list, `a,b`; each item once, in order."""
        text = self.get(*names)
        return list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))

    def number(self, *names: str, default: int | None = None) -> int:
        """Return a number; without a default it is required. Raises RequestRefused."""
        text = self.need(*names) if default is None else self.get(*names)
        if not text:
            assert default is not None
            return default
        try:
            return int(text)
        except ValueError:
            raise RequestRefused(
                f"Parameter {names[0]} parse error: {text[:100]} is no number"
            ) from None

    def flag(self, *names: str, default: bool | None = None) -> bool:
        """Return true, or false for any other text, as Java's Boolean.parseBoolean."""
        text = self.need(*names) if default is None else self.get(*names)
        return default if not text and default is not None else text.lower() == "true"


Method = Callable[[WebRequest], Result | Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Methods:
    """The methods of one path, by name. Those in ``changing`` need the token (`confModAuthToken`).

    ``token`` "" refuses all of those, None needs none. ``before`` may raise Redirected or
    RequestRefused. Of those in ``long``, whose answers may be very large, a server has one at a
    time in memory: until its client has read it, or is disconnected for not reading.
    """

    by_name: Mapping[str, Method]
    changing: frozenset[str] = frozenset()
    token: str | None = ""
    before: Callable[[WebRequest], None] = field(default=lambda _: None)
    long: frozenset[str] = frozenset()
    guesses: FailedLogins = field(default_factory=FailedLogins)  # of the token

    async def call(self, request: WebRequest) -> Result:
        """Return the result for a request. Raises RequestRefused and Redirected."""
        name = request.parameters.get("method")
        if name is None:
            raise RequestRefused("Please take with method parameter! ")
        method = self.by_name.get(name)
        if method is None:
            raise RequestRefused(f"Unsupported method {name[:100]}")
        if (self.token is None or self.token in KNOWN_TOKENS) and not _is_loopback(request.host):
            raise RequestRefused(
                f"{request.host[:100]}: use this server's address, or set a confModAuthToken "
                "that is secret",
                403,
            )
        self.before(request)
        if name in self.changing:
            if request.from_other_page:
                raise RequestRefused("a page of another site cannot change anything here", 403)
            host = host_of(request.peer)
            if self.token is not None and self.guesses.is_blocked(host):
                raise RequestRefused("too many wrong tokens from this address: try again in 10 s")
            if not self._knows_token(request):
                self.guesses.failed(host)
                raise RequestRefused("Illegal visit: wrong confModAuthToken value!")
        result = method(request)
        return result if isinstance(result, str | Mapping) else await result

    def _knows_token(self, request: WebRequest) -> bool:
        if self.token is None:
            return True
        given = request.get("confModAuthToken", "authToken").encode()
        return bool(self.token) and hmac.compare_digest(given, self.token.encode())


def _is_loopback(host: str) -> bool:
    """Return whether a Host header names this machine, or is empty."""
    name = host.strip().removeprefix("[").partition("]")[0] if "]" in host else host.split(":")[0]
    return not name or is_loopback(name.lower())
