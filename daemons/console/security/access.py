"""Who a request is from, and what it has to bring."""

from typing import Any
from urllib.parse import quote, urlsplit

import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mq.daemons.console.asking import Asking
from mq.daemons.console.audit import Audit
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.console.problems import Problem, Refused
from mq.daemons.console.security.roles import LOCAL, User
from mq.daemons.console.security.visitors import FormTokens, Visitor, new_id


class Access:
    """Accounts, sessions and tokens of one console, as the frame asks for them."""

    def __init__(self, settings: ConsoleSettings, audit: Audit) -> None:
        self.settings = settings
        self.forms = FormTokens()
        self._audit = audit

    def visitor(self, request: Request, *, api: bool = False) -> Visitor:
        """Who asks."""
        known = request.cookies.get(self.cookie_name(request), "")
        return Visitor(known or new_id(), LOCAL, fresh=not known, local=True)

    def cookie_name(self, request: Request) -> str:
        """`__Host-` binds a cookie to this host, where the browser speaks TLS."""
        return "__Host-mq" if request.url.scheme == "https" else "mq"

    def set_cookie(self, response: Response, visitor: Visitor, request: Request) -> None:
        """Have the browser keep the visitor's id, if it does not yet."""
        if visitor.fresh:
            response.set_cookie(
                self.cookie_name(request),
                visitor.id,
                httponly=True,
                samesite="lax",
                path="/",
                secure=request.url.scheme == "https",
            )

    def still(self, visitor: Visitor) -> User | None:
        """The user of a visitor who came some time ago, if there still is one."""
        return LOCAL

    def refused(self, asked: Asking, problem: Problem) -> None:
        """Have the audit tell of a refusal."""

    def to_login(self, asked: Asking) -> Response:
        """The page to log in at, which leads back here."""
        url = asked.request.url
        here = url.path + (f"?{url.query}" if url.query else "")
        prefix = self.settings.console.path_prefix
        return RedirectResponse(f"{prefix}/login?next={quote(here, safe='')}", 303)

    def check_origin(self, request: Request) -> None:
        """Raises Refused for a request that a page of somebody else has sent."""
        site = request.headers.get("sec-fetch-site", "")
        if site and site not in ("same-origin", "none"):
            raise Refused(403, "this was sent by a page of another site")
        origin = request.headers.get("origin")
        if origin is None:
            if not site:
                raise Refused(403, "a form has to say where it comes from (Origin)")
            return
        found = urlsplit(origin)
        if (found.scheme, found.netloc) != (request.url.scheme, request.headers.get("host", "")):
            raise Refused(403, "this was sent by a page of another site")

    async def json_body(self, asked: Asking, most: int) -> dict[str, Any]:
        """The object that a program has sent. Raises Refused."""
        request = asked.request
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, "expected JSON (Content-Type: application/json)")
        if request.headers.get("origin") or request.headers.get("sec-fetch-site"):
            self.check_origin(request)
        body = await request.body()
        try:
            found = orjson.loads(body or b"{}")
        except orjson.JSONDecodeError:
            raise Refused(400, "this is not JSON") from None
        if not isinstance(found, dict):
            raise Refused(400, "expected a JSON object")
        return found
