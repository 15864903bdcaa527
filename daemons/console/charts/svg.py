"""Draws a chart as SVG: readable in print, by screen readers, without script and inline styles.

Colours and widths are classes (`chart-line-1` …) that the style sheet gives, light and dark. The
numbers are in a table beside it (`chart.rows`), which the description names.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from mq.daemons.console.charts.chart import (
    Chart,
    Line,
    drawable,
    pieces,
    shown,
    span_marks,
    step,
    thinned,
)
from mq.daemons.console.history.points import Point

WIDTH, HEIGHT = 960, 200
MOST_LINES = 12
COLOURS = 6  # classes of lines; the other lines have the same, dashed
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 20, 24
_RIGHT_END, _FLOOR = WIDTH - _RIGHT, HEIGHT - _BOTTOM
# What is no text: control characters, which XML forbids, and those that turn the direction of it.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_DAY = 86_400


def svg(chart: Chart, name: str = "chart") -> str:
    """The picture. `name` is the begin of the ids in it, unlike any other of the page.

    Times are UTC; lines beyond MOST_LINES are left out, and the description says so.
    """
    lines = [
        Line(line.name, tuple(thinned(drawable(line.points), chart.begin, chart.end)))
        for line in chart.lines[:MOST_LINES]
    ]
    highest = max((p.high for line in lines for p in line.points), default=0.0)
    distance = step(highest)
    top = max(distance, -(-highest // distance) * distance)
    scale = _Scale(chart, top)
    title, about = f"{name}-title", f"{name}-about"
    return "".join(
        (
            f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-labelledby="{title} {about}" xmlns="http://www.w3.org/2000/svg">',
            f'<title id="{title}">{_text(chart.title)}</title>',
            f'<desc id="{about}">{_text(_description(chart, lines))}</desc>',
            *_grid(chart, scale, top, distance),
            *(part for place, line in enumerate(lines) for part in _line(line, place, scale)),
            "</svg>",
        )
    )


class _Scale:
    """From times and values to places in the picture."""

    def __init__(self, chart: Chart, top: float) -> None:
        self._begin = chart.begin
        self._x = (_RIGHT_END - _LEFT) / max(1, chart.end - chart.begin)
        self._y = (_FLOOR - _TOP) / top

    def x(self, at: int) -> float:
        return min(max(_LEFT, _LEFT + (at - self._begin) * self._x), _RIGHT_END)

    def y(self, value: float) -> float:
        return min(max(_TOP, _FLOOR - value * self._y), _FLOOR)


def _grid(chart: Chart, scale: _Scale, top: float, distance: float) -> Iterable[str]:
    yield f'<text class="chart-unit" x="4" y="12">{_text(chart.unit)}</text>'
    for mark in range(round(top / distance) + 1):
        value = mark * distance
        y = scale.y(value)
        yield f'<line class="chart-grid" x1="{_LEFT}" x2="{_RIGHT_END}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield (
            f'<text class="chart-mark chart-mark-y" x="{_LEFT - 6}" y="{y + 4:.1f}" '
            f'text-anchor="end">{_text(shown(value, chart.unit))}</text>'
        )
    form = "%H:%M" if chart.end - chart.begin <= 2 * _DAY else "%m-%d"
    for at in span_marks(chart.begin, chart.end):
        x = scale.x(at)
        if x > _RIGHT_END - 14:
            continue  # its text would be cut
        text = datetime.fromtimestamp(at, UTC).strftime(form)
        yield (
            f'<text class="chart-mark" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">'
            f"{text}</text>"
        )


def _line(line: Line, place: int, scale: _Scale) -> Iterable[str]:
    """A path for each piece, and a band from the lowest to the highest where they differ."""
    kind = f"chart-line chart-line-{place % COLOURS + 1}"
    if place >= COLOURS:
        kind += " chart-line-more"
    for piece in pieces(line.points):
        if len(piece) == 1:
            point = piece[0]
            x, y = scale.x(point.at), scale.y(point.mean)
            yield f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="1.5"/>'
            continue
        if any(p.low != p.high for p in piece):
            band = [(p.at, p.high) for p in piece] + [(p.at, p.low) for p in reversed(piece)]
            yield (
                f'<path class="chart-band chart-band-{place % COLOURS + 1}" '
                f'd="{_path(band, scale)}Z"/>'
            )
        path = _path([(p.at, p.mean) for p in piece], scale)
        yield f'<path class="{kind}" d="{path}"/>'


def _path(points: Sequence[tuple[int, float]], scale: _Scale) -> str:
    return "M" + "L".join(f"{scale.x(at):.1f} {scale.y(value):.1f}" for at, value in points)


def _description(chart: Chart, lines: Sequence[Line]) -> str:
    """What somebody who does not see it would be told: the last and the highest of each line."""
    begin, end = (datetime.fromtimestamp(t, UTC) for t in (chart.begin, chart.end))
    said = [f"From {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, in {chart.unit}."]
    said += [_said(line, chart.unit) for line in lines]
    more = len(chart.lines) - len(lines)
    if more:
        said.append(f"{more} more are in the table only.")
    return " ".join(said)


def _said(line: Line, unit: str) -> str:
    points: Sequence[Point] = line.points
    if not points:
        return f"{line.name}: nothing known."
    last, highest = points[-1].mean, max(p.high for p in points)
    return f"{line.name}: {shown(last, unit)} last, {shown(highest, unit)} at most."


def _text(text: str) -> str:
    return escape(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text))
