"""What the administration port of TubeMQ's servers is asked, and whom it lets change something.

GET changes things, as TubeMQ's scripts have it. So could anybody's page in the browser of an
administrator, where the token is known or none is asked for, which is so on loopback by default.
Browsers say when another site's page asks: that changes nothing. And while the token is no secret,
only who calls the server by a name or an address of loopback is answered: a page may have made its
own name lead there.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mq.daemons.acl.networks import is_loopback
from mq.daemons.tube.failed_logins import FailedLogins, host_of

#: What the original has where its file says nothing, and what its sample file has: no secrets.
KNOWN_TOKENS = frozenset({"ASDFGHJKL", "abc"})

#: What a method answers: JSON, or text that is JSON already, as Java's servers write it.
Result = Mapping[str, Any] | str


class RequestRefused(Exception):
    """A parameter is not what it must be. The text goes to the caller, with code 400 unless given.

    TubeMQ answers such with status 200 and `"result":false` (WebParameterUtils.buildFailResult).
    """

    def __init__(self, text: str, code: int = 400) -> None:
        super().__init__(text)
        self.code = code


class Redirected(Exception):
    """Another server answers this: a standby master names the active one. The text is its URL."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A call of a method: its parameters, by name, and who asks (`host:port`)."""

    path: str
    target: str  # path and query as they came, for redirections
    parameters: Mapping[str, str]
    peer: str
    verb: str = "GET"
    host: str = ""  # as who asks calls this server, with a port or without
    from_other_page: bool = False  # a browser says that a page of another site asks

    def get(self, *names: str) -> str:
        """The parameter by the first of its names that is there, without blanks around; or ""."""
        for name in names:
            if text := self.parameters.get(name, "").strip():
                return text
        return ""

    def need(self, *names: str) -> str:
        """The same of one that has to be there. Raises RequestRefused."""
        if text := self.get(*names):
            return text
        raise RequestRefused(f"Parameter {names[0]} is missing or value is null or blank!")

    def items(self, *names: str) -> list[str]:
        """A list, `a,b`; each item once, in order."""
        text = self.get(*names)
        return list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))

    def number(self, *names: str, default: int | None = None) -> int:
        """A number; without a default it has to be there. Raises RequestRefused."""
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
        """true, or false for any other text, as Boolean.parseBoolean of Java has it."""
        text = self.need(*names) if default is None else self.get(*names)
        return default if not text and default is not None else text.lower() == "true"


Method = Callable[[WebRequest], Result | Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Methods:
    """What one path offers, by name. Those in ``changing`` need the token (`confModAuthToken`).

    ``token`` "" refuses all of those, None asks for none. ``before`` may raise Redirected or
    RequestRefused. Of those in ``long``, whose answers may be very large, a server has one at a
    time in memory: until its peer has taken it, or is closed for taking nothing.
    """

    by_name: Mapping[str, Method]
    changing: frozenset[str] = frozenset()
    token: str | None = ""
    before: Callable[[WebRequest], None] = field(default=lambda _: None)
    long: frozenset[str] = frozenset()
    guesses: FailedLogins = field(default_factory=FailedLogins)  # of the token

    async def call(self, request: WebRequest) -> Result:
        """What a request is answered. Raises RequestRefused and Redirected."""
        name = request.parameters.get("method")
        if name is None:
            raise RequestRefused("Please take with method parameter! ")
        method = self.by_name.get(name)
        if method is None:
            raise RequestRefused(f"Unsupported method {name[:100]}")
        if (self.token is None or self.token in KNOWN_TOKENS) and not _is_loopback(request.host):
            raise RequestRefused(
                f"{request.host[:100]}: ask this server by its address, or set a confModAuthToken "
                "that nobody else knows",
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
    """Whether a Host header names this machine, or nothing."""
    name = host.strip().removeprefix("[").partition("]")[0] if "]" in host else host.split(":")[0]
    return not name or is_loopback(name.lower())
