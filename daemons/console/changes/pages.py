"""The pages of a change, form, preview and result, and the same for programs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from mq.client.machine import clock
from mq.daemons.console import rendering
from mq.daemons.console.call import Call
from mq.daemons.console.changes.engine import Engine
from mq.daemons.console.changes.pending import Preview
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.console.parsing import BadField, BadQuery, BadValues, Reading, flag, integer, moment
from mq.daemons.console.problems import Refused
from mq.daemons.console.rendering import Pages
from mq.daemons.console.request_context import RequestContext
from mq.daemons.console.route import (
    API,
    AnyRoute,
    Change,
    Field,
    Page,
    Permission,
    Route,
    Values,
    subject_of,
)
from mq.daemons.console.security.access import Access
from mq.daemons.console.template_filters import quoted

# Fields of the frame in a form; no change has fields with these names.
OWN = frozenset({"csrf", "confirm", "typed", "again", "step"})

T = TypeVar("T")

MAX_BODY = 1024 * 1024


def fields_for(change: Change, call: Call) -> tuple[Field, ...]:
    """Return the fields of a change, with the choices for this call."""
    return tuple(
        replace(field, choices=tuple(field.choices(call))) if callable(field.choices) else field
        for field in change.fields
    )


def read_form(
    fields: Sequence[Field], given: Mapping[str, list[str]], reading: Reading
) -> dict[str, Any]:
    """Return the values of the fields. Raises BadValues, also for undeclared fields."""
    declared = {field.name: field for field in fields}
    errors = {
        name[:100]: "no such field" for name in given if name not in declared and name not in OWN
    }
    values: dict[str, Any] = {}
    for name, field in declared.items():
        texts = given.get(name, [])
        try:
            values[name] = read_field(field, texts, reading)
        except ValueError as error:
            errors[name] = str(error)
    if errors:
        raise BadValues(errors)
    return values


def read_field(field: Field, texts: list[str], reading: Reading) -> Any:
    """Return the value of a field. Raises ValueError with the expected form."""
    if field.kind == "flag":
        return bool(texts) and flag.read(texts[-1] or "off", reading)
    if field.kind == "lines":
        # Checkboxes of one name send several texts, a text area one text of several lines.
        lines = [line.strip() for text in texts for line in text.splitlines()]
        found = tuple(line for line in lines if line)
        if field.required and not found:
            raise ValueError("select or enter at least one")
        if sum(map(len, found)) > field.limit:
            raise ValueError(f"expected at most {field.limit} characters")
        return found
    text = texts[-1] if texts else ""
    if field.kind != "secret":
        text = text.replace("\r\n", "\n")  # browsers' line ends
    if len(text) > field.limit:
        raise ValueError(f"expected at most {field.limit} characters")
    if not text.strip() and field.kind != "secret":
        text = "" if field.kind != "text" or not text else text
    if text == "":
        if field.required:
            raise ValueError("required")
        return None
    if field.kind == "integer":
        return integer.read(text.strip(), reading)
    if field.kind == "moment":
        return moment.read(text, reading)
    if field.kind == "choice":
        choices = () if callable(field.choices) else field.choices
        known = [one if isinstance(one, str) else one[0] for one in choices]
        if text not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
    return text


def read_json(
    fields: Sequence[Field], given: Mapping[str, Any], reading: Reading
) -> dict[str, Any]:
    """Return the values of a JSON object: texts, numbers, booleans for flags, lists for "lines".

    Null means no value. Raises BadValues.
    """
    kinds = {field.name: field.kind for field in fields}
    errors = {name[:100]: "no such field" for name in given if name in OWN}
    texts: dict[str, list[str]] = {}
    for name, value in given.items():
        try:
            if value is not None and name not in OWN:
                texts[name] = _texts(kinds.get(name, "text"), value)
        except ValueError as error:
            errors[name[:100]] = str(error)
    if errors:
        raise BadValues(errors)
    return read_form(fields, texts, reading)


def _texts(kind: str, value: Any) -> list[str]:
    """Return a JSON value in the form of a form's texts. Raises ValueError for a wrong type."""
    if kind == "flag":
        if not isinstance(value, bool):
            raise ValueError("expected true or false")
        return ["on" if value else "off"]
    if isinstance(value, bool):
        raise ValueError("expected a text")
    if isinstance(value, str | int | float):
        return [str(value)]
    if kind == "lines" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return list(value)
    raise ValueError("expected a list of texts" if kind == "lines" else "expected a text")


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
