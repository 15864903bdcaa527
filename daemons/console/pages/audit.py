"""The operations log: changes and logins, with user, time, address and result."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from mq.client.machine import files
from mq.daemons.console.call import Call
from mq.daemons.console.parsing import integer, moment
from mq.daemons.console.route import N_, Page, Permission, Query, Route, Sheet
from mq.daemons.console.security.roles import EVERY

BLOCK = 64 * 1024
MAX_BYTES = 8 * 1024 * 1024  # read for one page
MAX_LINE = 256 * 1024  # a longer line was not written by the console

AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Line:
    """An entry, and the position of its line in the file."""

    position: int
    entry: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Lines, the newest first. ``older`` is the position to continue at, None at the start of the
    file; ``whole`` is False if the limit came before enough lines were found."""

    lines: tuple[Line, ...]
    older: int | None
    whole: bool = True


def search(
    path: Path, wanted: Callable[[Mapping[str, Any]], bool], count: int, before: int | None = None
) -> AuditPage:
    """Return the last ``count`` matching lines of those that start before a position.

    Invalid lines are skipped. Raises OSError; a missing file is empty.
    """
    found: list[Line] = []
    try:
        with files.opened(path, os.O_RDONLY) as descriptor:
            size = files.fstat(descriptor).st_size
            end = size if before is None else max(0, min(before, size))
            lowest = max(0, end - MAX_BYTES)
            for position, raw in _backwards(descriptor, end, lowest):
                entry = _record(raw)
                if entry is not None and wanted(entry):
                    found.append(Line(position, entry))
                    if len(found) == count:
                        return AuditPage(tuple(found), position or None)
            return AuditPage(tuple(found), lowest or None, whole=lowest == 0)
    except FileNotFoundError:
        return AuditPage((), None)


def _backwards(descriptor: int, end: int, lowest: int) -> Iterator[tuple[int, bytes]]:
    """Yield position and content of each complete line between two positions, backwards."""
    kept = b""  # the start of the read data: the end of a line that starts before it
    position = end
    while position > lowest:
        start = max(lowest, position - BLOCK)
        block = files.pread(descriptor, position - start, start) + kept
        parts = block.split(b"\n")
        kept = parts[0]
        at = start + len(block)
        for part in reversed(parts[1:]):
            at -= len(part)
            if part:
                yield at, part
            at -= 1
        position = start
        if len(kept) > MAX_LINE:
            kept = b""
    if kept and lowest == 0:
        yield 0, kept


def _record(raw: bytes) -> Mapping[str, Any] | None:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the audit. ``results`` are those of failed targets."""

    time: int | None
    what: str
    state: str
    user: str
    address: str
    cluster: str
    target: str
    command: str
    text: str
    parameters: str
    results: tuple[str, ...]
    id: str


@dataclass(frozen=True, slots=True)
class Log:
    """A part of the audit, the newest line first. ``older`` is `before` of the next part."""

    entries: tuple[Entry, ...]
    older: int | None
    whole: bool


async def operations(call: Call) -> Page:
    """Show a part of the audit, the newest line first."""
    found = await asyncio.to_thread(
        search, _path(call), _wanted(call), AT_ONCE, call.query["before"]
    )
    entries = tuple(_entry(line) for line in found.lines)
    columns = ("Time", "What", "State", "User", "Address", "Target", "Command", "Text")
    rows = [
        (e.time, e.what, e.state, e.user, e.address, e.target, e.command, e.text) for e in entries
    ]
    return Page(
        "audit/list.html",
        call.text("Operations log"),
        _log(found, entries),
        sheet=Sheet(columns, rows),
    )


def _path(call: Call) -> Path:
    """Return the path of the audit."""
    assert call.audit_path is not None  # set by the frame
    return call.audit_path


def _log(found: AuditPage, entries: tuple[Entry, ...]) -> Log:
    return Log(entries, found.older, found.whole)


def _wanted(call: Call) -> Callable[[Mapping[str, Any]], bool]:
    """Return the filter for lines of this cluster.

    Lines without a cluster, such as logins, are for administrators of all clusters. A user who is
    restricted to some topics and groups sees only their own lines.
    """
    query, user = call.query, call.user
    sees_all = user.topics == user.groups == (EVERY,)
    of_all = sees_all and user.roles.get(EVERY) == "administrator"
    text = query["text"].lower()

    def wanted(entry: Mapping[str, Any]) -> bool:
        cluster = entry.get("cluster")
        if cluster != call.cluster.name and not (cluster is None and of_all):
            return False
        if not sees_all and entry.get("user") != user.name:
            return False
        for name in ("user", "what", "state"):
            if query[name] and str(entry.get(name, "")) != query[name]:
                return False
        at = entry.get("time")
        if query["since"] is not None and not (isinstance(at, int) and at >= query["since"]):
            return False
        if query["until"] is not None and not (isinstance(at, int) and at < query["until"]):
            return False
        return not text or text in orjson.dumps(entry).decode().lower()

    return wanted


def _entry(line: Line) -> Entry:
    entry = line.entry

    def text(name: str) -> str:
        value = entry.get(name, "")
        return value if isinstance(value, str) else orjson.dumps(value).decode()

    at = entry.get("time")
    results = entry.get("results")
    failed = [
        f"{one.get('target')}: {one.get('text')}"
        for one in (results if isinstance(results, list) else [])
        if isinstance(one, dict) and not one.get("ok")
    ]
    plan = entry.get("plan")
    described = text("text") or ("; ".join(map(str, plan)) if isinstance(plan, list) else "")
    return Entry(
        at if isinstance(at, int) else None,
        text("action"),
        text("state"),
        text("user"),
        text("address"),
        text("cluster"),
        text("target") or text("path"),
        text("command"),
        described,
        text("parameters"),
        tuple(failed),
        text("id"),
    )


ROUTES = (
    Route(
        "/operations",
        operations,
        Permission.ADMINISTER,
        N_("Changes and logins: user, time, address and result; the newest first."),
        query=(
            Query("user", default="", about=N_("Of this user.")),
            Query("what", default="", about=N_("change, login, logout, refused, body, export, …")),
            Query("state", default="", about=N_("begins, done, partly done, failed or refused.")),
            Query("text", default="", about=N_("Lines that contain this text.")),
            Query("since", moment, None, N_("From this time on.")),
            Query("until", moment, None, N_("Before this time.")),
            Query("before", integer, None, N_("Continue after the previous part: its `older`.")),
        ),
        menu=N_("Operations log"),
        data=Log,
    ),
)
