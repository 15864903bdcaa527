"""Responses: pages as HTML, JSON and CSV, downloads, and errors in either form."""

import csv
import io
import re
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import HTMLResponse, Response, StreamingResponse

from mq.daemons.console import templating
from mq.daemons.console.api.values import to_json
from mq.daemons.console.assets import Asset
from mq.daemons.console.call import Call
from mq.daemons.console.problems import Problem
from mq.daemons.console.request_context import Addresses, RequestContext
from mq.daemons.console.route import Cell, Download, Permission, Sheet

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# The places where a formula may start: at the start of a cell, and after a character at which a
# spreadsheet may split the cell again (in many countries semicolons separate CSV). The last four
# signs are the wide forms of the first four.
_SIGNS = r"=+\-@\uff1d\uff0b\uff0d\uff20"
_FORMULA = re.compile(rf"\A(?=[{_SIGNS}\t\r])|(?<=[;\t|\r\n])(?=[{_SIGNS}])")


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
        text = templating.render(
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
