"""The page of a report: one HTML file that needs nothing else, not even a network.

Charts are SVG in the page, and a table next to each has the numbers. Text that comes from a cluster
is escaped, and the page forbids scripts and external resources, so that a message whose key is a
script is shown, not run.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from mq.pipeline.jobs.job_result import Table
from mq.pipeline.jobs.pictures import DARK, LIGHT


@dataclass(frozen=True)
class Section:
    """A part of a report: `picture` is SVG of mq.pipeline.jobs.pictures, or empty."""

    title: str
    text: str = ""
    picture: str = ""
    table: Table | None = None


_STYLE = """\
:root { color-scheme: light dark; --text: #1a1a1a; --ground: #ffffff; --weak: #5c5c5c;
  --grid: #d9d9d9; --stripe: #f4f4f4; LIGHT }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --ground: #161616; --weak: #a8a8a8; --grid: #3d3d3d;
    --stripe: #202020; DARK }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--ground);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
p.made { color: var(--weak); }
div.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; text-align: left; border-bottom: 1px solid var(--grid);
  vertical-align: top; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; overflow-wrap: normal; white-space: nowrap; }
tbody tr:nth-child(even) { background: var(--stripe); }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--text); } svg .grid { stroke: var(--grid); } svg .bar { fill: var(--c0); }
SERIES
"""


def page(title: str, sections: Iterable[Section], made: datetime, summary: str = "") -> str:
    """Return the whole page; `made` is the time of the report."""
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{_style()}</style>",
        "</head>",
        "<body>",
        f"<h1>{escape(title)}</h1>",
        f'<p class="made">{when(made)}</p>',
    ]
    if summary:
        parts.append(f"<p>{escape(summary)}</p>")
    for section in sections:
        parts += _section(section)
    return "\n".join([*parts, "</body>", "</html>", ""])


def shown(value: Any, kind: str) -> str:
    """Format a value of a column for readers: times in UTC, digits in groups of three."""
    if value is None:
        return "-"
    if kind == "time":
        return when(datetime.fromtimestamp(value / 1000, UTC))
    if kind == "flag":
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def when(time: datetime) -> str:
    """Format a time, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _section(section: Section) -> list[str]:
    parts = ["<section>", f"<h2>{escape(section.title)}</h2>"]
    if section.text:
        parts += [f"<p>{escape(line)}</p>" for line in section.text.split("\n")]
    if section.picture:
        parts.append(section.picture)
    if section.table is not None:
        parts += _table(section.table)
    return [*parts, "</section>"]


def _table(table: Table) -> list[str]:
    columns = table.shape.columns
    marks = [' class="number"' if column.kind == "number" else "" for column in columns]
    head = "".join(
        f'<th scope="col"{mark}>{escape(column.title)}</th>'
        for mark, column in zip(marks, columns, strict=True)
    )
    parts = ['<div class="table"><table>', f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for row in table.rows:
        cells = "".join(
            f"<td{mark}>{escape(shown(value, column.kind))}</td>"
            for mark, column, value in zip(marks, columns, row, strict=True)
        )
        parts.append(f"<tr>{cells}</tr>")
    if not table.rows:
        parts.append(f'<tr><td colspan="{len(columns)}">none</td></tr>')
    return [*parts, "</tbody></table></div>"]


def _style() -> str:
    series = "\n".join(
        f"svg .fill{n} {{ fill: var(--c{n}); }} "
        f"svg .line{n} {{ fill: none; stroke: var(--c{n}); stroke-width: 2; }}"
        for n in range(len(LIGHT))
    )
    style = _STYLE.replace("SERIES", series)
    for word, colors in (("LIGHT", LIGHT), ("DARK", DARK)):
        style = style.replace(word, " ".join(f"--c{n}: {c};" for n, c in enumerate(colors)))
    return style
