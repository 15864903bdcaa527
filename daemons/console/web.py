"""The frame around the pages: from a request to a `Call`, and from a `Page` to a response.

    /c/{cluster}/…                 pages and forms for users; ?format=json and ?format=csv
    /api/v1/clusters/{cluster}/…   the same routes for programs
    /login /logout /preferences    of the console itself
    /static/{hash}/{name}          style sheet and scripts

Each route is refused here unless its ``needs`` are met (deny by default: without a visitor, a role
or a cluster a route does not exist), and once more in the session below it (`guarded_session`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as WebRoute
from starlette.routing import Router

from mq import __version__
from mq.daemons.console import own_pages, rendering
from mq.daemons.console.api import openapi
from mq.daemons.console.assets import load
from mq.daemons.console.audit import Audit
from mq.daemons.console.call import Call
from mq.daemons.console.changes.engine import Engine, entry_of
from mq.daemons.console.changes.pages import ChangePages
from mq.daemons.console.clusters import Cluster
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.console.parsing import BadQuery
from mq.daemons.console.problems import Refused, problem_of
from mq.daemons.console.rendering import Pages
from mq.daemons.console.request_context import RequestContext, asking, read_query
from mq.daemons.console.route import (
    API,
    FORMATS,
    AnyRoute,
    Change,
    Download,
    Page,
    Redirect,
    Route,
    Stream,
    subject_of,
)
from mq.daemons.console.security.access import Access
from mq.daemons.console.streams import Streams
from mq.daemons.console.template_filters import quoted

T = TypeVar("T")
Answer = Callable[[Request], Awaitable[Response]]

MOST_FIELDS = 200


class _Router(Router):
    """Has its own response for an unknown address."""

    nothing: Callable[[Any, Any, Any], Awaitable[None]]

    async def not_found(self, scope: Any, receive: Any, send: Any) -> None:
        await self.nothing(scope, receive, send)


class Frame:
    """The pages of one console as an ASGI router."""

    def __init__(
        self,
        settings: ConsoleSettings,
        clusters: Mapping[str, Cluster],
        access: Access,
        audit: Audit,
        routes: tuple[AnyRoute, ...],
    ) -> None:
        self.settings = settings
        self.clusters = clusters
        self.access = access
        self.audit = audit
        self.routes = routes
        self.streams = Streams()
        self.seconds = settings.console.page_timeout_millis / 1000
        self._assets = load()
        self._by_address = {one.address: one for one in self._assets.values()}
        self.pages = Pages(
            settings.console.path_prefix, self._assets, access.forms.make, self._menu, self._known
        )
        self.engine = Engine(audit)
        self.changes = ChangePages(self, self.engine)
        self.router = _Router(self._web_routes(), redirect_slashes=False)
        self.router.nothing = self._not_found

    # where requests go ------------------------------------------------------------------------

    def _web_routes(self) -> list[WebRoute]:
        made = [
            WebRoute("/", self._start),
            WebRoute("/static/{mark}/{name}", self._static),
            *own_pages.web_routes(self),
            WebRoute(f"{API}/openapi.json", self.answering(self._described, api=True)),
            WebRoute(f"{API}/clusters", self.answering(self._clusters, api=True)),
        ]
        for route in self.routes:
            made += self._routes_of(route)
        made.append(WebRoute("/c/{cluster}/results/{id}", self.answering(self.changes.result)))
        made.append(WebRoute("/c/{cluster}", self._start))
        return made

    def _routes_of(self, route: AnyRoute) -> list[WebRoute]:
        """Return the addresses of a route: for users and for programs."""
        people, programs = f"/c/{{cluster}}{route.path}", f"{API}/clusters/{{cluster}}{route.path}"
        changes = self.changes
        if isinstance(route, Route):
            return [
                WebRoute(people, self.answering(partial(self._page, route))),
                WebRoute(programs, self.answering(partial(self._page, route, api=True), api=True)),
            ]
        if isinstance(route, Stream):
            return [
                WebRoute(people, self.answering(partial(self._stream, route))),
                WebRoute(programs, self.answering(partial(self._stream, route), api=True)),
            ]
        return [
            WebRoute(people, self.answering(partial(changes.form, route)), methods=["GET"]),
            WebRoute(people, self.answering(partial(changes.post, route)), methods=["POST"]),
            WebRoute(
                programs,
                self.answering(partial(changes.by_program, route), api=True),
                methods=["POST"],
            ),
        ]

    def answering(
        self, answer: Callable[[RequestContext], Awaitable[Response]], *, api: bool = False
    ) -> Answer:
        """Return an endpoint: errors become a response with one line."""

        async def endpoint(request: Request) -> Response:
            visitor = self.access.visitor(request, api=api)
            asked = asking(request, visitor)
            try:
                response = await answer(asked)
            except ClientDisconnect:
                # no client reads a response; or the body was too large, and the shell answers
                raise
            except Exception as error:
                response = self._failed(asked, error, api=api)
            self.access.set_cookie(response, visitor, request)
            return response

        return endpoint

    def _failed(self, asked: RequestContext, error: Exception, *, api: bool) -> Response:
        problem = problem_of(error, asked.id)
        if problem.status in (401, 403, 429):
            self.access.refused(asked, problem)
        wants_json = asked.request.query_params.get("format") == "json"
        if api or wants_json:
            return rendering.json_problem(problem)
        if problem.status == 401 and asked.request.method == "GET":
            return self.access.to_login(asked)
        cluster = asked.path_parts.get("cluster", "")
        seen = cluster in self.clusters and self._sees(asked, cluster)
        return self.pages.problem(asked, problem, cluster=cluster if seen else "")

    async def _not_found(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer for an unknown address; it does not differ for users without access."""

        async def nothing(asked: RequestContext) -> Response:
            if asked.visitor.user is None:
                raise Refused(401, "log in first")
            raise Refused(404, "There is no such page.")

        request = Request(scope, receive)
        api = scope["path"].startswith(API)
        response = await self.answering(nothing, api=api)(request)
        await response(scope, receive, send)

    # who may ----------------------------------------------------------------------------------

    def _sees(self, asked: RequestContext, cluster: str) -> bool:
        user = asked.visitor.user
        return user is not None and user.permission(cluster) is not None

    def _known(self, asked: RequestContext) -> list[str]:
        return [name for name in self.clusters if self._sees(asked, name)]

    def _menu(self, asked: RequestContext, cluster: str) -> list[tuple[str, str]]:
        """Path and text of each entry that the visitor may open."""
        user = asked.visitor.user
        if user is None:
            return []
        return [
            (route.path, asked.texts.gettext(route.menu))
            for route in self.routes
            if isinstance(route, Route | Change)
            and route.menu
            and user.may(cluster, route.needs)
            and not (isinstance(route, Change) and self.clusters[cluster].read_only)
        ]

    def call(
        self, asked: RequestContext, route: AnyRoute, given: Mapping[str, str] | None = None
    ) -> Call:
        """Return the call of a route, if the visitor has access. Raises Refused and BadQuery."""
        # As of now: the body of a form may have arrived long after its head.
        user = self.access.still(asked.visitor)
        if user is None:
            raise Refused(401, "log in first")
        path = asked.path_parts
        cluster = self.clusters.get(path.pop("cluster", ""))
        if cluster is None or user.permission(cluster.name) is None:
            raise Refused(404, asked.texts.gettext("There is no such cluster."))
        query = read_query(
            route.query, asked.request.query_params if given is None else given, asked.reading
        )
        call = Call(
            cluster,
            path,
            query,
            user,
            asked.texts,
            asked.now,
            asked.preferences.tz,
            asked.client,
            asked.id,
            self._note,
            self.audit.path,
        )
        subject = subject_of(route, path)
        if isinstance(route, Change) and cluster.read_only:
            line = asked.texts.gettext("This console changes nothing: it is read-only.")
            raise Refused(403, line)
        if not user.may(cluster.name, route.needs, **subject):
            raise Refused(403, asked.texts.gettext("You may not do this."))
        return call

    def _note(self, call: Call, what: str, target: str, parameters: Mapping[str, object]) -> None:
        self.audit.note(
            {**entry_of(call), "what": what, "target": target, "parameters": dict(parameters)}
        )

    # what is of no cluster, for programs -------------------------------------------------------

    async def _described(self, asked: RequestContext) -> Response:
        if asked.visitor.user is None:
            raise Refused(401, "log in first")
        prefix = self.settings.console.path_prefix
        known = self._known(asked)
        found = openapi.document(self.routes, __version__, prefix, asked.texts.gettext, known)
        return rendering.json_response(found)

    async def _clusters(self, asked: RequestContext) -> Response:
        if asked.visitor.user is None:
            raise Refused(401, "log in first")
        known = [
            {"name": name, "readOnly": self.clusters[name].read_only} for name in self._known(asked)
        ]
        return rendering.json_response({"clusters": known})

    # pages ------------------------------------------------------------------------------------

    async def _start(self, request: Request) -> Response:
        """Redirect to the first cluster that the visitor may see."""

        async def answer(asked: RequestContext) -> Response:
            if asked.visitor.user is None:
                raise Refused(401, "log in first")
            known = self._known(asked)
            named = asked.path_parts.get("cluster")
            if not known or (named is not None and named not in known):
                raise Refused(404, asked.texts.gettext("There is no cluster that you may see."))
            return self.redirect(f"/c/{quoted(named or known[0])}/")

        return await self.answering(answer)(request)

    def redirect(self, path: str) -> Response:
        """Redirect to another page of this console, with GET."""
        return RedirectResponse(self.settings.console.path_prefix + path, 303)

    async def _static(self, request: Request) -> Response:
        asset = self._by_address.get(request.scope["path"])
        if asset is None:
            return Response("no such file", 404, media_type="text/plain")
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(asset.content, media_type=asset.kind, headers=headers)

    async def _page(self, route: Route, asked: RequestContext, *, api: bool = False) -> Response:
        call = self.call(asked, route)
        form = asked.request.query_params.get("format", "json" if api else "")
        if api:
            _check_parameters(route, asked.request, form)
        found = await self.while_wanted(asked.request, route.show(call), route.seconds)
        if isinstance(found, Download):
            self._check_export(asked)
            download = await self.while_wanted(asked.request, rendering.begun(found), route.seconds)
            return rendering.download(download)
        if isinstance(found, Redirect):
            if api and found.data is not None:
                return rendering.json_response(found.data)
            prefix = f"{API}/clusters" if api else "/c"
            return self.redirect(f"{prefix}/{quoted(call.cluster.name)}{found.path}")
        if form == "csv":
            if found.sheet is None:
                raise Refused(400, "This page has no table to save.")
            self._check_export(asked)
            call.viewed(route.path, "export", rows=len(found.sheet.rows))
            return rendering.csv_response(found.sheet, found.title)
        if form == "json":
            return rendering.json_response(found.data, found.status)
        return self._html(asked, call, found)

    def _html(self, asked: RequestContext, call: Call, page: Page) -> Response:
        return self.pages.html(
            asked,
            page.template,
            page.title,
            cluster=call.cluster.name,
            status=page.status,
            command=page.command,
            call=call,
            page=page,
            data=page.data,
            **page.extra,
        )

    def _check_export(self, asked: RequestContext) -> None:
        if not self.settings.console.exports_allowed:
            raise Refused(403, asked.texts.gettext("Downloads are disabled here."))

    async def while_wanted(self, request: Request, work: Awaitable[T], seconds: float = 0.0) -> T:
        """Return the result of work; it is cancelled if the client disconnects, or at the time
        limit.
        """
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        gone: asyncio.Future[None] = asyncio.ensure_future(_gone(request))
        both: set[asyncio.Future[Any]] = {task, gone}
        try:
            done, _ = await asyncio.wait(
                both, timeout=seconds or self.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if task in done:
                return task.result()
            if gone in done:
                raise Refused(499, "the client closed the request")
            raise Refused(504, "this page took too long")
        finally:
            for one in both:
                one.cancel()
            await asyncio.wait(both)

    async def _stream(self, route: Stream, asked: RequestContext) -> Response:
        call = self.call(asked, route)
        visitor = asked.visitor

        def allowed() -> bool:
            user = self.access.still(visitor)
            if user is None:
                return False
            subject = subject_of(route, call.path)
            return user.may(call.cluster.name, route.needs, **subject)

        return self.streams.response(route.events(call), call.user.name, call.id, allowed)

    async def form(self, asked: RequestContext) -> dict[str, list[str]]:
        """Return the fields of a form from one of our pages. Raises Refused for any other."""
        request = asked.request
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise Refused(415, "expected a form")
        self.access.check_origin(request)
        try:
            pairs = parse_qsl(
                (await request.body()).decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS
            )
        except ValueError:  # also if it is not UTF-8
            raise Refused(400, f"expected a form of at most {MOST_FIELDS} fields") from None
        found: dict[str, list[str]] = {}
        for name, value in pairs:
            found.setdefault(name, []).append(value)
        token = found.pop("csrf", [""])[-1]
        if not self.access.forms.fits(asked.visitor.id, token):
            raise Refused(403, asked.texts.gettext("This form has expired: load its page again."))
        return found


def _check_parameters(route: Route, request: Request, form: str) -> None:
    """Raises BadQuery for parameters of a program that no page has."""
    if form not in FORMATS:
        raise BadQuery(f"format={form[:100]}: expected one of {', '.join(FORMATS)}")
    for name in ("format", *(one.name for one in route.query)):
        if len(request.query_params.getlist(name)) > 1:
            raise BadQuery(f"{name}: given more than once")


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
