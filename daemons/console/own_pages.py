"""The pages of the console itself, of no cluster: login, logout and preferences."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as WebRoute

from mq.daemons.console import locale, preferences
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.console.rendering import Pages
from mq.daemons.console.request_context import RequestContext
from mq.daemons.console.security.access import Access
from mq.daemons.console.security.paths import safe_next

YEAR = 365 * 24 * 3600


class FrameServices(Protocol):
    """The services of the frame that these pages use."""

    settings: ConsoleSettings
    access: Access
    pages: Pages

    def answering(
        self, answer: Callable[[RequestContext], Awaitable[Response]], *, api: bool = False
    ) -> Callable[[Request], Awaitable[Response]]: ...

    def redirect(self, path: str) -> Response: ...

    async def form(self, asked: RequestContext) -> dict[str, list[str]]: ...


def web_routes(frame: FrameServices) -> list[WebRoute]:
    """Return the routes of these pages."""

    async def set_preferences(asked: RequestContext) -> Response:
        """Store the preferences in cookies."""
        form = await frame.form(asked)
        prefix = frame.settings.console.path_prefix
        given = {name: texts[-1] for name, texts in form.items()}
        response = frame.redirect(safe_next(given.get("next", ""), prefix))
        chosen = {
            "mq-theme": given.get("theme", "") if given.get("theme") in preferences.THEMES else "",
            "mq-language": given["language"] if given.get("language") in locale.LANGUAGES else "",
            "mq-zone": given["zone"] if preferences.is_zone(given.get("zone", "")) else "",
            "mq-keys": given.get("keys", "") if given.get("keys") in ("on", "off") else "",
        }
        for name, value in chosen.items():
            if value:
                response.set_cookie(
                    name,
                    value.replace("/", "%2F"),
                    max_age=YEAR,
                    path="/",
                    samesite="lax",
                    httponly=True,
                    secure=asked.request.url.scheme == "https",
                )
        return response

    async def login(asked: RequestContext) -> Response:
        """Show the login form, or handle it."""
        request = asked.request
        prefix = frame.settings.console.path_prefix
        if not frame.access.guarded or (asked.visitor.user and request.method == "GET"):
            return frame.redirect(safe_next(request.query_params.get("next", ""), prefix))
        if request.method == "GET":
            return _login_page(frame, asked, request.query_params.get("next", ""), failed=False)
        form = await frame.form(asked)
        given = {name: texts[-1] for name, texts in form.items()}
        wanted = given.get("next", "")
        id = await frame.access.log_in(asked, given.get("name", ""), given.get("password", ""))
        if id is None:
            return _login_page(frame, asked, wanted, failed=True)
        response = frame.redirect(safe_next(wanted, prefix))
        frame.access.keep(response, id, request)
        return response

    async def logout(asked: RequestContext) -> Response:
        """End the session; the browser deletes its data."""
        await frame.form(asked)
        frame.access.log_out(asked)
        response = frame.redirect("/login")
        frame.access.forget(response, asked.request)
        response.headers["Clear-Site-Data"] = '"cache", "storage"'
        return response

    return [
        WebRoute("/login", frame.answering(login), methods=["GET", "POST"]),
        WebRoute("/logout", frame.answering(logout), methods=["POST"]),
        WebRoute("/preferences", frame.answering(set_preferences), methods=["POST"]),
    ]


def _login_page(
    frame: FrameServices, asked: RequestContext, wanted: str, *, failed: bool
) -> Response:
    return frame.pages.html(
        asked,
        "frame/login.html",
        asked.texts.gettext("Log in"),
        status=401 if failed else 200,
        wanted=frame.settings.console.path_prefix
        + safe_next(wanted[:2000], frame.settings.console.path_prefix),
        failed=failed,
    )
