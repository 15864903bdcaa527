"""The recorded history of a broker, topic, group or cluster: charts, and the numbers as CSV."""

from dataclasses import dataclass

from mq.client.operations.errors import NotFound
from mq.daemons.console.call import Call
from mq.daemons.console.charts.history_charts import (
    SPAN,
    ChartData,
    ChartLine,
    RenderedChart,
    drawn,
)
from mq.daemons.console.guarded_session import Forbidden
from mq.daemons.console.history.recording import (
    BROKER_FIGURES,
    CLUSTER_FIGURES,
    GROUP_FIGURES,
    TOPIC_FIGURES,
)
from mq.daemons.console.route import N_, Page, Permission, Route, Sheet

_METRICS = {
    "cluster": CLUSTER_FIGURES,
    "broker": BROKER_FIGURES,
    "topic": TOPIC_FIGURES,
    "group": GROUP_FIGURES,
}
_RATES = ("messages/s", 1.0)
_UNITS = {
    "in_rate": _RATES,
    "out_rate": _RATES,
    "consume_rate": _RATES,
    "in_bytes_rate": ("B/s", 1.0),
    "memory": ("B", 1.0),
    "disk_used": ("%", 100.0),
    "response_ms": ("ms", 1.0),
    "lag": ("messages", 1.0),
}
_TITLES = {
    "in_rate": N_("Messages in"),
    "out_rate": N_("Messages out"),
    "consume_rate": N_("Messages consumed"),
    "in_bytes_rate": N_("Bytes in"),
    "memory": N_("Memory"),
    "disk_used": N_("Disk used"),
    "response_ms": N_("Response time to the console"),
    "lag": N_("Lag"),
}


@dataclass(frozen=True, slots=True)
class HistoryData:
    """The metrics of one subject over a span."""

    kind: str
    name: str
    charts: tuple[ChartData, ...]
    problem: str | None


async def history(call: Call) -> Page:
    """Show the recorded history of a broker (NAME:ID), topic, group or cluster."""
    kind, name = call.path["kind"], call.path["name"]
    metrics = _METRICS.get(kind)
    if metrics is None:
        raise NotFound(call.text("there is no history of a %(kind)s", kind=kind))
    if (kind == "topic" and not call.sees_topic(name)) or (
        kind == "group" and not call.sees_group(name)
    ):
        raise Forbidden(call.text("You may not see this."))
    charts: list[RenderedChart] = []
    for metric in metrics:
        unit, factor = _UNITS[metric]
        title = call.text(_TITLES[metric])
        line = ChartLine(title, kind, name, metric, factor)
        charts.append(await drawn(call, metric.replace("_", "-"), title, unit, [line]))
    return Page(
        "overview/history.html",
        call.text("History of %(name)s", name=name),
        HistoryData(kind, name, tuple(one.data for one in charts), call.cluster.history.problem),
        sheet=_sheet(charts),
        extra={"charts_drawn": charts},
    )


def _sheet(charts: list[RenderedChart]) -> Sheet:
    """Return all metrics, a column each with its unit."""
    columns = tuple(f"{one.data.title} ({one.data.unit})" for one in charts)
    tables = [{row.at: row.values[0] for row in one.data.rows} for one in charts]
    times = sorted({at for table in tables for at in table})
    return Sheet(
        ("time (ms)", *columns), [(at, *(table.get(at) for table in tables)) for at in times]
    )


ROUTES = (
    Route(
        "/history/{kind}/{name}",
        history,
        Permission.READ,
        N_("The recorded history of a broker (NAME:ID), topic, group or cluster."),
        query=(SPAN,),
        data=HistoryData,
    ),
)
