"""The pages of a change, form, preview and result, and the same for programs."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from mq.client.machine import clock
from mq.daemons.console import rendering
from mq.daemons.console.call import Call
from mq.daemons.console.changes.engine import Engine
from mq.daemons.console.changes.pending import Preview
from mq.daemons.console.changes.reading import fields_for, read_form, read_json
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.console.parsing import BadField, BadQuery, BadValues
from mq.daemons.console.problems import Refused
from mq.daemons.console.rendering import Pages
from mq.daemons.console.request_context import RequestContext
from mq.daemons.console.route import (
    API,
    AnyRoute,
    Change,
    Page,
    Permission,
    Route,
    Values,
    subject_of,
)
from mq.daemons.console.security.access import Access
from mq.daemons.console.template_filters import quoted

T = TypeVar("T")

MAX_BODY = 1024 * 1024


class FrameServices(Protocol):
    """The services of the frame that these pages use."""

    settings: ConsoleSettings
    access: Access
    pages: Pages

    def call(
        self, asked: RequestContext, route: AnyRoute, given: Mapping[str, str] | None = None
    ) -> Call: ...

    def redirect(self, path: str) -> Response: ...

    async def form(self, asked: RequestContext) -> dict[str, list[str]]: ...

    async def while_wanted(
        self, request: Request, work: Awaitable[T], seconds: float = 0.0
    ) -> T: ...


class ChangePages:
    """The changes of one console for users and programs."""

    def __init__(self, frame: FrameServices, engine: Engine) -> None:
        self._frame = frame
        self._engine = engine

    async def form(self, change: Change, asked: RequestContext) -> Response:
        """Return the form, filled in with the current values."""
        call = self._frame.call(asked, change)
        initial: Values = {}
        if change.initial is not None:
            initial = await self._frame.while_wanted(asked.request, change.initial(call))
        return self._show_form(change, asked, call, initial, {})

    def _show_form(
        self,
        change: Change,
        asked: RequestContext,
        call: Call,
        values: Values,
        errors: Mapping[str, str],
    ) -> Response:
        return self._frame.pages.html(
            asked,
            "frame/form.html",
            self._title(change, call),
            cluster=call.cluster.name,
            status=400 if errors else 200,
            call=call,
            change=change,
            fields=fields_for(change, call),
            values=values,
            errors=errors,
            data=None,
        )

    def _title(self, change: Change, call: Call) -> str:
        about = call.text(change.about)
        subject = call.path.get(change.subject, "")
        return f"{about}: {subject}" if subject else about

    async def post(self, change: Change, asked: RequestContext) -> Response:
        """Handle a submitted form: return its preview, or make the confirmed change."""
        form = await self._frame.form(asked)
        call = self._frame.call(asked, change)
        path, visitor = self._bound(asked), asked.visitor.id
        confirmed = form.get("confirm", [""])[-1]
        if confirmed and form.get("again"):
            preview = self._engine.find(confirmed, call, visitor, path)
            return self._show_form(change, asked, call, preview.values if preview else {}, {})
        if confirmed:
            typed = form.get("typed", [""])[-1]
            result = await self._engine.confirm(
                change, call, visitor, path, confirmed, typed, self._may_still(change, call)
            )
            return self._frame.redirect(f"/c/{quoted(call.cluster.name)}/results/{result.id}")
        values: Values = {}
        try:
            values = read_form(fields_for(change, call), form, asked.reading)
            preview = await self._frame.while_wanted(
                asked.request, self._engine.preview(change, call, visitor, path, values)
            )
        except BadValues as error:
            return self._show_form(change, asked, call, _as_given(form), error.errors)
        except BadField as error:
            return self._show_form(change, asked, call, values, {error.field: str(error)})
        return self._show_preview(change, asked, call, preview)

    def _show_preview(
        self, change: Change, asked: RequestContext, call: Call, preview: Preview
    ) -> Response:
        return self._frame.pages.html(
            asked,
            "frame/confirm.html",
            self._title(change, call),
            cluster=call.cluster.name,
            command=preview.plan.command,
            call=call,
            change=change,
            preview=preview,
            data=None,
        )

    async def result(self, asked: RequestContext) -> Response:
        """Return the result of a change, while it is kept."""
        call = self._frame.call(asked, _RESULT)
        result = self._engine.result(call.path["id"], call)
        if result is None:
            raise Refused(404, call.text("This result is no longer kept: see the operations log."))
        return self._frame.pages.html(
            asked,
            "frame/result.html",
            result.title,
            cluster=call.cluster.name,
            call=call,
            result=result,
            data=None,
        )

    def _may_still(self, change: Change, call: Call) -> Callable[[], bool]:
        """Return a function that checks whether the user may continue a change.

        A user who disconnected or logged out may.
        """

        def may_still() -> bool:
            user = self._frame.access.user_now(call.user)
            subject = subject_of(change, call.path)
            return user is not None and user.may(call.cluster.name, change.needs, **subject)

        return may_still

    def _bound(self, asked: RequestContext) -> str:
        """Return the address of a change, independent of its form and quoting."""
        path = asked.path.removeprefix(self._frame.settings.console.path_prefix)
        return path.removeprefix(f"{API}/clusters").removeprefix("/c")

    async def by_program(self, change: Change, asked: RequestContext) -> Response:
        """Handle a program's change: return its plan, or with {"confirm": HASH} make it."""
        if asked.visitor.user is None:
            raise Refused(401, "log in first")
        given = await self._frame.access.json_body(asked, MAX_BODY)
        call = self._frame.call(asked, change, {})
        # A program has no session: its previews belong to its user.
        path, visitor = self._bound(asked), f"api {call.user.token}"
        confirmed = given.pop("confirm", None)
        if confirmed is not None:
            typed = given.pop("typed", "")
            if given or not (isinstance(confirmed, str) and isinstance(typed, str)):
                raise BadQuery("expected the texts confirm and typed, and nothing else")
            may_still = self._may_still(change, call)
            result = await self._engine.confirm(
                change, call, visitor, path, confirmed, typed, may_still
            )
            done = all(one.ok for one in result.outcomes)
            content = {"done": done, "outcomes": result.outcomes}
            return rendering.json_response(content, 200 if done else 502)
        values = read_json(fields_for(change, call), given, asked.reading)
        preview = await self._frame.while_wanted(
            asked.request, self._engine.preview(change, call, visitor, path, values)
        )
        return rendering.json_response(
            {
                "confirm": preview.hash,
                "seconds": int(preview.expires - clock.monotonic()),
                "plan": preview.plan,
                "requests": preview.requests,
                "more_requests": preview.unshown,
                "type": preview.destroys or None,
            }
        )


def _as_given(form: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the submitted texts, for a form that is shown again."""
    return {name: "\n".join(texts) for name, texts in form.items()}


async def _no_page(call: Call) -> Page:
    raise Refused(404, "There is no such page.")


# A result needs no permission of its own: only the user who made the change can see it.
_RESULT = Route("/results/{id}", _no_page, Permission.READ, "")
