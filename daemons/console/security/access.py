"""The identity and the credentials of requests.

A console without accounts serves its own machine only, and every local user is an administrator. As
soon as an account exists, requests need one, even if the file disappears.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mq.client.machine import clock, files
from mq.client.operations.errors import BadData, CannotWrite
from mq.daemons.console.audit import Audit
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.console.problems import Problem, Refused
from mq.daemons.console.request_context import RequestContext
from mq.daemons.console.security import accounts
from mq.daemons.console.security.accounts import Account, Accounts
from mq.daemons.console.security.passwords import Passwords
from mq.daemons.console.security.roles import LOCAL, User
from mq.daemons.console.security.sessions import Sessions
from mq.daemons.console.security.throttle import Throttle
from mq.daemons.console.security.visitors import FormTokens, Visitor, new_id
from mq.daemons.service import CannotStart

log = logging.getLogger(__name__)

# Refusals of one kind that the audit records per minute; the next line counts the omitted ones.
# Each account is a kind of its own, so attempts on others cannot hide those on it.
REFUSALS_A_MINUTE = 200
LOOK_SECONDS = 1.0  # interval of checks for changes of the file of accounts
# A client that sends one of these forwards requests of another machine.
_PROXIED = ("x-forwarded-for", "x-forwarded-host", "forwarded", "via")


class Access:
    """Accounts, sessions and tokens of one console, for the frame.

    Raises CannotStart if the file of accounts cannot be used.
    """

    def __init__(self, settings: ConsoleSettings, audit: Audit) -> None:
        self.settings = settings
        config = settings.console
        self.forms = FormTokens()
        self.passwords = Passwords()
        self.throttle = Throttle()
        self.sessions = Sessions(config.session_idle_minutes * 60.0, config.session_hours * 3600.0)
        self._audit = audit
        self._minute = clock.monotonic()
        self._told: Counter[str] = Counter()
        self._untold: Counter[str] = Counter()  # since the last one of the kind in the audit
        self._path = config.users_path
        self._looked = clock.monotonic()
        self._fingerprint = self._look()
        self._unusable = ""  # why the file cannot be used, until it can
        try:
            self.accounts = accounts.read(self._path)
        except BadData as error:
            raise CannotStart(f"usersFile: {error}") from None
        self.guarded = bool(self.accounts.users) or not config.is_local

    # the file ---------------------------------------------------------------------------------

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = files.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def reload(self) -> None:
        """Read the accounts again. If the file cannot be used, the present ones remain, and it is
        tried
        again until it can be: the cause may be its mode, or too many open files."""
        self._fingerprint = self._look()
        try:
            self.accounts = accounts.read(self._path)
        except BadData as error:
            if str(error) != self._unusable:
                log.error("accounts are unchanged: %s", error, extra={"failure": "accounts"})
            self._unusable = str(error)
            return
        self._unusable = ""
        log.info("accounts read again")
        self.guarded = self.guarded or bool(self.accounts.users)

    def _current(self) -> Accounts:
        now = clock.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            if self._unusable or self._look() != self._fingerprint:
                self.reload()
        return self.accounts

    # who --------------------------------------------------------------------------------------

    def visitor(self, request: Request, *, api: bool = False) -> Visitor:
        """Return the visitor. Raises Refused for an invalid token."""
        current = self._current()
        cookie = request.cookies.get(self.cookie_name(request), "")[:200]
        given = request.headers.get("authorization", "")
        if api and given:
            kind, _, secret = given.partition(" ")
            found = current.of_token(secret.strip(), clock.milliseconds())
            if kind.lower() != "bearer" or found is None:
                return Visitor("", None)
            name = f"token {found.name}"
            return Visitor(name, found.user(token=True), by_token=True, mark=found.mark)
        if not self.guarded:
            user = None if any(name in request.headers for name in _PROXIED) else LOCAL
            return Visitor(cookie or new_id(), user, fresh=not cookie, local=True)
        account = current.users.get(self.sessions.user_of(cookie) or "") if cookie else None
        if cookie and self.sessions.fits(cookie, account, use=not _is_of_page(request)):
            assert account is not None
            return Visitor(cookie, account.user())
        return Visitor(cookie or new_id(), None, fresh=not cookie)

    def still(self, visitor: Visitor) -> User | None:
        """Return the user of an earlier visitor, if they still have access."""
        current = self._current()
        if visitor.user is None:
            return None
        if visitor.by_token:
            token = current.tokens.get(visitor.user.token)
            if token is None or token.mark != visitor.mark:  # another token may have its name now
                return None
            expired = (token.expires or 2**63) <= clock.milliseconds()
            return None if expired else token.user(token=True)
        if not self.guarded:
            return LOCAL
        account = current.users.get(visitor.user.name)
        if not self.sessions.fits(visitor.id, account, use=False) or account is None:
            return None
        return account.user()

    def user_now(self, user: User) -> User | None:
        """Return the same user with the present permissions, logged in or not."""
        current = self._current()
        if user is LOCAL:
            return None if self.guarded else LOCAL
        if user.token:
            token = current.tokens.get(user.token)
            return None if token is None else token.user(token=True)
        account = current.users.get(user.name)
        return None if account is None else account.user()

    async def log_in(self, asked: RequestContext, name: str, password: str) -> str | None:
        """Begin a session; return the content of its cookie.

        Returns None if the name or password is wrong or after too many attempts, without
        distinction."""
        if not self.throttle.may_try(name, asked.client):
            return None
        account: Account | None = self._current().users.get(name)
        fits = await self.passwords.fits(None if account is None else account.secret, password)
        if not fits or account is None:
            self._tell(asked, "login", {"user": name[:64], "state": "refused"})
            return None
        self.throttle.succeeded(name, asked.client)
        self.sessions.end(asked.visitor.id)
        self._tell(asked, "login", {"user": name, "state": "done"})
        return self.sessions.begin(account)

    def log_out(self, asked: RequestContext) -> None:
        """End the session."""
        user = asked.visitor.user
        self.sessions.end(asked.visitor.id)
        if user is not None:
            self._tell(asked, "logout", {"user": user.name, "state": "done"})

    def refused(self, asked: RequestContext, problem: Problem) -> None:
        """Record a refusal in the audit."""
        user = asked.visitor.user
        request = asked.request
        self._tell(
            asked,
            "refused",
            {
                "user": user.name if user else "",
                "state": "refused",
                "path": f"{request.method} {asked.path}"[:500],
                "status": problem.status,
                "text": problem.line,
            },
        )

    def _tell(self, asked: RequestContext, what: str, more: Mapping[str, object]) -> None:
        entry = {"id": asked.id, "address": asked.client, "what": what, **more}
        if more["state"] == "refused":
            kind = f"{what} {more['user']}" if self._is_account(str(more["user"])) else what
            if not self._may_tell(kind):
                self._untold[kind] += 1
                return
            untold = self._untold.pop(kind, 0)
            if untold:
                entry["untold"] = untold
        try:
            self._audit.note(entry)
        except CannotWrite:
            log.warning("not in the audit: %s", what, extra={"failure": "audit"})

    @property
    def untold(self) -> int:
        """Return the number of refusals that the audit does not contain yet."""
        return self._untold.total()

    def _is_account(self, name: str) -> bool:
        return name in self.accounts.users or name.removeprefix("token ") in self.accounts.tokens

    def _may_tell(self, kind: str) -> bool:
        """Return whether the audit may record one more refusal: clients must not fill the disk."""
        now = clock.monotonic()
        if now - self._minute >= 60.0:
            self._minute = now
            self._told.clear()
        self._told[kind] += 1
        return self._told[kind] <= REFUSALS_A_MINUTE

    # what requests bring ----------------------------------------------------------------------

    def cookie_name(self, request: Request) -> str:
        """`__Host-` binds a cookie to this host, if the browser uses TLS."""
        return "__Host-mq" if request.url.scheme == "https" else "mq"

    def set_cookie(self, response: Response, visitor: Visitor, request: Request) -> None:
        """Send the visitor's id with a page, unless the browser has it."""
        kind = response.headers.get("content-type", "")
        if visitor.fresh and kind.startswith("text/html") and "set-cookie" not in response.headers:
            self.keep(response, visitor.id, request)

    def keep(self, response: Response, id: str, request: Request) -> None:
        """Let the browser send this id from now on."""
        response.set_cookie(
            self.cookie_name(request),
            id,
            httponly=True,
            samesite="lax",
            path="/",
            secure=request.url.scheme == "https",
        )

    def forget(self, response: Response, request: Request) -> None:
        """Let the browser delete it."""
        response.delete_cookie(
            self.cookie_name(request),
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    def to_login(self, asked: RequestContext) -> Response:
        """Return a redirect to the login page, which leads back here."""
        query = asked.request.url.query
        here = asked.path + (f"?{query}" if query else "")
        prefix = self.settings.console.path_prefix
        return RedirectResponse(f"{prefix}/login?next={quote(here, safe='')}", 303)

    def check_origin(self, request: Request) -> None:
        """Raises Refused for a request from a page of another site."""
        # The browser reports this itself, and pages cannot change it; it is reliable even with a
        # proxy that changes the Host.
        site = request.headers.get("sec-fetch-site", "")
        if site == "same-origin":
            return
        if site:
            raise Refused(403, "the request is from a page of another site")
        origin = request.headers.get("origin")
        if origin is None:
            raise Refused(403, "the request has no Origin header")
        found = urlsplit(origin)
        if (found.scheme, found.netloc) != (request.url.scheme, request.headers.get("host", "")):
            raise Refused(403, "the request is from a page of another site")

    async def json_body(self, asked: RequestContext, most: int) -> dict[str, Any]:
        """Return the object that a program has sent. Raises Refused.

        Browsers ask first whether they may send JSON to another site, and the console never allows
        it; requests with a session must state their origin anyway.
        """
        request = asked.request
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(415, "expected JSON (Content-Type: application/json)")
        told = request.headers.get("origin") or request.headers.get("sec-fetch-site")
        if told or (self.guarded and not asked.visitor.by_token):
            self.check_origin(request)
        body = await request.body()
        if len(body) > most:
            raise Refused(413, "the body is too large")
        try:
            found = orjson.loads(body or b"{}")
        except orjson.JSONDecodeError:
            raise Refused(400, "the body is not JSON") from None
        if not isinstance(found, dict):
            raise Refused(400, "expected a JSON object")
        return found


def _is_of_page(request: Request) -> bool:
    """Return whether an open page has sent this by itself, without a user's action."""
    return (
        request.headers.get("x-requested-with") == "mq"
        or request.headers.get("accept") == "text/event-stream"
    )
