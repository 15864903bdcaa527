"""Charts of the history for pages: picture, table, CSV."""

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from mq.daemons.console.call import Call
from mq.daemons.console.charts.chart import Chart, Line, rows, thinned
from mq.daemons.console.charts.svg import svg
from mq.daemons.console.parsing import choice
from mq.daemons.console.route import N_, Query, Sheet

# The time ranges of a chart, in s.
SPANS = {"1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000}
SPAN = Query("span", choice(*SPANS), "1h", N_("Time range of charts."))


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
