"""Charts of the history for pages: picture, table, CSV.

The picture is SVG, without scripts and inline styles, so that it can be printed and read aloud.
Colors and widths are classes (`chart-line-1` …) of the style sheet, light and dark. The description
refers to a table with the numbers (`chart.rows`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from markupsafe import Markup

from mq.daemons.console.call import Call
from mq.daemons.console.charts.chart import (
    Chart,
    Line,
    drawable,
    pieces,
    rows,
    shown,
    span_marks,
    step,
    thinned,
)
from mq.daemons.console.history.points import Point
from mq.daemons.console.parsing import choice
from mq.daemons.console.route import N_, Query, Sheet

WIDTH, HEIGHT = 960, 200
MAX_LINES = 12
COLOURS = 6  # classes of lines; further lines have the same, dashed
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 20, 24
_RIGHT_END, _FLOOR = WIDTH - _RIGHT, HEIGHT - _BOTTOM
# Control characters, which XML forbids, and characters that change the text direction.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_DAY = 86_400

# The time ranges of a chart, in s.
SPANS = {"1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000}
SPAN = Query("span", choice(*SPANS), "1h", N_("Time range of charts."))


def svg(chart: Chart, name: str = "chart") -> str:
    """Return the SVG. `name` is the prefix of its ids, unique on the page.

    Times are UTC; lines over MAX_LINES are omitted, which the description says.
    """
    lines = [
        Line(line.name, tuple(thinned(drawable(line.points), chart.begin, chart.end)))
        for line in chart.lines[:MAX_LINES]
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
    """Converts times and values to positions in the picture."""

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
    """Yield a path for each piece, and a band from lowest to highest values if they differ."""
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
    """Return the description for screen readers: the last and highest value of each line."""
    begin, end = (datetime.fromtimestamp(t, UTC) for t in (chart.begin, chart.end))
    texts = [f"From {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, in {chart.unit}."]
    texts += [_line_text(line, chart.unit) for line in lines]
    more = len(chart.lines) - len(lines)
    if more:
        texts.append(f"{more} more lines are in the table only.")
    return " ".join(texts)


def _line_text(line: Line, unit: str) -> str:
    points: Sequence[Point] = line.points
    if not points:
        return f"{line.name}: no data."
    last, highest = points[-1].mean, max(p.high for p in points)
    return f"{line.name}: last {shown(last, unit)}, at most {shown(highest, unit)}."


def _text(text: str) -> str:
    return escape(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text))


@dataclass(frozen=True, slots=True)
class ChartRow:
    """One time (ms since 1970), and the value of each line; None is unknown."""

    at: int
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class ChartData:
    """A chart for programs; the page also has the picture."""

    title: str
    unit: str
    begin: int  # ms since 1970, like the end
    end: int
    lines: tuple[str, ...]
    rows: tuple[ChartRow, ...]

    @property
    def sheet(self) -> Sheet:
        """The table for CSV."""
        table = [(row.at, *row.values) for row in self.rows]
        return Sheet(("time (ms)", *self.lines), table, f"{self.title} ({self.unit})")


@dataclass(frozen=True, slots=True)
class RenderedChart:
    """A chart and its picture."""

    data: ChartData
    svg: Markup


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line: its display name, and its metric (see `history.recording`)."""

    name: str
    kind: str
    subject: str
    metric: str
    factor: float = 1.0


async def drawn(
    call: Call, name: str, title: str, unit: str, lines: Iterable[ChartLine]
) -> RenderedChart:
    """Return a chart over the call's time range (`SPAN`); `name` is a unique id of letters."""
    end = call.now // 1000
    begin = end - SPANS[call.query.get("span") or SPAN.default]
    found = []
    for line in lines:
        points = await call.cluster.history.read(line.kind, line.subject, line.metric, begin, end)
        if line.factor != 1:
            scaled = ((p.at, *(value * line.factor for value in p[1:])) for p in points)
            points = [type(points[0])(*one) for one in scaled]
        found.append(Line(line.name, tuple(thinned(points, begin, end))))
    chart = Chart(title, unit, begin, end, tuple(found))
    data = ChartData(
        title,
        unit,
        begin * 1000,
        end * 1000,
        tuple(line.name for line in found),
        tuple(ChartRow(at * 1000, values) for at, values in rows(chart)),
    )
    return RenderedChart(data, Markup(svg(chart, name)))
