"""Responses: pages as HTML, JSON and CSV, downloads, and errors in either form.

Each language has one environment of templates, in which every output is escaped. Invisible
characters in text - controls, marks for the direction of writing - are shown as marks in every
output (`template_filters.plain`), so pages need not handle them.
"""

import csv
import io
import re
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response, StreamingResponse

from mq.daemons.console import locale, template_filters
from mq.daemons.console.api.values import to_json
from mq.daemons.console.assets import Asset
from mq.daemons.console.call import Call
from mq.daemons.console.problems import Problem
from mq.daemons.console.request_context import Addresses, RequestContext
from mq.daemons.console.route import Cell, Download, Permission, Sheet

FOLDER = Path(__file__).with_name("templates")

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# The places where a formula may start: at the start of a cell, and after a character at which a
# spreadsheet may split the cell again (in many countries semicolons separate CSV). The last four
# signs are the wide forms of the first four.
_SIGNS = r"=+\-@\uff1d\uff0b\uff0d\uff20"
_FORMULA = re.compile(rf"\A(?=[{_SIGNS}\t\r])|(?<=[;\t|\r\n])(?=[{_SIGNS}])")


@cache
def environment(language: str) -> jinja2.Environment:
    """Return the templates in a language."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=template_filters.plain,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=-1,
        auto_reload=False,
    )
    texts = locale.texts(language)
    made.install_gettext_translations(texts.catalogue, newstyle=True)  # type: ignore[attr-defined]
    made.filters.update(
        shown=template_filters.shown,
        verbatim=template_filters.verbatim,
        number=template_filters.number,
        rate=template_filters.rate,
        bytes=template_filters.in_bytes,
        percent=template_filters.percent,
        span=template_filters.span,
        quoted=template_filters.quoted,
        moment=_moment,
        moment_text=_moment_text,
        ago=_ago,
    )
    return made


@pass_context
def _moment(context: Context, value: Any) -> Markup:
    return template_filters.moment(value, context.get("zone", UTC))


@pass_context
def _moment_text(context: Context, value: Any) -> str:
    return template_filters.moment_text(value, context.get("zone", UTC))


@pass_context
def _ago(context: Context, value: Any) -> Markup:
    """Return the time since a moment, with the moment itself as its title."""
    if value is None:
        return Markup(template_filters.UNKNOWN)
    passed = template_filters.span(max(0, context["now"] - value))
    at = template_filters.moment_text(value, context.get("zone", UTC))
    text = context.call(context.resolve("gettext"), "%(time)s ago", time=passed)
    return Markup('<span title="{}">{}</span>').format(at, text)


def render(name: str, language: str, context: Mapping[str, Any]) -> str:
    """Return a page as HTML."""
    return environment(language).get_template(name).render(context)


class Pages:
    """Renders templates for one console. ``menu`` gives the entries for a visitor and a cluster."""

    def __init__(
        self,
        prefix: str,
        assets: Mapping[str, Asset],
        token: Callable[[str], str],
        menu: "Callable[[RequestContext, str], list[Any]]",
        clusters: "Callable[[RequestContext], list[Any]]",
    ) -> None:
        self._prefix = prefix
        self._assets = assets
        self._token = token
        self._menu = menu
        self._clusters = clusters

    def html(
        self,
        asking: RequestContext,
        template: str,
        title: str,
        *,
        cluster: str = "",
        status: int = 200,
        command: tuple[str, ...] = (),
        call: Call | None = None,
        **context: Any,
    ) -> Response:
        """Return a page. The variables of templates are listed in `templates/base.html`."""
        request = asking.request
        addresses = Addresses(self._prefix, cluster, asking.path, request.url.query)
        text = render(
            template,
            asking.texts.tag,
            {
                "title": title,
                "cluster": cluster,
                "clusters": self._clusters(asking),
                "menu": self._menu(asking, cluster) if cluster else [],
                "asking": asking,
                "user": asking.visitor.user,
                "read_only": call is not None and call.cluster.read_only,
                "call": call,
                "preferences": asking.preferences,
                "zone": asking.preferences.tz,
                "now": asking.now,
                "language": asking.texts.tag,
                "url": addresses.url,
                "root": addresses.root,
                "here": addresses.here,
                "asset": lambda name: self._prefix + self._assets[name].address,
                "csrf_token": lambda: self._token(asking.visitor.id),
                "command": shlex.join(("mq", *command)) if command else "",
                "Permission": Permission,
                "current": asking.path,
                "query": dict(request.query_params),
                **context,
            },
        )
        return HTMLResponse(text, status)

    def problem(self, asking: RequestContext, problem: Problem, *, cluster: str = "") -> Response:
        """Return the page of an error."""
        return self.html(
            asking,
            "frame/error.html",
            asking.texts.gettext("Error %(status)d", status=problem.status),
            cluster=cluster,
            status=problem.status,
            problem=problem,
        )


def json_response(data: Any, status: int = 200) -> Response:
    """Return a value as JSON: integers that JavaScript cannot represent exactly are strings."""
    return Response(to_json(data), status, media_type="application/json")


def json_problem(problem: Problem) -> Response:
    """Return an error for programs."""
    content = {
        "error": problem.line,
        "hint": problem.hint,
        "id": problem.id,
        "fields": problem.fields,
    }
    return json_response(content, problem.status)


def csv_response(sheet: Sheet, name: str) -> Response:
    """Return a table as CSV that no spreadsheet interprets as formulas."""
    return download(Download(f"{name}.csv", _rows(sheet), "text/csv; charset=utf-8"))


async def _rows(sheet: Sheet) -> AsyncIterator[bytes]:
    for chunk in csv_chunks(sheet):
        yield chunk


def csv_chunks(sheet: Sheet, rows_at_once: int = 500) -> Iterator[bytes]:
    """Yield the lines of a CSV file in chunks."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([defused(column) for column in sheet.columns])
    for place, row in enumerate(sheet.rows):
        writer.writerow([defused(cell) for cell in row])
        if place % rows_at_once == rows_at_once - 1:
            yield text.getvalue().encode("utf-8", "replace")
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode("utf-8", "replace")


def defused(cell: Cell) -> str:
    """Return a cell as text, with a ' before each place that a spreadsheet would treat as a
    formula.
    """
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int | float):
        return str(cell)
    return _FORMULA.sub("'", cell)


async def begun(given: Download) -> Download:
    """Return a download after its first part: an earlier error can still become a response."""
    if isinstance(given.content, bytes):
        return given
    parts = given.content
    first = await anext(parts, b"")

    async def all_parts() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    return replace(given, content=all_parts())


def download(given: Download) -> Response:
    """Return bytes that a browser saves and never displays."""
    name = _UNSAFE.sub("_", given.name).strip("._")[:120] or "download"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    if isinstance(given.content, bytes):
        return Response(given.content, media_type=given.kind, headers=headers)
    return StreamingResponse(given.content, media_type=given.kind, headers=headers)
